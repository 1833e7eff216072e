// SPDX-License-Identifier: Apache-2.0
//
// Tests of random schedules take one or two thousand in a run, always the same ones. For more:
//
//     simulator_test --gtest_filter='RandomWorlds.*' --gtest_shuffle --gtest_random_seed=1 --gtest_repeat=20
//
// takes other ones in each repetition, three times as many. A test names the seed that failed; the repetition is known
// by its millions, and `--gtest_shuffle --gtest_random_seed=MILLIONS` takes it alone.
#pragma once

#include <cstdint>

#include <gtest/gtest.h>

#include "tests/support/sanitized.hpp"

namespace kolo::testing {

/// The seeds of a test, from `first` on: a third of `worlds`, or all of them in a run that is shuffled, of every
/// repetition its own. (Fewer with a sanitizer.)
struct Schedules {
  std::uint64_t first, end;
  Schedules(std::uint64_t usual_first, std::uint64_t worlds)
      : first(usual_first + std::uint64_t{1000000} * repetition()),
        end(first + share_of(worlds) / kOfThose / (is_shuffled() ? 1 : 3)) {}

 private:
  /// A sanitizer slows a simulated world down by thirty, and finds in it what it finds in few.
  static constexpr std::uint64_t kOfThose = unless_sanitized(1, 3);

  static bool is_shuffled() { return GTEST_FLAG_GET(shuffle); }
  static std::uint64_t repetition() {
    if (!is_shuffled()) return 0;
    return static_cast<std::uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
  }
};

}  // namespace kolo::testing
