// SPDX-License-Identifier: Apache-2.0
#include "base/quote.hpp"

#include <gtest/gtest.h>

#include <string>

namespace kolo::base {
namespace {

TEST(Quoted, LeavesPlainNamesAlone) {
  EXPECT_EQ(base::quoted("layer1.weight"), "\"layer1.weight\"");
  EXPECT_EQ(base::quoted("Schicht/größe ✓ 層 😀"), "\"Schicht/größe ✓ 層 😀\"");
  EXPECT_EQ(base::quoted(""), "\"\"");
}

TEST(Quoted, EscapesWhatWouldBreakALineOrMoveATerminal) {
  EXPECT_EQ(base::quoted("a\nb\tc\rd"), "\"a\\nb\\tc\\rd\"");
  EXPECT_EQ(base::quoted("\x1b[31mred"), "\"\\x1b[31mred\"");
  EXPECT_EQ(base::quoted(std::string("\0\x7f", 2)), "\"\\x00\\x7f\"");
  EXPECT_EQ(base::quoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(base::quoted("\xc2\x9b"), "\"\\xc2\\x9b\"");  // a terminal's escape in one character
}

TEST(Quoted, EscapesWhatIsNotUtf8) {
  EXPECT_EQ(base::quoted("a\xff z"), "\"a\\xff z\"");
  EXPECT_EQ(base::quoted("\xc3"), "\"\\xc3\"");                    // cut off
  EXPECT_EQ(base::quoted("\xc0\xaf"), "\"\\xc0\\xaf\"");           // overlong
  EXPECT_EQ(base::quoted("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\"");  // a surrogate
  EXPECT_EQ(base::quoted("\xf4\x90\x80\x80"), "\"\\xf4\\x90\\x80\\x80\"");
}

TEST(Quoted, CutsLongNames) {
  EXPECT_EQ(base::quoted(std::string(200, 'x')), "\"" + std::string(200, 'x') + "\"");
  EXPECT_EQ(base::quoted(std::string(65536, 'x')), "\"" + std::string(100, 'x') + "...\" (65536 bytes)");
}

TEST(Quoted, ShowsWhatLongTextsDifferIn) {
  const std::string same(10000, 'x');
  const std::string shown = "\"" + std::string(100, 'x') + "...\" (";
  EXPECT_EQ(base::quoted(same + "a\n", 10000), shown + "10002 bytes; after the first 10000: \"a\\n\")");
  EXPECT_EQ(base::quoted(same, 10000), shown + "10000 bytes; after the first 10000: \"\")");
  EXPECT_EQ(base::quoted(same + std::string(300, 'y'), 10000),
            shown + "10300 bytes; after the first 10000: \"" + std::string(100, 'y') + "...\")");
  EXPECT_EQ(base::quoted(same, 99), shown + "10000 bytes)") << "the difference is in what is shown";
  EXPECT_EQ(base::quoted("layer1", 3), "\"layer1\"");
}

TEST(Quoted, EscapedHasNoQuotesAround) {
  EXPECT_EQ(base::escaped("optimizer(gradients)"), "optimizer(gradients)");
  EXPECT_EQ(base::escaped("a\n\"b\""), "a\\n\\\"b\\\"");
  std::string cut(100, 'x');
  cut += "... (201 bytes)";
  EXPECT_EQ(base::escaped(std::string(201, 'x')), cut);
}

TEST(Quoted, ASentenceStaysOnOneLineAndKeepsItsQuotes) {
  EXPECT_EQ(base::on_one_line("tensor \"a\\n\" of\nrank 1\x1b[2J\x9b"), "tensor \"a\\n\" of\\nrank 1\\x1b[2J\\x9b");
  EXPECT_EQ(base::on_one_line(std::string(1000, 'x')), std::string(1000, 'x'));
}

TEST(Quoted, EscapesWhatEndsALineOrTurnsItInUnicode) {
  EXPECT_EQ(base::on_one_line("a\u2028b\u2029c\u202ed\u2066e\u2027f\u202fg"),
            "a\\xe2\\x80\\xa8b\\xe2\\x80\\xa9c\\xe2\\x80\\xaed\\xe2\\x81\\xa6e\u2027f\u202fg");
}

TEST(Quoted, ASentenceIsOneLineOfABoundedLength) {
  EXPECT_EQ(base::one_line("name \"a\\n\" is wrong", 100), "name \"a\\n\" is wrong");
  EXPECT_EQ(base::one_line("first\n[kolo 0 error] forged\x1b[2J\xff größe", 100),
            "first\\n[kolo 0 error] forged\\x1b[2J\\xff größe");
  std::string umlauts;
  for (int i = 0; i < 500; ++i) umlauts += "ä";
  EXPECT_EQ(base::one_line("a" + umlauts, 2000), "a" + umlauts);
  EXPECT_EQ(base::one_line(std::string(100, 'x'), 100), std::string(100, 'x'));
  EXPECT_EQ(base::one_line(std::string(101, 'x'), 100), std::string(100, 'x') + "... (101 bytes)");
}

TEST(Quoted, AsJsonWhateverBytesThereAre) {
  EXPECT_EQ(base::quoted_json(""), "\"\"");
  EXPECT_EQ(base::quoted_json("a \"b\" \\c"), "\"a \\\"b\\\" \\\\c\"");
  EXPECT_EQ(base::quoted_json("größe ✓ 😀"), "\"größe ✓ 😀\"");
  EXPECT_EQ(base::quoted_json(std::string("\n\0\x7f", 3)), "\"\\u000a\\u0000\\u007f\"");
  EXPECT_EQ(base::quoted_json("\xff\xc3"), "\"\\u00ff\\u00c3\"");
}

}  // namespace
}  // namespace kolo::base
