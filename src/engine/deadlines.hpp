// SPDX-License-Identifier: Apache-2.0
//
// What happens while operations wait for long: warnings, deadlines, and the questions that go with them
// (docs/architecture.md, "Negotiation", rule 8).
//
//   warned      after KOLO_STALL_WARNING_S the participant reports the wait
//   overdue     at the deadline it reports it again, and the sequencer asks all ranks
//   reminded    half of KOLO_LATCH_TIMEOUT_S later it reports it once more, so that a leader that has stopped is
//               noticed
//   recorded    after KOLO_LATCH_TIMEOUT_S without an outcome the rank fails by itself
//
// The sequencer's questions to this rank (control::Query) wait here, too. A rank answers when nothing more can be moved
// here, and after `kLongest` in any case.
//
// The driver's.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_state.hpp"

namespace kolo::engine {

class Deadlines {
 public:
  explicit Deadlines(EngineState& engine) noexcept : engine_(engine) {}

  // -- of this rank's operations
  [[nodiscard]] bool are_due(base::Time now) const noexcept {
    return now >= engine_.open.next_due() || now >= engine_.ending.due;
  }
  void check(base::Time now) KOLO_REQUIRES(kDriving);
  /// A program asks which ranks are late. If the batch runs or is over, no rank is late.
  void ask_who_is_late(Operation& operation, base::Time now) KOLO_REQUIRES(kDriving);
  /// The log says who is late.
  void report(const control::Stalled& stall) KOLO_REQUIRES(kDriving);

  // -- the sequencer's questions
  [[nodiscard]] bool has_questions() const noexcept { return !questions_.empty(); }
  void add_question(control::AnswerQuery query, base::Time now) {
    if (questions_.empty()) asked_ = now;
    questions_.push_back(std::move(query));
  }
  /// Answers them, if it is time. `advanced`: the pass has moved something.
  void answer_questions(bool advanced, base::Time now) KOLO_REQUIRES(kDriving) {
    if (!questions_.empty() && (!advanced || now >= asked_ + kLongest)) answer_all();
  }

 private:
  /// How long a rank that always has something to move puts off its answer.
  static constexpr std::chrono::milliseconds kLongest{100};

  void check(Operation& operation, base::Time now) KOLO_REQUIRES(kDriving);
  void record(recorder::Kind kind, const Operation& operation) KOLO_REQUIRES(kDriving);
  void report_overdue(const Operation& operation, base::Time now) KOLO_REQUIRES(kDriving);
  void report_call(const Operation& operation, double waited, bool deadline) KOLO_REQUIRES(kDriving);
  void answer_all() KOLO_REQUIRES(kDriving);
  [[nodiscard]] bool concerns(const control::Stalled& stall, const Operation& operation) const KOLO_REQUIRES(kDriving);
  [[nodiscard]] std::optional<control::NameId> name_id_of(const Operation& operation) const KOLO_REQUIRES(kDriving);
  [[nodiscard]] control::Request request_of(const Operation& operation) const KOLO_REQUIRES(kDriving);
  [[nodiscard]] std::optional<control::Request> oldest_wait() const KOLO_REQUIRES(kDriving);
  [[nodiscard]] std::string describe(const Operation& operation) const KOLO_REQUIRES(kDriving);
  [[nodiscard]] std::string describe_silence() const KOLO_REQUIRES(kDriving);

  EngineState& engine_;
  std::vector<control::AnswerQuery> questions_;
  base::Time asked_{};  ///< when the first of them came
};

}  // namespace kolo::engine
