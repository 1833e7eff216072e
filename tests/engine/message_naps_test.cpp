// SPDX-License-Identifier: Apache-2.0
#include "engine/message_naps.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace kolo::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr base::Time kBegin{std::chrono::hours(1)};

TEST(MessageNaps, GrowWhileCallsKeepComing) {
  MessageNaps naps;
  base::Time now = kBegin;
  EXPECT_EQ(naps.next(now), milliseconds(1));
  EXPECT_EQ(naps.next(now += microseconds(1900)), milliseconds(2));
  EXPECT_EQ(naps.next(now += microseconds(3900)), milliseconds(4));
  EXPECT_EQ(naps.next(now += microseconds(7900)), milliseconds(4)) << "the longest";
}

TEST(MessageNaps, AreShortAgainAfterAPause) {
  MessageNaps naps;
  base::Time now = kBegin;
  static_cast<void>(naps.next(now));
  static_cast<void>(naps.next(now += milliseconds(1)));
  EXPECT_EQ(naps.next(now += milliseconds(4)), milliseconds(1));
  EXPECT_EQ(naps.next(now += milliseconds(1)), milliseconds(2));
}

}  // namespace
}  // namespace kolo::engine
