// SPDX-License-Identifier: Apache-2.0
#include "base/mailbox.hpp"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/cpu.hpp"
#include "base/event_fd.hpp"
#include "base/poller.hpp"

namespace kolo::base {
namespace {

/// The odd word for a number.
std::uint64_t word(std::uint64_t number) { return 2 * number + 1; }

TEST(Mailbox, CapacityIsAPowerOfTwo) {
  EXPECT_EQ(Mailbox(0).capacity(), 2U);
  EXPECT_EQ(Mailbox(1).capacity(), 2U);
  EXPECT_EQ(Mailbox(4).capacity(), 4U);
  EXPECT_EQ(Mailbox(5).capacity(), 8U);
}

TEST(Mailbox, FirstInFirstOutManyTimesRound) {
  Mailbox mailbox(4);
  EXPECT_TRUE(mailbox.empty());
  EXPECT_EQ(mailbox.try_pop(), 0U);
  for (std::uint64_t round = 0; round < 10; ++round) {
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(mailbox.try_push(word(3 * round + i)));
    EXPECT_FALSE(mailbox.empty());
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(mailbox.try_pop(), word(3 * round + i));
    EXPECT_TRUE(mailbox.empty());
  }
}

TEST(Mailbox, TakesNothingWhenFull) {
  Mailbox mailbox(2);
  EXPECT_TRUE(mailbox.try_push(word(1)));
  EXPECT_TRUE(mailbox.try_push(word(2)));
  EXPECT_FALSE(mailbox.try_push(word(3)));
  EXPECT_EQ(mailbox.try_pop(), word(1));
  EXPECT_TRUE(mailbox.try_push(word(3)));
  EXPECT_FALSE(mailbox.try_push(word(4)));
  EXPECT_EQ(mailbox.try_pop(), word(2));
  EXPECT_EQ(mailbox.try_pop(), word(3));
  EXPECT_EQ(mailbox.try_pop(), 0U);
}

// Everything that was pushed arrives once, and each producer's in its order. The mailbox is small, so that producers
// meet a full one all the time.
TEST(Mailbox, ManyProducersExactAccounting) {
  constexpr std::uint32_t kProducers = 4;
  constexpr std::uint32_t kEach = 20000;
  for (const std::size_t capacity : {2U, 8U, 64U}) {
    Mailbox mailbox(capacity);
    std::vector<std::uint64_t> payloads(kProducers * kEach);  // written before a push, read behind a pop
    std::vector<std::thread> producers;
    for (std::uint32_t p = 0; p < kProducers; ++p) {
      producers.emplace_back([&mailbox, &payloads, p] {
        for (std::uint32_t i = 0; i < kEach; ++i) {
          const std::uint64_t number = std::uint64_t{p} * kEach + i;
          payloads[number] = ~number;
          while (!mailbox.try_push(word(number))) std::this_thread::yield();
        }
      });
    }
    std::vector<std::uint32_t> next(kProducers, 0);
    std::uint32_t disordered = 0;
    std::uint32_t corrupt = 0;
    for (std::uint32_t received = 0; received < kProducers * kEach;) {
      const std::uint64_t found = mailbox.try_pop();
      if (found == 0) {
        std::this_thread::yield();
        continue;
      }
      ++received;
      const std::uint64_t number = found / 2;
      ASSERT_LT(number, payloads.size());
      if (number % kEach != next[number / kEach]++) ++disordered;
      if (payloads[number] != ~number) ++corrupt;
    }
    for (auto& producer : producers) producer.join();
    EXPECT_EQ(disordered, 0U) << capacity;
    EXPECT_EQ(corrupt, 0U) << capacity;
    for (const std::uint32_t count : next) EXPECT_EQ(count, kEach);
    EXPECT_TRUE(mailbox.empty());
  }
}

// The protocol of try_push's comment: a consumer that sleeps without end is never left asleep over an item. A lost
// wake-up hangs this test. The producer sends one item at a time, at varying moments after the consumer took the last
// one: while the consumer is on its way to sleep.
TEST(Mailbox, NoWakeUpIsLost) {
  constexpr int kItems = 30000;
  Mailbox mailbox(16);
  EventFd bell;
  Poller poller;
  poller.add(bell.fd(), 1);
  alignas(kCacheLine) std::atomic<bool> asleep{false};
  alignas(kCacheLine) std::atomic<int> taken{0};
  std::thread producer([&] {
    for (int i = 0; i < kItems; ++i) {
      Waiter waiter(WaitPolicy{2000, std::chrono::seconds(1)});  // pausing keeps it beside the consumer, on another CPU
      while (taken.load(std::memory_order_acquire) < i) waiter.step();
      for (int pause = 0; pause < i % 16; ++pause) cpu_relax();
      ASSERT_TRUE(mailbox.try_push(word(static_cast<std::uint64_t>(i))));
      if (asleep.load(std::memory_order_seq_cst)) bell.signal();
    }
  });
  std::vector<Poller::Event> events;
  int expected = 0;
  while (expected < kItems) {
    if (const std::uint64_t found = mailbox.try_pop(); found != 0) {
      ASSERT_EQ(found, word(static_cast<std::uint64_t>(expected)));
      taken.store(++expected, std::memory_order_release);
      continue;
    }
    asleep.store(true, std::memory_order_seq_cst);
    if (mailbox.empty()) poller.wait(std::nullopt, events);
    asleep.store(false, std::memory_order_seq_cst);
    bell.drain();
  }
  producer.join();
  EXPECT_TRUE(mailbox.empty());
}

}  // namespace
}  // namespace kolo::base
