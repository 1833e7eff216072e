// SPDX-License-Identifier: Apache-2.0
//
// Messages from device to device: how two ranks' devices find each other, and how a message that both ranks have agreed
// on becomes a call in the log.
//
//   messages.hpp       a message is agreed on (data/p2p/frame.hpp, "By the devices")
//   here               it is the next call without a name of the direction's own group, of kind `message`
//   the log            the call has a place among everything else that devices do, the same on both ranks
//   data/cuda          NCCL's send or receive, on the group's communicator and stream
//
// Why by the log. NCCL's kernel occupies the device, and waits there for its peer's, which waits for what the caller's
// stream has to do first: a collective, perhaps, or another message. Without one order of all of these, on all ranks,
// they could wait for each other in a circle, and so could a communicator that is made while such a kernel runs. In
// the log whatever a message waits for has an earlier place: its callers have given it to their streams before.
//
// The stages of a direction, from one rank to another. The driver makes each step in its passes:
//
//   introduce   The first message whose tensors both lie on devices goes by the host, and tells both ranks. Each asks
//               for the group of the two; one that cannot be made fails on both ("refused").
//   probe       In the new group both make a call of nothing. Its batch makes the communicator, at its place in the
//               log, with nothing else of ours on the device. If NCCL cannot connect the two, it fails on both
//               ("refused").
//   found       The rank says to the protocol that messages of this direction may go by the device. They do when the
//               other one says so, too.
//
// A refused direction goes by the host for ever. If a rank dies, or a deadline passes, while a call is in the log, that
// is as with any collective.
//
// The driver's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string_view>
#include <vector>

#include "base/mailbox.hpp"
#include "data/p2p/message.hpp"
#include "engine/operation.hpp"
#include "engine/sets.hpp"

namespace kolo::engine {

struct EngineState;

class DevicePairs {
 public:
  using Mailbox = base::Mailbox<Submission>;
  /// With this begin the names of their groups.
  static constexpr std::string_view kNames = "kolo.messages";

  explicit DevicePairs(EngineState& engine) noexcept : engine_(engine) {}

  /// The devices should find each other, unless they have begun to.
  void introduce(const p2p::Direction& direction);
  /// Makes the next call of a direction whose devices have found each other: of so many bytes of a tensor. `operation`
  /// is new to the log.
  void call(const p2p::Direction& direction, OperationPtr operation, std::byte* tensor, std::uint64_t bytes);
  /// Whether `move` has something to look at.
  [[nodiscard]] bool is_busy() const noexcept { return busy_ > 0; }
  /// Brings everything further that can go on; whether anything has. `mailbox`: the engine's.
  bool move(Mailbox& mailbox);
  /// Nothing more is given to the log. Calls that have not been, which nobody else ends.
  [[nodiscard]] std::vector<OperationPtr> take();

 private:
  enum class Stage : std::uint8_t { asking, probing, found, refused };
  struct Pair {
    Stage stage = Stage::asking;
    OperationPtr step;               ///< asking, probing: its operation
    bool is_given = false;           ///< the step is in the mailbox
    SetStatePtr set;                 ///< from when it is there
    std::deque<OperationPtr> calls;  ///< that have not been given to the log
  };

  [[nodiscard]] bool is_busy(const Pair& pair) const noexcept;
  bool move(const p2p::Direction& direction, Pair& pair, Mailbox& mailbox);
  void refuse(const p2p::Direction& direction, Pair& pair);

  EngineState& engine_;
  std::map<p2p::Direction, Pair> pairs_;
  std::size_t busy_ = 0;  // of them
};

}  // namespace kolo::engine
