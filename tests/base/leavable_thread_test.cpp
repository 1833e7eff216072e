// SPDX-License-Identifier: Apache-2.0
#include "base/thread.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

namespace kolo::base {
namespace {

constexpr std::chrono::hours kLong{1};
constexpr std::chrono::milliseconds kShort{1};

TEST(LeavableThread, WhatReturnsIsAwaited) {
  bool has_run = false;
  EXPECT_TRUE(run_within(kLong, "a thread", [&has_run] { has_run = true; }));
  EXPECT_TRUE(has_run);
}

TEST(LeavableThread, WhatThrowsThrows) {
  EXPECT_THROW(static_cast<void>(run_within(kLong, "a thread", [] { throw std::invalid_argument("no"); })),
               std::invalid_argument);
}

TEST(LeavableThread, WhatDoesNotReturnIsLeft) {
  std::promise<void> never;
  std::promise<void> over;
  EXPECT_FALSE(run_within(kShort, "a thread", [hangs = never.get_future().share(), &over] {
    hangs.wait();
    over.set_value();
  }));
  never.set_value();
  over.get_future().wait();
}

TEST(Watchdog, CallsThatReturnGoOn) {
  // Together they take longer than one may. One alone takes so long only where this thread gets no CPU for a second.
  Watchdog watch(std::chrono::seconds(1), "a call hangs", 3);
  const Time until = now() + std::chrono::milliseconds(1200);
  for (; now() < until; std::this_thread::yield()) const Watchdog::Call call(&watch);
  const Watchdog::Call nobody_watches(nullptr);
}

TEST(WatchdogDeathTest, ACallThatDoesNotReturnEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    Watchdog watch(kShort, "a call hangs", 3);
    { const Watchdog::Call returns(&watch); }
    const Watchdog::Call call(&watch);
    std::promise<void>().get_future().wait_for(kLong);
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(3), "a call hangs\n");
}

}  // namespace
}  // namespace kolo::base
