// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

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

}  // namespace kolo::base
