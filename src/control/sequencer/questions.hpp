// SPDX-License-Identifier: Apache-2.0
//
// Waits that last. An `Overdue` becomes a `Query`, which the log puts to all; what they answer is a warning, or an
// error, or nothing, because the wait is over.
//
//   warning   Every node answers who of its ranks is missing (`Missing`), and `Stalled` says so, once for each round. A
//             set's planned batch that holds up a tensor that all have submitted is broken up instead. A program that
//             asks (`Overdue::asked`) is answered in the same way, as often as it asks; that is no warning.
//   deadline  Every member answers by itself (`Answer`); answers that do not come are waited for `latch_timeout_s`. The
//             error names, in this order:
//               1. the ranks that are silent: they are stopped, or kept from running. What a rank says passes through
//                  its leader, and through the leaders on the way to the root; of several silent ranks on one way only
//                  the one next to the root is named, because the others may have answered.
//               2. if all have answered, the ranks that have not submitted, and what they wait for instead;
//               3. if all have submitted, the ranks whose open batches wait for no other rank;
//               4. if there is none, which rank waits for which.
//             If no batch is open any more, the wait is over, and there is no error. (sentences.hpp words it.)
//   leaving   `RankDeparted` tells the others, who ask at once about what they have in flight with that rank: if it is
//             missing, the submission fails. Why ask, and not fail everything in flight? Because the rank may have
//             submitted before it left, and then the submission runs; only its own node knows. A node's answer counts
//             for the ranks that had left when it came; for those that left since, it is asked again.
//   joining   Who has not joined is known here, without a question; but for a deadline they are asked, for one may be
//             stopped. A rank that has joined the world and is missing for a new set has the set refused.
//
// One question stands for all ranks that ask about the same request, with one exception: requests that name their
// members all have round 1, so each rank that asks about one has a question of its own. That is over when the rank that
// asked is among the missing.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "control/sequencer/call_order.hpp"
#include "control/sequencer/departures.hpp"
#include "control/sequencer/failures.hpp"
#include "control/sequencer/log.hpp"
#include "control/sequencer/plans.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

class Questions {
 public:
  using Time = Sequencer::Time;

  Questions(const SequencerOptions& options, Log& log, const TensorTable& tensors, SetTable& sets,
            const Departures& departures, Failures& failures, Plans& plans, CallOrder& calls)
      : options_(options), log_(log), tensors_(tensors), sets_(sets), departures_(departures), failures_(failures),
        plans_(plans), calls_(calls) {}

  void on(const Overdue& message, Time now);
  void on(const Missing& message);
  void on(const Answer& message);
  /// Concludes the questions that have waited long enough for answers.
  void conclude_due(Time now);
  /// When `conclude_due` must be called; Time::max() for never.
  [[nodiscard]] Time next_deadline() const;

  /// A rank has gone: fails what is asked about and needs it.
  void fail_questions();
  /// The request is over.
  void forget(const Key& key);
  /// The set is removed.
  void forget(core::SetId set);

 private:
  struct Question {
    Request request;
    std::int32_t asker = 0;  ///< the first
    bool deadline = false;
    double waited_s = 0;
    // For a warning:
    bool warns = false;                                           ///< somebody has asked for a warning
    core::CollectiveKind kind = core::CollectiveKind::allreduce;  ///< of the asker's submission
    int answers = 0;
    std::vector<std::int32_t> missing;
    std::vector<std::int32_t> gone;    ///< of these, who had left when the answer came
    std::vector<std::int32_t> absent;  ///< and who had joined the world, if the request names its members
    std::uint64_t joins = 0;           ///< of the world that had ended then
    // For a deadline:
    bool running = false;    ///< every member has submitted it
    Time due = Time::max();  ///< when the answers that have come must do
    std::vector<Answer> heard;
  };

  void on_late_call(Set& set, const Overdue& message, Time now);
  void on_late_join(Set& set, const Overdue& message, Time now);
  void ask(const Overdue& message, Time now);
  void ask(Question question);

  // About a request.
  [[nodiscard]] bool any_departed(const Request& request) const;
  [[nodiscard]] bool any_gone(const Request& request) const;
  /// Whether every member has submitted it. (One that names its members is over then.)
  [[nodiscard]] bool is_complete(const Request& request) const;
  /// Whether a warning about this round has been given.
  [[nodiscard]] bool reported(const Request& request) const;
  /// Whether the one who asked does not wait any more: then the question was about a request that is over, and the
  /// others' answers may be about the next one. Only of requests that name their members: all their rounds are 1.
  static bool is_over(const Question& question, const std::vector<std::int32_t>& missing);

  // Warnings.
  void conclude_warning(Question question);
  /// Ranks that it names have joined the world, and had not asked for it.
  void refuse_set(const Request& request, std::vector<std::int32_t> absent);

  // Deadlines.
  void conclude_deadline(const Question& question);
  /// The members that have not answered, ascending. A rank that has left need not answer.
  [[nodiscard]] std::vector<std::int32_t> silent_of(const Question& question) const;
  /// Without those whose words would have had to pass through another silent rank.
  [[nodiscard]] std::vector<std::int32_t> nearest(const std::vector<std::int32_t>& silent) const;
  [[nodiscard]] std::int32_t speaker_of(std::int32_t rank) const;

  const SequencerOptions& options_;
  Log& log_;
  const TensorTable& tensors_;
  SetTable& sets_;
  const Departures& departures_;
  Failures& failures_;
  Plans& plans_;
  CallOrder& calls_;
  std::map<std::uint64_t, Question> questions_;  ///< by number
  std::uint64_t next_question_ = 1;
  std::map<Key, core::Round> stalls_;  ///< reported
};

}  // namespace kolo::control::sequencer
