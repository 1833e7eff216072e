// SPDX-License-Identifier: Apache-2.0
#include "base/poller.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace kolo::base {
namespace {

TEST(TimerFd, WakesAPollerWhenItsTimeHasComeAndOnlyOnce) {
  TimerFd timer;
  Poller poller;
  poller.add(timer.fd(), 7);
  std::vector<Poller::Event> events;
  poller.poll(events);
  EXPECT_TRUE(events.empty()) << "never set";

  const Time when = now() + std::chrono::milliseconds(20);
  timer.set(when);
  while (events.empty()) poller.wait(std::nullopt, events);
  EXPECT_GE(now(), when);
  EXPECT_EQ(events.front().tag, 7U);
  timer.drain();
  poller.poll(events);
  EXPECT_TRUE(events.empty());

  timer.set(now() - std::chrono::hours(1));
  poller.wait(std::nullopt, events);
  EXPECT_FALSE(events.empty()) << "a time that has passed";
  timer.set(now() + std::chrono::hours(1));
  poller.poll(events);
  EXPECT_TRUE(events.empty()) << "replaced before it was looked at";
  timer.drain();
}

}  // namespace
}  // namespace kolo::base
