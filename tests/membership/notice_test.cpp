// SPDX-License-Identifier: Apache-2.0
#include "membership/notice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <kolo/error.hpp>

#include "base/fields.hpp"

namespace kolo::membership {
namespace {

TEST(MembershipNotice, IsReadAsItWasWritten) {
  const std::vector<Notice> all = {{Topic::ready, 0, 0, 0, {}},
                                   {Topic::ready, ~std::uint64_t{0}, 0, 0, {}},
                                   {Topic::entry, 3, 0, 0, std::string("any\0bytes\n", 10)},
                                   {Topic::next, 1, 0, 1, {}},
                                   {Topic::next, 7, 4, 5, {}},
                                   {Topic::farewell, 0, 0, 0, "the work is done"}};
  for (const Notice& one : all) EXPECT_EQ(decode(encode(one)), one);
}

TEST(MembershipNotice, IsRefusedIfItIsNone) {
  const std::vector<std::vector<std::string>> all = {
      {"1", "0", "0", "0"},        {"0", "0", "0", "0", ""},  {"11", "0", "0", "0", ""},
      {"1", "-1", "0", "0", ""},   {"1", "0x", "0", "0", ""}, {"1", "0", "1", "0", ""},
      {"1", "0", "0", "2", ""},    {"8", "1", "2", "2", ""},  {"8", "1", "-1", "2", ""},
      {"8", "0", "0", "2", ""},    {"8", "1", "0", "0", ""},  {"8", "18446744073709551616", "0", "1", ""},
      {"1", "0", "0", "0", "", ""}};
  for (const std::vector<std::string>& fields : all) {
    EXPECT_THROW(static_cast<void>(decode(base::join_fields(fields))), Error) << ::testing::PrintToString(fields);
  }
  EXPECT_THROW(static_cast<void>(decode("no fields")), Error);
}

}  // namespace
}  // namespace kolo::membership
