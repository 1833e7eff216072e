// SPDX-License-Identifier: Apache-2.0
#include "base/proof.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/sha256.hpp"
#include "base/system_error.hpp"

namespace kolo::base {

Word prove(std::string_view key, std::string_view text) noexcept {
  // RFC 2104: H(K xor opad, H(K xor ipad, text)).
  std::array<char, Sha256::kBlockBytes> inner{};
  if (key.size() > inner.size()) {
    Sha256 hash;
    hash.add(key);
    const Sha256::Digest digest = hash.digest();
    std::copy(digest.begin(), digest.end(), inner.begin());
  } else {
    std::copy(key.begin(), key.end(), inner.begin());
  }
  std::array<char, Sha256::kBlockBytes> outer = inner;
  for (char& byte : inner) byte ^= 0x36;
  for (char& byte : outer) byte ^= 0x5c;

  Sha256 inner_hash;
  inner_hash.add({inner.data(), inner.size()});
  inner_hash.add(text);
  Sha256 outer_hash;
  outer_hash.add({outer.data(), outer.size()});
  outer_hash.add(bytes_of(inner_hash.digest()));
  return outer_hash.digest();
}

bool equal_words(const Word& a, const Word& b) noexcept {
  // Every byte is looked at. Volatile: a compiler that sees that the rest cannot matter may not leave it out.
  volatile std::uint8_t difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference = static_cast<std::uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

Word random_word() {
  Word word{};
  // Up to 256 bytes are never cut short once the system's pool is ready.
  const ssize_t got = ::getrandom(word.data(), word.size(), 0);
  if (got != static_cast<ssize_t>(word.size())) throw_errno("getrandom", errno);
  return word;
}

std::string_view bytes_of(const Word& word) noexcept {
  return {reinterpret_cast<const char*>(word.data()), word.size()};
}

std::string hex_of(const Word& word) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : word) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool word_from_hex(std::string_view text, Word& word) noexcept {
  if (text.size() != 2 * word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char* begin = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, word[i], 16);
    if (error != std::errc() || end != begin + 2) return false;
  }
  return true;
}

}  // namespace kolo::base
