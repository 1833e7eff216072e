// SPDX-License-Identifier: Apache-2.0
#include "launch/directions.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kolo::launch {
namespace {

const std::string kWord(64, 'a');

TEST(StoreEntry, SurvivesTheJourneyAsText) {
  const StoreEntry entry{kWord, {{"10.0.0.1", 29500}, {"::1", 1}}};
  const JobKey key{"secret", "a job"};
  std::string proof;
  const auto read = decode_entry(encode(entry, key), proof);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->word, entry.word);
  EXPECT_EQ(read->addresses, entry.addresses);
  EXPECT_EQ(proof, proof_of(*read, key));
  EXPECT_NE(proof, proof_of(*read, {"secret", "another job"}));
}

TEST(StoreEntry, WhatIsNoneIsNotRead) {
  const std::string begin = "kolo-1 proof " + kWord;
  std::string proof;
  EXPECT_TRUE(decode_entry(begin, proof));
  EXPECT_TRUE(decode_entry(begin + " 10.0.0.1|80", proof));
  const std::vector<std::string> texts = {"",
                                          "kolo-1",
                                          "kolo-2 proof " + kWord,
                                          "kolo-1 proof " + kWord + "a",
                                          begin + " 10.0.0.1",
                                          begin + " 10.0.0.1|",
                                          begin + " 10.0.0.1|65536",
                                          begin + " name|80",
                                          begin + " 10.0.0.1" + std::string("\0.9", 3) + "|80",
                                          begin + " ::1" + std::string(1, '\0') + "|80"};
  for (const std::string& text : texts) EXPECT_FALSE(decode_entry(text, proof)) << text;
}

}  // namespace
}  // namespace kolo::launch
