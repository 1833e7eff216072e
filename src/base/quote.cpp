// SPDX-License-Identifier: Apache-2.0
#include "base/quote.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <string_view>

namespace kolo::base {
namespace {

constexpr std::size_t kLongest = 200;
constexpr std::size_t kShown = 100;

unsigned byte_at(std::string_view text, std::size_t at) noexcept {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
}

/// The length of the UTF-8 character of several bytes that begins at `at`; 0: there is none. Overlong forms and
/// surrogates do not count, nor do the control characters U+0080 to U+009F, because terminals obey some of them.
std::size_t character_at(std::string_view text, std::size_t at) noexcept {
  const unsigned first = byte_at(text, at);
  const std::size_t length = first >= 0xf0U ? 4 : first >= 0xe0U ? 3 : 2;
  if (first < 0xc2U || first > 0xf4U) return 0;
  const unsigned second = byte_at(text, at + 1);
  if ((first == 0xc2U && second < 0xa0U) || (first == 0xe0U && second < 0xa0U) || (first == 0xedU && second > 0x9fU) ||
      (first == 0xf0U && second < 0x90U) || (first == 0xf4U && second > 0x8fU)) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, at + i) & 0xc0U) != 0x80U) return 0;
  }
  return length;
}

/// Whether a separator of lines, or a character that turns the direction of writing, is there (U+2028 to U+202E, U+2066
/// to U+2069): a person would read other text than there is.
bool misleads_at(std::string_view text, std::size_t at) noexcept {
  if (byte_at(text, at) != 0xe2U) return false;
  const unsigned second = byte_at(text, at + 1);
  const unsigned third = byte_at(text, at + 2);
  return (second == 0x80U && third >= 0xa8U && third <= 0xaeU) || (second == 0x81U && third >= 0xa6U && third <= 0xa9U);
}

std::string escape(unsigned byte) {
  constexpr std::string_view kSpecial = "\n\t\r\"\\", kLetters = "ntr\"\\";
  if (const std::size_t at = kSpecial.find(static_cast<char>(byte)); at != std::string_view::npos) {
    return {'\\', kLetters[at]};
  }
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "\\x%02x", byte);
  return text.data();
}

/// The first `end` bytes, escaped, and quotes and backslashes, too, unless they are `kept`.
std::string escape_beginning(std::string_view name, std::size_t end, std::string_view kept = {}) {
  std::string text;
  for (std::size_t at = 0; at < end;) {
    const unsigned byte = byte_at(name, at);
    const bool is_kept = kept.find(static_cast<char>(byte)) != std::string_view::npos;
    const bool is_plain = byte >= 0x20U && byte < 0x7fU && (is_kept || (byte != '"' && byte != '\\'));
    const std::size_t length = is_plain ? 1 : misleads_at(name, at) ? 0 : character_at(name, at);
    text += length > 0 ? std::string(name.substr(at, length)) : escape(byte);
    at += length > 0 ? length : 1;
  }
  return text;
}

bool is_cut(std::string_view text) noexcept { return text.size() > kLongest; }

std::string quote_whole(std::string_view text) { return '"' + escape_beginning(text, text.size()) + '"'; }

std::string quote_beginning(std::string_view text) { return '"' + escape_beginning(text, kShown) + "...\""; }

std::string bytes_of(std::string_view text) { return std::to_string(text.size()) + " bytes"; }

}  // namespace

std::string quoted(std::string_view name) {
  return is_cut(name) ? quote_beginning(name) + " (" + bytes_of(name) + ")" : quote_whole(name);
}

std::string quoted(std::string_view text, std::size_t differs_at) {
  if (!is_cut(text) || differs_at < kShown) return quoted(text);
  const std::string_view rest = text.substr(differs_at);
  return quote_beginning(text) + " (" + bytes_of(text) + "; after the first " + std::to_string(differs_at) + ": " +
         (is_cut(rest) ? quote_beginning(rest) : quote_whole(rest)) + ")";
}

std::string escaped(std::string_view text) {
  return is_cut(text) ? escape_beginning(text, kShown) + "... (" + bytes_of(text) + ")"
                      : escape_beginning(text, text.size());
}

std::string on_one_line(std::string_view text) { return escape_beginning(text, text.size(), "\"\\"); }

std::string quoted_json(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string json = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const unsigned byte = byte_at(text, at);
    const bool is_plain = byte >= 0x20U && byte < 0x7fU;
    const std::size_t length = is_plain ? 1 : character_at(text, at);
    if (byte == '"' || byte == '\\') json += '\\';
    if (length > 0) {
      json += text.substr(at, length);
    } else {
      json += {'\\', 'u', '0', '0', kDigits[byte >> 4U], kDigits[byte & 15U]};
    }
    at += length > 0 ? length : 1;
  }
  return json + '"';
}

std::string one_line(const std::string& text, std::size_t limit) {
  std::string line = on_one_line(std::string_view(text).substr(0, limit));
  if (text.size() > limit) line += "... (" + std::to_string(text.size()) + " bytes)";
  return line;
}

}  // namespace kolo::base
