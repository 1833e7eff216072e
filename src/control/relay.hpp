// SPDX-License-Identifier: Apache-2.0
//
// A leader's part in negotiation: merges the messages of its children (the ranks of its node, and the nodes below it in
// the tree), and sends upward only what all children concerned have submitted. A pure state machine. The root's relay
// feeds the sequencer.
//
//   counts        for each id the least count of the children that have members of the id's set; goes up when it rises.
//                 Completed counts go up late while their set runs planned batches: with the next other count of the
//                 set, or when the sequencer may wait for them (as far as it knows, `open_batches` are open).
//   declarations  held for (set, name, round) until every child with members has submitted that round, bare or whole;
//                 then one `Declared` with all variants goes up (equal signatures merged). A request that names its
//                 members is held until every child with one of these has declared it.
//   sequences     the calls of a set's sequence that all children have made, in their order (sequence_link.hpp).
//   joining       A rank's `Joined` goes up at once. From then on the rank counts as having submitted everything in
//                 that set, until the log says that the join has ended. A child without other members below it is not
//                 waited for. What is complete because of that goes up next.
//   waiting       with counts, declarations and calls goes which rank was the last (messages.hpp, "Waiting").
//   the rest      goes up at once.
//
// A leader hands every log entry to its relay before it publishes it to its children. If a child's message has a
// generation that has ended, the child has not read that entry yet. The relay drops the message; the child sends it
// again when it reads the entry. An invalid message is refused by an Error (ranges.hpp).
//
// Its parts are in src/control/relay/: what ids mean and how far each child has come (`table`), and requests that have
// no id (`declarations`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/messages.hpp"
#include "control/ranges.hpp"

namespace kolo::control {

class Relay {
 public:
  /// One entry for each child: the ranks of the world below it, ascending (one rank for a rank of this node). A child's
  /// index is its number. The `local` children that are ranks of this node come first. `open_batches` is at most the
  /// sequencer's; with more, the sequencer could wait for a count that is held back here. `capacity`: how many ids
  /// there can be.
  Relay(int size, std::vector<std::vector<std::int32_t>> children, std::size_t local, std::uint64_t open_batches = 1,
        std::uint32_t capacity = kMostIds);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// A child's count word as it stands now (from the board, or a `Counted`); repeats are free.
  void on_count(std::size_t child, core::TensorId id, CountWord word);
  void on_message(std::size_t child, UpMessage message);
  void on_log(const LogEntry& entry);
  /// What has been heard so far may have come in any order; what is heard from here on came later. Before this, within
  /// a pass, the leader's own rank is heard last.
  void end_pass() noexcept;

  /// Messages to send up, in order; the caller takes them and clears the outbox.
  [[nodiscard]] std::vector<UpMessage>& outbox() noexcept;
  [[nodiscard]] core::TensorId id_bound() const noexcept;
  /// The set of a plan that the log has defined and not voided.
  [[nodiscard]] core::SetId set_of_plan(std::uint32_t plan) const;
  /// The children that have members of the set, ascending; null if there is no such set, or not any more.
  [[nodiscard]] const std::vector<std::size_t>* children_of(core::SetId set) const;
  /// The text for a set of the log; empty for the world, and for a removed set.
  [[nodiscard]] std::string words_of(core::SetId set) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::control
