// SPDX-License-Identifier: Apache-2.0
// The clock, hashes, fields of a message, rows that grow in place, scratch memory, and thread names.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/fields.hpp"
#include "base/hash.hpp"
#include "base/machine.hpp"
#include "base/scratch.hpp"
#include "base/stable_vector.hpp"
#include "base/thread.hpp"

namespace kolo::base {
namespace {

TEST(Clock, SecondsAndBack) {
  EXPECT_EQ(from_seconds(1.5), std::chrono::milliseconds(1500));
  EXPECT_EQ(from_seconds(-0.25), std::chrono::milliseconds(-250));
  EXPECT_EQ(to_seconds(std::chrono::milliseconds(1500)), 1.5);
}

TEST(Clock, HugeDurationsStillAddToATime) {
  EXPECT_GT(from_seconds(1e300), std::chrono::hours(24 * 365 * 100));
  EXPECT_EQ(from_seconds(std::numeric_limits<double>::infinity()), from_seconds(1e300));
  EXPECT_LT(from_seconds(-1e300), -std::chrono::hours(24 * 365 * 100));
  const Time begin = now();
  EXPECT_GT(after(begin, from_seconds(1e300)), begin);
  EXPECT_EQ(after(begin, std::chrono::seconds(1)), begin + std::chrono::seconds(1));
  EXPECT_EQ(after(begin, -std::chrono::seconds(1)), begin - std::chrono::seconds(1));
  EXPECT_EQ(after(begin, Duration::max()), Time::max());
  EXPECT_EQ(after(Time::min(), -Duration(1)), Time::min());
}

TEST(StableVector, KeepsAddresses) {
  StableVector<std::string> row;
  std::vector<const std::string*> addresses;
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(row.size(), static_cast<std::size_t>(i));
    addresses.push_back(&row.emplace_back(std::to_string(i)));
  }
  const StableVector<std::string>& same = row;
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(&row[i], addresses[i]);
    EXPECT_EQ(same[i], std::to_string(i));
  }
}

TEST(Scratch, GrowsToTheMostAndBeginsAtAPage) {
  Scratch scratch;
  EXPECT_EQ(scratch.data(), nullptr);
  scratch.reserve(0);
  EXPECT_EQ(scratch.data(), nullptr);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{1} << 20}) {
    scratch.reserve(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch.data()) % kPageBytes, 0U);
    std::memset(scratch.data(), 1, bytes);
  }
  std::byte* const most = scratch.data();
  scratch.reserve(5000);
  EXPECT_EQ(scratch.data(), most);
  EXPECT_EQ(most[(1 << 20) - 1], std::byte{1});
}

TEST(Hash, TheAlgorithmsOwnVectors) {
  EXPECT_EQ(hash_string(""), 0xcbf29ce484222325U);
  EXPECT_EQ(hash_string("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(hash_string("foobar"), 0x85944171f73967e8U);
  EXPECT_EQ(hash_string(std::string_view("\xff\0\x80", 3)), 0xf920891be415651eU);
}

TEST(Hash, GoesOnFromAnEarlierOne) {
  EXPECT_EQ(hash_string("bar", hash_string("foo")), hash_string("foobar"));
  EXPECT_EQ(hash_string("", 42), 42U);
  EXPECT_NE(hash_text_quickly("b", hash_text_quickly("a")), hash_text_quickly("a", hash_text_quickly("b")));
  EXPECT_NE(hash_text_quickly("", hash_text_quickly("ab")), hash_text_quickly("b", hash_text_quickly("a")));
  EXPECT_NE(hash_text_quickly("layer1.weight"), hash_text_quickly("layer2.weight"));
  EXPECT_EQ(hash_number(0x0807060504030201), hash_string("\1\2\3\4\5\6\7\x8"));
}

// XXH64's own values.
TEST(Hash, OfMuchMemory) {
  std::array<unsigned char, 1000> data{};
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>((i * 7 + 3) % 251);
  const std::map<std::size_t, std::array<std::uint64_t, 2>> wanted{
      {0, {0xef46db3751d8e999, 0xac75fda2929b17ef}},   {1, {0x1f25c8d0bc1f4bb6, 0x79cf94f5ace37fe1}},
      {3, {0x31d2363f52e564c9, 0x96d2a5e583ddd738}},   {4, {0x9bb64b7d66ee9fda, 0x4a862fbb4b73776e}},
      {7, {0x9a7b149959ce60d8, 0xddc5cf71d37a6368}},   {8, {0xdab99d95c6f90092, 0xc6e75e2cbd8e07ee}},
      {12, {0xd52e407833af5133, 0x79b0b158fab0e5d6}},  {31, {0xa2aa5f33cc4a6119, 0x381822f33376d6b6}},
      {32, {0x23c3c17ef790fd97, 0x9abd315470ac276a}},  {33, {0x50a7cfc7ba588784, 0x72cdd3262f467933}},
      {63, {0xf1438f15b9ed16e9, 0x4c9df3c09bac575}},   {64, {0x2cd990a1beed6894, 0xe4fdd9fd76860f05}},
      {100, {0x778e26df8290f456, 0xefa3d41cc67b2690}}, {1000, {0x21f7a7424085ea4, 0x78bf9ef439332363}}};
  for (const auto& [bytes, hashes] : wanted) {
    EXPECT_EQ(hash_memory(data.data(), bytes), hashes[0]) << bytes;
    EXPECT_EQ(hash_memory(data.data(), bytes, 2654435761), hashes[1]) << bytes;
  }
}

TEST(Hash, OfMuchMemorySeesEachBit) {
  std::array<unsigned char, 203> data{};
  const std::uint64_t before = hash_memory(data.data(), data.size());
  std::set<std::uint64_t> hashes{before};
  for (std::size_t bit = 0; bit < 8 * data.size(); ++bit) {
    data[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
    hashes.insert(hash_memory(data.data(), data.size()));
    data[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
  }
  EXPECT_EQ(hashes.size(), 1 + 8 * data.size());
}

TEST(Fields, ContentsAreFree) {
  const std::vector<std::string> fields{"", "3:abc", std::string("\0:", 2), "last"};
  EXPECT_EQ(split_fields(join_fields(fields)), fields);
  EXPECT_TRUE(split_fields("").empty());
}

TEST(Fields, WhatIsNoneIsRefused) {
  for (const char* text : {"x", "3", "3:ab", "-1:", ":", "1:ab", "99999999999999999999999:a"}) {
    EXPECT_THROW(static_cast<void>(split_fields(text)), Error) << text;
  }
}

TEST(Fields, AnErrorCodeIsOneThatThereIs) {
  EXPECT_EQ(error_code_of("0"), ErrorCode::ok);
  EXPECT_EQ(error_code_of("15"), ErrorCode::cancelled);
  for (const char* text : {"", "16", "256", "-1", "7x", "99999999999"}) {
    EXPECT_THROW(static_cast<void>(error_code_of(text)), Error) << text;
  }
}

TEST(ThreadName, IsCutToWhatLinuxKeeps) {
  std::string short_name;
  std::string long_name;
  std::thread thread([&] {
    set_thread_name("kolo 3");
    short_name = thread_name();
    set_thread_name("a name that is far too long");
    long_name = thread_name();
  });
  thread.join();
  EXPECT_EQ(short_name, "kolo 3");
  EXPECT_EQ(long_name, "a name that is ");
}

}  // namespace
}  // namespace kolo::base
