// SPDX-License-Identifier: Apache-2.0
//
// Handles beside the operation's own outcome: how long they wait, and what they keep.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>
#include <kolo/join.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

/// All that is mapped into this process.
std::int64_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  EXPECT_TRUE(file >> pages);
  return pages * ::getpagesize();
}

TEST(Handles, DoNotKeepTheirContext) {
  const std::ptrdiff_t before = open_descriptors();
  std::vector<float> x{1};
  std::vector<kolo::Handle> handles;
  for (int i = 0; i < 5; ++i) {
    kolo::Context context;
    handles.push_back(kolo::allreduce_async({context, "w"}, kolo::view(x)));
    handles.back().wait();
  }
  EXPECT_EQ(open_descriptors(), before);
  for (kolo::Handle& handle : handles) {
    EXPECT_TRUE(handle.done());
    handle.wait();
    EXPECT_TRUE(handle.wait_for(std::chrono::seconds(1)));
    int called = 0;
    handle.on_done([&](const kolo::Status& status) {
      EXPECT_TRUE(status.ok());
      ++called;
    });
    EXPECT_EQ(called, 1);
  }
  kolo::wait_all(handles);
}

TEST(Handles, DoNotKeepTheMemoryOfTheirContext) {
  constexpr std::int64_t kSlots = 2 * 16 * (std::int64_t{4} << 20);  // of both ranks
  const kolo::Options options = kolo::Options{}.with_setting("KOLO_SLOTS", "16").with_setting("KOLO_SLOT_BYTES", "4M");
  std::mutex mutex;
  std::vector<kolo::Handle> handles;
  std::int64_t before = 0;
  const auto run = [&] {
    run_in(2, options, [&] {
      std::vector<float> x{1};
      kolo::Handle handle = kolo::allreduce_async("w", kolo::view(x));
      handle.wait();
      const std::lock_guard lock(mutex);
      handles.push_back(std::move(handle));
      EXPECT_GE(mapped_bytes(), before + kSlots / 2);
    });
  };
  run();  // threads leave memory behind that the next ones use
  before = mapped_bytes();
  for (int i = 0; i < 4; ++i) run();
  EXPECT_LT(mapped_bytes(), before + kSlots);
  kolo::wait_all(handles);
}

/// Rank 1 submits when rank 0 has begun to wait, or is about to.
template <class Duration>
void expect_waits(Duration duration) {
  std::atomic<bool> waits{false};
  kolo::run_local(2, [&] {
    std::vector<float> x{1};
    if (kolo::rank() == 1) {
      while (!waits.load()) std::this_thread::yield();
      kolo::allreduce("w", kolo::view(x));
      return;
    }
    kolo::Handle handle = kolo::allreduce_async("w", kolo::view(x));
    EXPECT_FALSE(handle.wait_for(std::chrono::seconds(-1)));
    EXPECT_FALSE(handle.wait_for(Duration::min()));
    waits.store(true);
    EXPECT_TRUE(handle.wait_for(duration));
    EXPECT_EQ(x[0], 2.0F);
  });
}

/// As a host library does: one thread waits, another asks, and a third has a callback.
TEST(Handles, ServeSeveralThreadsAtATime) {
  kolo::run_local(2, [] {
    for (int round = 0; round < 50; ++round) {
      std::vector<float> x(1000, 1);
      const kolo::Context& context = kolo::current_context();
      kolo::Handle handle = kolo::allreduce_async("x", kolo::view(x));
      std::atomic<int> called{0};
      std::thread asks([&] {
        while (!handle.done()) std::this_thread::yield();
        EXPECT_TRUE(handle.status()->ok());
      });
      std::thread wants_to_know([&] { static_cast<void>(handle.late_ranks(std::chrono::milliseconds(1))); });
      std::thread registers([&] { handle.on_done([&](const kolo::Status&) { ++called; }); });
      handle.wait();
      EXPECT_EQ(x[999], 2.0F);
      for (std::thread* thread : {&asks, &wants_to_know, &registers}) thread->join();
      while (called < 1) std::this_thread::yield();
      EXPECT_EQ(context.size(), 2);
    }
  });
}

/// A join waits for ranks, and not for what they submit: nobody is late, and nobody is warned.
TEST(Handles, OfJoinsHaveNoLateRanks) {
  kolo::run_local(2, [] {
    std::vector<float> x{1};
    if (kolo::rank() == 1) kolo::allreduce("x", kolo::view(x));
    kolo::Future<int> join = kolo::join_async();
    EXPECT_EQ(join.late_ranks(std::chrono::hours(1)), std::vector<int>());
    static_cast<void>(join.get());
    EXPECT_EQ(kolo::metrics().stalls, 0U);
  });
}

TEST(Handles, WaitForAnyDuration) {
  expect_waits(std::chrono::hours::max());
  expect_waits(std::chrono::nanoseconds::max());
  expect_waits(std::chrono::duration<double>(1e300));
  expect_waits(std::chrono::duration<float, std::ratio<86400>>(std::numeric_limits<float>::infinity()));
}

TEST(Handles, TimeoutsOfCallsTakeAnyUnit) {
  using Options = kolo::AllreduceOptions;
  EXPECT_EQ(Options{}.with_timeout(std::chrono::hours::max()).timeout, std::chrono::nanoseconds::max());
  EXPECT_EQ(Options{}.with_timeout(std::chrono::duration<double>(0.5)).timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(kolo::BarrierOptions{}.with_timeout(std::chrono::minutes::min()).timeout, std::chrono::nanoseconds::min());
  kolo::Context context;
  std::vector<float> x{1};
  kolo::allreduce({context, "w"}, kolo::view(x), Options{}.with_timeout(std::chrono::hours::max()));
  EXPECT_EQ(x[0], 1.0F);
}

TEST(Handles, NamesAreShownOnOneLineAndInPart) {
  kolo::run_local(2, [] {
    std::vector<float> x{1};
    const std::string name = "a\nb\x1b[31m" + std::string(60000, 'c');
    std::vector<float> y{1};
    kolo::Prepared prepared = kolo::prepare(name, kolo::Call::allreduce(kolo::view(x)));
    EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { (void)kolo::allreduce_async(name, kolo::view(y)); }),
              "the name \"a\\nb\\x1b[31m" + std::string(92, 'c') +
                  "...\" (60008 bytes) belongs to a prepared request: start that one, or use another name");
  });
}

}  // namespace
