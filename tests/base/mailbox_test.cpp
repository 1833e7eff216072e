// SPDX-License-Identifier: Apache-2.0
#include "base/mailbox.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/cpu.hpp"
#include "base/poller.hpp"

namespace kolo::base {
namespace {

TEST(Mailbox, CapacityIsAPowerOfTwo) {
  EXPECT_EQ(Mailbox<int>(0).capacity(), 2U);
  EXPECT_EQ(Mailbox<int>(1).capacity(), 2U);
  EXPECT_EQ(Mailbox<int>(4).capacity(), 4U);
  EXPECT_EQ(Mailbox<int>(5).capacity(), 8U);
}

TEST(Mailbox, FirstInFirstOutManyTimesRound) {
  Mailbox<std::string> mailbox(4);
  EXPECT_TRUE(mailbox.empty());
  EXPECT_FALSE(mailbox.try_pop().has_value());
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(mailbox.try_push(std::to_string(3 * round + i)));
    EXPECT_FALSE(mailbox.empty());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(mailbox.try_pop(), std::to_string(3 * round + i));
    EXPECT_TRUE(mailbox.empty());
  }
}

TEST(Mailbox, WhenFullTheValueStaysWithTheCaller) {
  Mailbox<std::unique_ptr<int>> mailbox(2);
  EXPECT_TRUE(mailbox.try_push(std::make_unique<int>(1)));
  EXPECT_TRUE(mailbox.try_push(std::make_unique<int>(2)));
  auto third = std::make_unique<int>(3);
  EXPECT_FALSE(mailbox.try_push(std::move(third)));
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(**mailbox.try_pop(), 1);
  EXPECT_TRUE(mailbox.try_push(std::move(third)));
  EXPECT_EQ(third, nullptr);
  EXPECT_EQ(**mailbox.try_pop(), 2);
  EXPECT_EQ(**mailbox.try_pop(), 3);
}

TEST(Mailbox, DestroysWhatIsLeft) {
  const auto counted = std::make_shared<int>(0);
  {
    Mailbox<std::shared_ptr<int>> mailbox(8);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(mailbox.try_push(std::shared_ptr<int>(counted)));
    EXPECT_TRUE(mailbox.try_pop().has_value());
    EXPECT_EQ(counted.use_count(), 5);
  }
  EXPECT_EQ(counted.use_count(), 1);
}

struct alignas(128) Wide {
  std::uint64_t value;
};

TEST(Mailbox, KeepsAlignment) {
  Mailbox<Wide> mailbox(2);
  EXPECT_TRUE(mailbox.try_push(Wide{7}));
  EXPECT_EQ(mailbox.try_pop()->value, 7U);
}

struct Item {
  std::uint32_t producer;
  std::uint32_t number;
  std::unique_ptr<std::uint64_t> payload;
};

// Everything that was pushed arrives once, and each producer's in its order. The mailbox is small, so that producers
// meet a full one all the time.
TEST(Mailbox, ManyProducersExactAccounting) {
  constexpr std::uint32_t kProducers = 4;
  constexpr std::uint32_t kEach = 20000;
  Mailbox<Item> mailbox(8);
  std::vector<std::thread> producers;
  for (std::uint32_t p = 0; p < kProducers; ++p) {
    producers.emplace_back([&mailbox, p] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        Item item{p, i, std::make_unique<std::uint64_t>((std::uint64_t{p} << 32) | i)};
        while (!mailbox.try_push(std::move(item))) std::this_thread::yield();
        ASSERT_EQ(item.payload, nullptr);
      }
    });
  }
  std::vector<std::uint32_t> next(kProducers, 0);
  std::uint32_t disordered = 0;
  std::uint32_t corrupt = 0;
  for (std::uint32_t received = 0; received < kProducers * kEach;) {
    const auto item = mailbox.try_pop();
    if (!item) {
      std::this_thread::yield();
      continue;
    }
    ++received;
    ASSERT_LT(item->producer, kProducers);
    if (item->number != next[item->producer]++) ++disordered;
    if (*item->payload != ((std::uint64_t{item->producer} << 32) | item->number)) ++corrupt;
  }
  for (auto& producer : producers) producer.join();
  EXPECT_EQ(disordered, 0U);
  EXPECT_EQ(corrupt, 0U);
  for (const std::uint32_t count : next) EXPECT_EQ(count, kEach);
  EXPECT_TRUE(mailbox.empty());
}

// The protocol of try_push's comment: a consumer that sleeps without end is never left asleep over an item. A lost
// wake-up hangs this test. The producer sends one item at a time, while the consumer is on its way to sleep: both take
// a varying time, for either may be the slower one.
TEST(Mailbox, NoWakeUpIsLost) {
  constexpr int kItems = 30000;
  Mailbox<int> mailbox(16);
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
      ASSERT_TRUE(mailbox.try_push(int{i}));
      if (asleep.load(std::memory_order_seq_cst)) bell.signal();
    }
  });
  std::vector<Poller::Event> events;
  int expected = 0;
  while (expected < kItems) {
    if (const auto item = mailbox.try_pop()) {
      ASSERT_EQ(*item, expected);
      taken.store(++expected, std::memory_order_release);
      continue;
    }
    for (int pause = 0; pause < expected / 16 % 16; ++pause) cpu_relax();
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
