// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "data/kernels/copy.hpp"
#include "data/kernels/reduction.hpp"
#include "support.hpp"

namespace kolo::kernels {
namespace {

using Copier = std::function<void(void*, const void*, std::int64_t)>;

class Copy : public OnEveryTarget {
 protected:
  static void expect_copies(const Copier& copier, std::int64_t bytes, std::int64_t from, std::int64_t to) {
    SCOPED_TRACE(testing::Message() << bytes << " bytes from +" << from << " to +" << to);
    Memory source(bytes, from);
    std::mt19937_64 random(static_cast<std::uint64_t>(bytes));
    fill(DType::uint8, source.data(), bytes, random);
    Memory destination(bytes, to);
    copier(destination.data(), source.data(), bytes);
    EXPECT_EQ(std::memcmp(destination.data(), source.data(), static_cast<std::size_t>(bytes)), 0);
    EXPECT_TRUE(destination.surroundings_untouched());
  }
};
KOLO_ON_EVERY_TARGET(Copy);

TEST_P(Copy, CopiesBytesAndNothingElse) {
  for (const Copier& copier : {Copier(copy), Copier(copy_ahead), Copier(copy_past_cache)}) {
    for (const std::int64_t bytes : {0, 1, 5, 64, 1023, 1024, 1025, 4096, 10'007}) {
      for (const std::int64_t from : {0, 1, 60}) {
        for (const std::int64_t to : {0, 3, 63}) expect_copies(copier, bytes, from, to);
      }
    }
  }
}

TEST_P(Copy, ToPeersIsACopyByEitherWay) {
  for (const PeerCopy::Stores stores : {PeerCopy::Stores::through_cache, PeerCopy::Stores::past_cache}) {
    for (int round = 0; round < 5; ++round) {
      for (const std::int64_t bytes : {0, 1, 8191, 8192, 16'385, 40'000, 140'000, 600'001}) {
        expect_copies(PeerCopy(stores), bytes, round % 3 * 5, round * 7);
      }
    }
  }
}

}  // namespace
}  // namespace kolo::kernels
