// SPDX-License-Identifier: Apache-2.0
//
// Long waits. An `Overdue` becomes a `Query`, which the log sends to all ranks; their answers give a warning, or an
// error, or nothing if the wait is over (messages.hpp, "Questions").
//
//   asking    Ranks that ask about the same request share one question. The first asker answers whether its wait is
//             over, by itself also after it has left. If it is over, the others are asked about for the next of them.
//   waiting   A question ends when every member has answered, and after `latch_timeout_s` in any case. If a member has
//             left since it was asked, and its answer is not known, the question is asked again: now the leader of that
//             rank's node answers.
//   warning   `Stalled` names the ranks that have not submitted, and those that do not answer, once for each round. A
//             set's planned batch that holds up a tensor that all have submitted is broken up instead. A program that
//             asks (`Overdue::asked`) is answered in the same way, as often as it asks; that is no warning.
//   deadline  The error names, in this order:
//               1. the ranks that do not answer: they are stopped, or get no CPU. A rank's answer passes through its
//                  leader, and through the leaders on the way to the root. If several ranks on one way are silent, only
//                  the one next to the root is named, because the others may have answered.
//               2. if all have answered, the ranks that have not submitted, and what they wait for instead;
//               3. if all have submitted, the ranks whose open batches wait for no other rank;
//               4. if there is none, which rank waits for which.
//             If no batch is open any more, the wait is over, and there is no error. (sentences.hpp words it.) If the
//             ranks to name are the consequence of another rank's end, that one is named as the cause (departures.hpp).
//             Askers whose deadline ends the request alone share a question of their own. That request fails, unless
//             all members have made it: then the set is about to be made.
//   leaving   After `RankDeparted` the other ranks ask at once about what they have in flight with that rank. If the
//             rank has not submitted it, the submission fails. It does not fail without a question, because the rank
//             may have submitted it before it left, and only its own node knows.
//   joining   A new set is refused if one of its ranks has joined the world without asking for it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "control/sequencer/call_order.hpp"
#include "control/sequencer/departures.hpp"
#include "control/sequencer/log_writer.hpp"
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
  void on(const Answer& message, Time now);
  /// Concludes the questions that have waited long enough for answers.
  void conclude_due(Time now);
  /// When `conclude_due` must be called; Time::max() for never.
  [[nodiscard]] Time next_deadline() const { return questions_.empty() ? Time::max() : earliest_due(); }

  /// A rank has gone: fails requests that need it and about which there is a question.
  void fail_questions();
  /// The request is over.
  void forget(const Key& key);
  /// The set is removed.
  void forget(core::SetId set);

 private:
  struct Asker {
    std::int32_t rank = 0;
    std::uint64_t serial = 0;
    double waited_s = 0;
  };
  struct Question {
    Request request;
    std::vector<Asker> askers;  ///< at least one
    bool deadline = false;
    bool alone = false;                                           ///< the deadline ends this request, not the job
    bool warns = false;                                           ///< some rank has asked for a warning
    bool running = false;                                         ///< every member has submitted it
    core::CollectiveKind kind = core::CollectiveKind::allreduce;  ///< of the first asker's submission
    Time due = Time::max();                                       ///< when it ends without the missing answers
    std::vector<std::int32_t> departed;                           ///< the members that had left when it was asked
    std::vector<Answer> answers;
    // Of the ranks that have not submitted:
    std::vector<std::int32_t> gone;    ///< those that had left when their answer came
    std::vector<std::int32_t> absent;  ///< those that had joined the world, if the request names its members
    std::uint64_t joins = 0;           ///< how many joins of the world had ended then

    [[nodiscard]] const Answer* answer_of(std::int32_t rank) const;
    /// The ranks that have answered that they have not submitted it, ascending.
    [[nodiscard]] std::vector<std::int32_t> missing() const;
    [[nodiscard]] double waited_s() const;
  };

  void on_late_call(Set& set, const Overdue& message, Time now);
  void on_late_join(Set& set, const Overdue& message, Time now);
  void ask(const Overdue& message, Time now);
  void ask(Question question, Time now);

  // About a request.
  [[nodiscard]] bool any_departed(const Request& request) const;
  [[nodiscard]] bool any_gone(const Request& request) const;
  /// Whether every member has submitted it. (One that names its members is over then.)
  [[nodiscard]] bool is_complete(const Request& request) const;
  /// Whether a warning about this round has been given.
  [[nodiscard]] bool reported(const Request& request) const;
  void note_reported(const Request& request) { stalls_[key_of(request)] = request.round; }

  // About a question.
  [[nodiscard]] Time earliest_due() const;
  /// The members whose answers are waited for, ascending.
  [[nodiscard]] std::vector<std::int32_t> silent_of(const Question& question) const;
  /// Whether a member that may not have submitted it has left since its answer, or since it was asked.
  [[nodiscard]] bool has_lost_an_answer(const Question& question) const;
  /// Leaves out ranks that have left.
  [[nodiscard]] std::vector<std::int32_t> present(std::vector<std::int32_t> ranks) const;
  /// Leaves out ranks whose answers would have had to pass through another silent rank.
  [[nodiscard]] std::vector<std::int32_t> nearest(const std::vector<std::int32_t>& silent) const;
  [[nodiscard]] std::int32_t speaker_of(std::int32_t rank) const;

  /// Whether the first asker waits for the request no more.
  [[nodiscard]] bool is_over(const Question& question) const;
  void conclude(Question question, Time now);
  /// Whether the members that cannot submit it any more decide the question, or it was asked again. The request is not
  /// complete.
  bool conclude_by_absence(Question& question, Time now);
  void conclude_warning(const Question& question);
  void conclude_deadline(const Question& question);
  /// Refuses the request: these of its ranks have joined the world without asking for it.
  void refuse_set(const Request& request, std::vector<std::int32_t> absent);

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
