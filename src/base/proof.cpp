// SPDX-License-Identifier: Apache-2.0
#include "base/proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <charconv>
#include <limits>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/system_error.hpp"

namespace kolo::base {

Word prove(std::string_view key, std::string_view text) {
  KOLO_CHECK(key.size() <= std::size_t{std::numeric_limits<int>::max()}) << "a key of " << key.size() << " bytes";
  Word proof{};
  unsigned length = 0;
  // With a null pointer HMAC would use the key of the call before.
  const char* bytes = key.empty() ? "" : key.data();
  const unsigned char* made =
      ::HMAC(::EVP_sha256(), bytes, static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
             text.size(), proof.data(), &length);
  if (made == nullptr || length != proof.size()) {
    throw Error(ErrorCode::transport, "libcrypto cannot compute HMAC-SHA-256, which proves that a rank is of this job");
  }
  return proof;
}

bool equal_words(const Word& a, const Word& b) noexcept { return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

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
