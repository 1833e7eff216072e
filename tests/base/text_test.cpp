// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <locale>
#include <string>

#include <gtest/gtest.h>

namespace kolo::base {
namespace {

/// "1.234,5", for streams.
class Grouped final : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

class GlobalLocale {
 public:
  GlobalLocale() : before_(std::locale::global(std::locale(std::locale::classic(), new Grouped))) {}
  ~GlobalLocale() { std::locale::global(before_); }

 private:
  const std::locale before_;
};

TEST(Text, HasNumbersAsTheyAreWhateverTheProgramsLocale) {
  const GlobalLocale foreign;
  std::ostringstream stream;
  stream << 30299 << ' ' << 0.5;
  ASSERT_EQ(stream.str(), "30.299 0,5");
  Text text;
  text << 30299 << ' ' << 0.5 << ' ' << true;
  EXPECT_EQ(text.str(), "30299 0.5 1");
}

TEST(Text, SpellsDoublesAsPrintfDoes) {
  EXPECT_EQ(spell(1800.0, 4), "1800");
  EXPECT_EQ(spell(0.7, 4), "0.7");
  EXPECT_EQ(spell(12345.0, 4), "1.234e+04");
  EXPECT_EQ(spell(1e-9, 3), "1e-09");
  EXPECT_EQ(spell(-0.0, 4), "-0");
}

TEST(Text, SpellsDoublesSoThatTheyReadBack) {
  const double third = 1.0 / 3.0;
  EXPECT_EQ(spell(0.1), "0.1");
  EXPECT_EQ(spell(100000.0), "100000");
  EXPECT_EQ(spell(third), "0.33333333333333331");
  EXPECT_EQ(spell(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(spell(std::nan("")), "nan");
  for (const double value : {third, 1e300, 5e-324, -123456.789}) EXPECT_EQ(parse_number<double>(spell(value)), value);
}

TEST(Text, ReadsWholeNumbersAlone) {
  EXPECT_EQ(parse_number<int>("30299"), 30299);
  EXPECT_EQ(parse_number<int>("-1"), -1);
  EXPECT_EQ(parse_number<std::uint16_t>("65535"), 65535);
  for (const char* text : {"", " 1", "1 ", "+1", "1.000", "1,5", "0x1", "99999999999", "x"})
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
  EXPECT_EQ(parse_number<std::uint16_t>("-1"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1,5"), std::nullopt);
}

TEST(Text, WordsAreWhatIsBetweenSpaces) {
  EXPECT_EQ(words(""), std::vector<std::string>{});
  EXPECT_EQ(words("  "), std::vector<std::string>{});
  EXPECT_EQ(words(" a  bc d"), (std::vector<std::string>{"a", "bc", "d"}));
}

}  // namespace
}  // namespace kolo::base
