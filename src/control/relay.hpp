// SPDX-License-Identifier: Apache-2.0
//
// A leader's part in negotiation: merges what its children - the ranks of its node, and the nodes below it in the tree
// - say, and passes on upward only what all of them that matter have said. A pure state machine. The root's relay
// feeds the sequencer; it hears everything as if the world were one child.
//
//   counts        for each id the least count of the children that have members of the id's set; goes up when it rises.
//                 The completed counts go up lazily while their set runs planned batches: together with the next other
//                 count of the set, or when the sequencer may be waiting for them (`open_batches` are open as far as it
//                 has been told).
//   declarations  held for (set, name, round) until every child with members has submitted that round, bare or whole;
//                 then one `Declared` with all variants goes up (equal signatures merged). Of a request that names its
//                 members: until every child with one of these has declared it.
//   sequences     the calls of a set's sequence that all children have made, in their order (sequence.hpp).
//   joining       A rank's `Joined` goes up at once; from then on it counts as having submitted everything in that set,
//                 and a child below which nobody else is a member is not waited for, until the log says that the join
//                 has ended. Then goes up what is complete by that.
//   the rest      goes up at once.
//
// A leader hands every log entry to its relay before it publishes it to its children. So what a child says under a
// generation that the relay knows to be over was said before the child could know, and is dropped: the child says it
// again when it reads the entry. What no rank of this world can say is refused by an Error (ranges.hpp).
//
// Its parts are in src/control/relay/: what ids mean and how far each child has come (`table`), and requests that have
// no id (`new_names`, `gathered`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "control/messages.hpp"
#include "control/ranges.hpp"

namespace kolo::control {

class Relay {
 public:
  /// One entry a child: the ranks of the world below it, ascending (one rank for a rank of this node). Children are
  /// called by their index. Children that are ranks of this node come first: `local` of them.
  /// `open_batches` is the sequencer's, or less: more than it would leave the sequencer waiting for a count that is
  /// held back. `capacity`: how many ids there can be.
  Relay(int size, std::vector<std::vector<std::int32_t>> children, std::size_t local, std::uint64_t open_batches = 1,
        std::uint32_t capacity = kMostIds);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// A child's count word as it stands now (from the board, or a `Counted`); repeats are free.
  void on_count(std::size_t child, core::TensorId id, CountWord word);
  void on_message(std::size_t child, UpMessage message);
  void on_log(const LogEntry& entry);

  /// What goes up, in order; the caller takes it and clears it.
  [[nodiscard]] std::vector<UpMessage>& outbox() noexcept;
  [[nodiscard]] core::TensorId id_bound() const noexcept;
  /// The set of a plan that the log has defined and not voided.
  [[nodiscard]] core::SetId set_of_plan(std::uint32_t plan) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::control
