// SPDX-License-Identifier: Apache-2.0
#include "transport/pace.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace kolo::transport {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kOpen = 16;

/// After so many messages at this distance.
std::optional<base::Duration> nap_after(int messages, base::Duration each, std::size_t receives) {
  Pace pace;
  base::Time now{};
  pace.look(now, kOpen);
  for (int i = 0; i < messages; ++i) {
    pace.look(now += each, kOpen);
    pace.receive();
  }
  return pace.nap(receives);
}

TEST(Pace, NapsForAPartOfWhatIsUnderWay) {
  EXPECT_EQ(nap_after(1000, milliseconds(10), 16), milliseconds(80));
  EXPECT_EQ(nap_after(1000, milliseconds(10), 4), milliseconds(20));
}

TEST(Pace, NapsForASmallPartOfTheTimeThatItHasTaken) {
  EXPECT_EQ(nap_after(16, milliseconds(10), 16), milliseconds(20));
  EXPECT_EQ(nap_after(32, milliseconds(10), 16), milliseconds(40));
}

TEST(Pace, NapsForTheLongestTimeAtMost) {
  EXPECT_EQ(nap_after(1000, milliseconds(100), 16), base::Duration(Pace::kLongest));
}

/// 16 messages of 64 KiB, of which a rank gets one in 1.1 ms where two share a link of 1 Gbit/s.
TEST(Pace, NapsWithinALinkOfOneGigabit) {
  const base::Duration each = std::chrono::microseconds(1100);
  EXPECT_EQ(nap_after(14, each, 16), std::nullopt) << "begun 15 ms ago";
  EXPECT_EQ(nap_after(512, each, 16), 8 * each);
  EXPECT_EQ(nap_after(512, each, 3), std::nullopt) << "what is under way comes soon";
}

TEST(Pace, IsAwakeForWhatIsFewOrFast) {
  EXPECT_EQ(nap_after(7, milliseconds(100), 16), std::nullopt) << "a few messages";
  EXPECT_EQ(nap_after(1000, std::chrono::microseconds(200), 16), std::nullopt) << "a fast link";
  EXPECT_EQ(nap_after(1000, milliseconds(10), 0), std::nullopt) << "nothing to receive";
  EXPECT_EQ(Pace().nap(16), std::nullopt);
}

TEST(Pace, BeginsAnewWhereNothingIsUnderWay) {
  Pace pace;
  base::Time now{};
  for (int i = 0; i < 100; ++i) {
    pace.look(now += milliseconds(10), kOpen);
    pace.receive();
  }
  EXPECT_NE(pace.nap(16), std::nullopt);
  pace.look(now += milliseconds(10), 0);
  EXPECT_EQ(pace.nap(16), std::nullopt);
  pace.look(now += milliseconds(10), kOpen);
  EXPECT_EQ(pace.nap(16), std::nullopt);
}

}  // namespace
}  // namespace kolo::transport
