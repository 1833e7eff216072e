// SPDX-License-Identifier: Apache-2.0
//
// This rank's calls without a name, by set (messages.hpp, "Sequences"). They have no records: they are numbered, and
// run or fail in the order of their numbers. Only the last ones fail together, when another rank has left.
//
// New calls are published when the outbox is taken, so that a thousand calls are one message.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "control/participant/departed_ranks.hpp"
#include "control/participant/publisher.hpp"

namespace kolo::control::participant {

class Sequences {
 public:
  Sequences(std::int32_t rank, Names& names, DepartedRanks& departed, Publisher& publisher,
            ParticipantCounters& counters)
      : rank_(rank), names_(names), departed_(departed), publisher_(publisher), counters_(counters) {}

  /// New calls of the set's sequence; `first` is the number of the first. This rank must be allowed to submit in the
  /// set.
  void call(Set& set, const std::shared_ptr<const core::Signature>& signature, core::Round first, std::uint64_t count);
  /// This rank's calls up to this one are over, by the log or by the shortcut.
  static void pass(Sequence& sequence, core::Round last);
  /// Whether `speak_of_calls` would publish something.
  [[nodiscard]] bool has_news() const noexcept { return !grown_.empty(); }
  /// Publishes the calls that were made since the last time.
  void speak_of_calls();
  /// A join has ended, and the next call follows this one. If it failed, no later call can run.
  static void restart_sequence(Sequence& sequence, bool done, core::Round calls);

  void on(const SequenceAppended& entry, std::vector<Action>& actions);
  void on(const SequenceFailed& entry, std::vector<Action>& actions);
  void on(const SequenceEnded& entry, std::vector<Action>& actions);

 private:
  const std::int32_t rank_;
  Names& names_;
  DepartedRanks& departed_;
  Publisher& publisher_;
  ParticipantCounters& counters_;
  std::vector<Set*> grown_;  ///< sets with calls that are not published yet
};

}  // namespace kolo::control::participant
