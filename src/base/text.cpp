// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/check.hpp"

namespace kolo::base {

std::string spell(double value, int digits) {
  std::array<char, 64> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits);
  KOLO_CHECK(error == std::errc()) << digits << " digits have no room";
  return {text.data(), end};
}

std::string spell(double value) {
  std::string text;
  for (const int digits : {6, 15, 17}) {
    text = spell(value, digits);
    const std::optional<double> read = parse_number<double>(text);
    // Compares the bits, because a NaN does not equal itself.
    if (read && std::bit_cast<std::uint64_t>(*read) == std::bit_cast<std::uint64_t>(value)) break;
  }
  return text;
}

std::vector<std::string> words(const std::string& text, char separator) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(separator, begin)) != std::string::npos;) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    all.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return all;
}

std::string in_lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  const std::string all = in_lower_case(text);
  const std::size_t digits = all.find_first_not_of("0123456789");
  const auto number = parse_number<std::int64_t>(std::string_view(all).substr(0, digits));
  if (!number) return std::nullopt;
  if (digits == std::string::npos) return number;
  const std::size_t power = std::string_view("kmgt").find(all[digits]);
  if (power == std::string_view::npos) return std::nullopt;
  const std::string_view rest = std::string_view(all).substr(digits + 1);
  if (!rest.empty() && rest != "b" && rest != "ib") return std::nullopt;
  const int shift = 10 * (static_cast<int>(power) + 1);
  if (*number > (std::numeric_limits<std::int64_t>::max() >> shift)) return std::nullopt;
  return *number << shift;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::string_view kSuffixes = "KMGT";
  std::string suffix;
  for (std::size_t i = 0; i < kSuffixes.size() && bytes != 0 && bytes % 1024 == 0; ++i) {
    bytes /= 1024;
    suffix = kSuffixes[i];
  }
  return std::to_string(bytes) + suffix;
}

}  // namespace kolo::base
