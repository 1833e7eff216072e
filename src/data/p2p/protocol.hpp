// SPDX-License-Identifier: Apache-2.0
//
// One rank's part in the protocol of frame.hpp: frames and calls in, frames and outcomes out. Pure: time is an
// argument, and channels are an interface. One thread at a time.
//
//   open_messages.hpp   what is open, and how it ends
//   matching.hpp        which message goes to which receive
//   sending.hpp         what goes into channels: sends, and answers
//   receiving.hpp       receives whose data is on its way
//
// This has what concerns several of them: frames that come, messages to oneself, and ranks and sets that go.
//
// Messages belong to the caller, and stay where they are until they are done. Those that are done are handed over once
// (`OpenMessages::done`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.hpp"
#include "data/p2p/channels.hpp"
#include "data/p2p/frame.hpp"
#include "data/p2p/matching.hpp"
#include "data/p2p/message.hpp"
#include "data/p2p/open_messages.hpp"
#include "data/p2p/receiving.hpp"
#include "data/p2p/sending.hpp"

namespace kolo::p2p {

/// Memory for messages that no receive has asked for (frame.hpp, "Space").
struct KeptLimits {
  std::uint64_t of_rank = std::uint64_t{64} << 20;  ///< more of a rank is taken only if something of it is waited for
  std::uint64_t of_all = std::uint64_t{1} << 30;    ///< more ends the job
};

/// What has happened, for the owner of the messages.
struct News {
  std::vector<Direction> met;        ///< devices that should find each other; perhaps not for the first time
  std::vector<const Message*> late;  ///< late sends: their data is to be provided from now on
  std::vector<Message*> done;        ///< those that are done, in this order, and have an owner
  std::deque<Message> void_sends;    ///< also in `done`, without an owner: calls of nothing (frame.hpp)
};

/// So many directions of a rank go by devices, in and out together: each has a communicator, and takes one of the
/// places that a rank has for groups (KOLO_GROUPS). Pipelines and neighbours need few.
constexpr std::size_t kMostDirectionsByDevice = 64;

class Protocol final : private FrameHandler {
 public:
  /// `channels` outlives it.
  Protocol(int rank, int size, Channels& channels, const KeptLimits& limits = {})
      : rank_(rank), size_(size), channels_(channels), limits_(limits), open_(channels),
        sending_(size, channels, open_), receiving_(channels, open_, sending_, departed_) {}

  // -- calls
  /// Begins a message. It may be done at once. It is done, or has not begun, when this throws for want of memory.
  void start(Message& message);
  /// Sends a short message at once, if it can: it need not stay where it is. False: nothing has been done.
  [[nodiscard]] bool try_send(const Message& send);
  /// So many bytes of a late send's data are there now, as many as before or more. Not where it is done.
  void provide(Message& send, std::uint64_t bytes);
  /// Takes back a receive that has no message yet; whether it had none. It is done then.
  bool cancel(Message& receive);
  /// From now on a thread waits for this open receive, and sends nothing meanwhile. One from any rank that nobody waits
  /// for may still get a message of this rank's own, also when all others have left.
  void await(Message& receive);
  /// Ends an open message by this error. Nobody touches its memory any more. One that has not begun is left alone.
  /// `because`: the rank whose leaving is the reason, which the other side is told; -1: none.
  void give_up(Message& message, const Status& status, int because = -1);
  /// Ends all that is open, and all that comes, by this error.
  void close(const Status& status);

  // -- what else is heard
  /// This rank is a member of a set of this serial number now; and: the set is no more, all its members have dropped
  /// it.
  void on_set(std::uint64_t set);
  void on_set_gone(std::uint64_t set);
  /// The devices have found each other, as the two ranks know: messages may go from the one to the other.
  void on_found(const Direction& direction) { found_.insert(direction); }
  /// A rank has left the job, and sends nothing more. What it has sent may come until then; `Time::min()`: all of it is
  /// in the channel. `because`: the rank whose end led to that; -1: none.
  void on_departed(int rank, base::Time until, int because = -1);

  /// Moves what can be moved; whether anything was.
  bool progress();
  /// Ends what is overdue, and notes a warning of what has waited for long, once of each message.
  void expire(base::Time now);
  /// Since the last call.
  [[nodiscard]] std::vector<std::string>& warnings() noexcept { return warnings_; }
  [[nodiscard]] bool has_news() const noexcept {
    return !open_.done().empty() || !news_.late.empty() || !news_.met.empty();
  }
  /// Since the last call. `news` may be that call's, for the memory.
  void take_news(News& news);

  /// Those that are open, and their deadlines.
  [[nodiscard]] OpenMessages& open() noexcept { return open_; }
  [[nodiscard]] const OpenMessages& open() const noexcept { return open_; }
  /// Whether anything is open, or not yet in a channel: then `progress` must be called.
  [[nodiscard]] bool is_busy() const noexcept { return !open_.empty() || has_unsent() || awaits_answers(); }
  /// Whether receivers owe answers to sends that are open no more.
  [[nodiscard]] bool awaits_answers() const noexcept { return sending_.awaits_answers(); }
  /// Whether there is something to move though nothing has come.
  [[nodiscard]] bool moves() const noexcept { return has_unsent() || receiving_.is_reading(); }
  /// Whether frames are not yet in a channel.
  [[nodiscard]] bool has_unsent() const noexcept { return sending_.has_unsent(); }

 private:
  void on_frame(int source, const Frame& frame, const std::byte* data, std::size_t bytes) override;
  [[nodiscard]] bool wants(int source) const noexcept override;
  void on_whole(int source, const Frame& frame, const std::byte* data, std::size_t bytes);
  void on_announced(int source, const Frame& frame);
  void on_wanted(int source, const Frame& frame);
  void on_withdrawn(int source, const Frame& frame);
  [[nodiscard]] bool is_gone(std::uint64_t set) const;

  void start_send(Message& send);
  void send_to_self(Message& send);
  void start_receive(Message& receive);
  void keep(Arrival arrival);
  [[nodiscard]] bool fits(Message& receive, int source, const Frame& frame);
  void take_whole(Message& receive, int source, const Frame& frame, const std::byte* data);
  void take_own(Message& receive, Message& send, const Frame& frame);
  void copy_own(Message& receive, Message& send);
  void accept(Message& receive, int source, const Frame& frame);
  [[nodiscard]] bool may_meet(const Direction& direction) const;
  void meet(const Direction& direction);
  void on_silent(int rank);
  void receive_nothing_from(int rank);
  void detach(Message& message, int because);

  const int rank_;
  const int size_;
  Channels& channels_;
  const KeptLimits limits_;
  Departures departed_;
  std::unordered_set<int> silent_;  // of those: nothing more comes
  OpenMessages open_;
  Sending sending_;
  Receiving receiving_;
  Matching matching_;
  std::unordered_set<std::uint64_t> sets_;  // that this rank is a member of,
  std::uint64_t last_set_ = 0;              // up to this serial number
  std::vector<std::string> warnings_;
  std::set<Direction> met_;    // this rank's directions whose devices look for each other, or have
  std::set<Direction> found_;  // of these
  News news_;                  // but for `done`
  Status closed_;
};

}  // namespace kolo::p2p
