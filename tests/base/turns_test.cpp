// SPDX-License-Identifier: Apache-2.0
#include "base/turns.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

using kolo::base::Turns;

namespace {

TEST(Turns, AreFreeUntilTaken) {
  Turns turns;
  EXPECT_TRUE(turns.is_free());
  turns.take();
  EXPECT_FALSE(turns.is_free());
  EXPECT_FALSE(turns.try_take());
  turns.end();
  EXPECT_TRUE(turns.is_free());
  EXPECT_TRUE(turns.try_take());
  EXPECT_FALSE(turns.try_take());
  turns.end();
  EXPECT_TRUE(turns.is_free());
}

/// Those who wait get it in the order in which they asked, though another one tries all the time.
TEST(Turns, AreTakenInTheOrderOfAsking) {
  constexpr int kOvertaker = -1;
  Turns turns;
  turns.take();
  std::vector<int> order;  // whoever has the turn writes it
  std::atomic<bool> over{false};
  std::thread overtaker([&] {
    while (!over.load()) {
      if (!turns.try_take()) continue;
      order.push_back(kOvertaker);
      turns.end();
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> waiting;
  for (int number = 0; number < 4; ++number) {
    const std::uint64_t before = turns.waiting();
    waiting.emplace_back([&turns, &order, number] {
      turns.take();
      order.push_back(number);
      turns.end();
    });
    while (turns.waiting() == before) std::this_thread::yield();
  }
  turns.end();
  for (std::thread& thread : waiting) thread.join();
  over.store(true);
  overtaker.join();
  ASSERT_GE(order.size(), 4U);
  EXPECT_EQ(std::vector<int>(order.begin(), order.begin() + 4), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(turns.is_free());
}

/// A turn is one thread's at a time, wherever it ends.
TEST(Turns, AreOneThreadsAtATime) {
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  Turns turns;
  int count = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        if (thread % 2 == 0) {
          turns.take();
        } else {
          while (!turns.try_take()) std::this_thread::yield();
        }
        ++count;
        if (i % 100 == 0) {
          std::thread([&turns] { turns.end(); }).join();
        } else {
          turns.end();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kEach);
  EXPECT_TRUE(turns.is_free());
}

}  // namespace
