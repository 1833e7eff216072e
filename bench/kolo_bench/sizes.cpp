// SPDX-License-Identifier: Apache-2.0
#include "sizes.hpp"

#include <cctype>
#include <limits>
#include <stdexcept>

namespace kolo_bench {
namespace {

constexpr char kSuffixes[] = {'K', 'M', 'G', 'T'};

[[noreturn]] void refuse(const std::string& text) {
  throw std::invalid_argument("'" + text + "' is not a size; give bytes, or a number and K, M, G or T: 4, 48K, 3M");
}

}  // namespace

std::int64_t parse_size(const std::string& text) {
  std::size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  if (digits == 0 || digits > 18 || text.size() - digits > 1) refuse(text);
  std::int64_t value = std::stoll(text.substr(0, digits));
  if (digits == text.size()) return value;
  const char suffix = static_cast<char>(std::toupper(static_cast<unsigned char>(text[digits])));
  for (const char candidate : kSuffixes) {
    if (value > std::numeric_limits<std::int64_t>::max() / 1024) refuse(text);
    value *= 1024;
    if (candidate == suffix) return value;
  }
  refuse(text);
}

std::string format_size(std::int64_t bytes) {
  std::string suffix;
  for (const char candidate : kSuffixes) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    suffix = candidate;
  }
  return std::to_string(bytes) + suffix;
}

}  // namespace kolo_bench
