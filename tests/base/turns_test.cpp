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

/// Those who wait get it in the order in which they asked, though others try all the time.
TEST(Turns, AreTakenInTheOrderOfAsking) {
  Turns turns;
  turns.take();
  std::vector<int> order;  // whoever has the turn writes it
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
  EXPECT_FALSE(turns.try_take());
  turns.end();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
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
