// SPDX-License-Identifier: Apache-2.0
//
// One rank's end, at a moment that is fixed beforehand: at the n-th event of a phase, at once or some time later.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "facts.hpp"

namespace kolo::chaos {

enum class Phase : int { before, mpi_init, init, first_step, step, messages, last_step, shutdown, after };
enum class Kind { kill, stop, slow, give_back, exit, raise, stay_away, disagree, leave };

[[nodiscard]] const char* to_string(Phase phase) noexcept;
[[nodiscard]] Phase phase_of(const std::string& text);
[[nodiscard]] Kind kind_of(const std::string& text);

constexpr int kStatusOfReturn = 7;
constexpr int kStatusOfExit = 3;
constexpr int kStatusOfException = 4;
constexpr int kStatusOfTold = 10;
constexpr int kStatusOfWrong = 11;

/// Unwinds to main, which returns. The kind `leave` has called kolo::shutdown before.
struct Leave {};
/// What the program itself throws in the kind `raise`.
struct OwnFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Fate {
  bool victim = false;
  Kind kind = Kind::kill;
  Phase phase = Phase::step;
  std::int64_t event = 0;              ///< which event of the phase; of `disagree`: in which step
  std::chrono::microseconds delay{0};  ///< after it; 0: at once, on the thread that got there
};

/// Thread-safe. In a rank that is not the victim it only keeps the phase. Never destroyed, because it may strike while
/// the process ends.
class Victim {
 public:
  Victim(Fate fate, Facts& facts) : fate_(fate), facts_(facts) {}

  /// A phase begins. Its beginning is event 0.
  void enter(Phase phase);
  /// Something happens in the phase.
  void event();
  /// All ranks submit a tensor that has another shape on the victim: the kind `disagree`, which nothing else starts.
  void disagree();
  [[nodiscard]] Phase phase() const noexcept { return phase_.load(); }

 private:
  [[nodiscard]] Phase trigger() const;
  [[nodiscard]] Phase phase_now() const;
  void strike();
  void strike_later();

  const Fate fate_;
  Facts& facts_;
  std::atomic<Phase> phase_{Phase::before};
  std::atomic<std::int64_t> events_{-1};
  bool waits_to_strike_ = false;
};

}  // namespace kolo::chaos
