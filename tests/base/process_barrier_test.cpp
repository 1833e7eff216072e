// SPDX-License-Identifier: Apache-2.0
#include "base/machine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace kolo::base {
namespace {

/// Each of two threads stores, then looks at what the other one stores: one of them sees it, though only one of them
/// has a barrier between the two.
TEST(ProcessBarrier, SparesTheOtherSideItsFence) {
  if (!join_process_barriers()) return;  // a system without: nobody calls the rest
  constexpr int kRounds = 3000;
  std::atomic<int> plain{0};
  std::atomic<int> fenced{0};
  std::atomic<int> began{0};
  std::atomic<int> ended{0};
  int missed_by_plain = 0;
  const auto wait_for = [](const std::atomic<int>& counter, int value) {
    while (counter.load() < value) std::this_thread::yield();
  };
  std::thread publisher([&] {
    for (int round = 1; round <= kRounds; ++round) {
      wait_for(began, round);
      plain.store(round, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // for the compiler alone
      if (fenced.load(std::memory_order_relaxed) != round) missed_by_plain = round;
      ended.store(round);
    }
  });
  int missed_by_both = 0;
  for (int round = 1; round <= kRounds; ++round) {
    began.store(round);
    fenced.store(round, std::memory_order_relaxed);
    if (!process_barrier()) std::abort();
    const bool missed = plain.load(std::memory_order_relaxed) != round;
    wait_for(ended, round);
    missed_by_both += missed && missed_by_plain == round ? 1 : 0;
  }
  publisher.join();
  EXPECT_EQ(missed_by_both, 0);
}

}  // namespace
}  // namespace kolo::base
