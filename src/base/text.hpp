// SPDX-License-Identifier: Apache-2.0
//
// Numbers as text, whatever locale the program has set: "setlocale" changes the decimal point of printf, strtod and
// std::to_string, and "std::locale::global" makes streams group digits. Another process must be able to read the
// numbers, and a message must be the same on all ranks.
#pragma once

#include <charconv>
#include <cstdint>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace kolo::base {

/// A string to stream into.
class Text final : public std::ostringstream {
 public:
  Text() { imbue(std::locale::classic()); }
};

/// As printf's "%.<digits>g" spells it in the locale "C".
[[nodiscard]] std::string spell(double value, int digits);
/// The same with 6, 15 or 17 digits: the fewest with which it reads back as the same number.
[[nodiscard]] std::string spell(double value);

/// The parts between separators, without empty ones.
[[nodiscard]] std::vector<std::string> words(const std::string& text, char separator = ' ');

/// The number, or empty unless all of `text` is a number that fits into `Number`. Blanks and a leading '+' are not
/// allowed.
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) noexcept {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// ASCII letters alone.
[[nodiscard]] std::string in_lower_case(std::string_view text);
/// Digits, then nothing or one of K M G T, which "B" or "iB" may follow; all are powers of 1024.
[[nodiscard]] std::optional<std::int64_t> parse_bytes(std::string_view text);
/// The shortest that reads back as the same: "64K".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);

}  // namespace kolo::base
