// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/ring.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

namespace kolo::p2p {
namespace {

std::string refusal_of(std::uint64_t position, std::uint64_t word) {
  const auto ring = std::make_unique<Ring>();
  ring->word(position).store(word);
  try {
    static_cast<void>(read_record(*ring, position, 3));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    return error.status().message();
  }
  return "nothing";
}

constexpr std::uint64_t kLast = Ring::kBytes - kLine;

TEST(Ring, RecordsOfEveryLengthAreFoundWhereTheyFit) {
  for (const std::size_t bytes : {std::size_t{0}, kShortBytes, kShortBytes + 1, Ring::kPartBytes}) {
    const auto ring = std::make_unique<Ring>();
    EXPECT_EQ(read_record(*ring, 0, 3).bytes, 0U);
    const std::uint64_t position = 3 * Ring::kBytes - record_bytes(bytes);
    ring->word(position).store(record_word(bytes));
    const Record record = read_record(*ring, position, 3);
    EXPECT_EQ(record.bytes, record_bytes(bytes));
    EXPECT_EQ(record.data_bytes, bytes);
    EXPECT_FALSE(record.is_filler);
    EXPECT_LE(record.data + bytes, ring->data + Ring::kBytes);
  }
}

TEST(Ring, AFillerEndsWithTheRing) {
  const auto ring = std::make_unique<Ring>();
  ring->word(kLast).store(filler_word(kLine));
  EXPECT_TRUE(read_record(*ring, kLast, 3).is_filler);
  EXPECT_EQ(filler_before(kLast, 2 * kLine), kLine);
  EXPECT_EQ(filler_before(kLast, kLine), 0U);
  EXPECT_EQ(refusal_of(0, filler_word(kLine)), "rank 3 left out 64 bytes of a ring of which 131072 are left");
  EXPECT_EQ(refusal_of(kLast, filler_word(2 * kLine)), "rank 3 left out 128 bytes of a ring of which 64 are left");
  EXPECT_EQ(refusal_of(kLast, filler_word(0)), "rank 3 left out 0 bytes of a ring of which 64 are left");
  EXPECT_EQ(refusal_of(kLast, filler_word(kLine) | std::uint64_t{1} << kLengthBits),
            "rank 3 left out 64 bytes of a ring of which 64 are left");
}

TEST(Ring, NothingIsReadBeyondTheRing) {
  EXPECT_EQ(refusal_of(kLast, record_word(kLine)), "rank 3 wrote a record of 128 bytes for 64 bytes of data");
  EXPECT_EQ(refusal_of(0, record_word(Ring::kPartBytes + 1)),
            "rank 3 wrote a record of 16512 bytes for 16385 bytes of data");
  EXPECT_EQ(refusal_of(0, record_word(0) + 1), "rank 3 wrote a record of 65 bytes for 0 bytes of data");
  EXPECT_EQ(refusal_of(0, std::numeric_limits<std::uint64_t>::max() >> 1),
            "rank 3 wrote a record of 4294967295 bytes for 2147483647 bytes of data");
}

}  // namespace
}  // namespace kolo::p2p
