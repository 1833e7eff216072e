// SPDX-License-Identifier: Apache-2.0
#include "control/tcp/addresses.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <sys/random.h>

#include <kolo/error.hpp>

#include "base/system_error.hpp"
#include "base/text.hpp"
#include "control/tcp/interfaces.hpp"

namespace kolo::tcp {

namespace {

constexpr const char* kFormat = "1";

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::transport, "a rank announced an address of its control channel that cannot be read: '" + text +
                                        "'; do all ranks run the same version of Kolo?");
}

template <class T>
bool parse(const std::string& digits, int base, T& value) {
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value, base);
  return result.ec == std::errc() && result.ptr == end;
}

bool parse_nonce(const std::string& text, Nonce& nonce) {
  if (text.size() != 2 * nonce.size()) return false;
  for (std::size_t i = 0; i < nonce.size(); ++i) {
    if (!parse(text.substr(2 * i, 2), 16, nonce[i])) return false;
  }
  return true;
}

}  // namespace

Nonce make_nonce() {
  Nonce nonce;
  // Up to 256 bytes are never cut short, once the system's pool is ready.
  const ssize_t got = ::getrandom(nonce.data(), nonce.size(), 0);
  if (got != static_cast<ssize_t>(nonce.size())) base::throw_errno("getrandom", errno);
  return nonce;
}

std::string encode(const Addresses& addresses) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = std::string(kFormat) + " ";
  for (const std::uint8_t byte : addresses.nonce) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  for (const tcp::endpoint& endpoint : addresses.endpoints) {
    text += " " + endpoint.address().to_string() + "|" + std::to_string(endpoint.port());
  }
  return text;
}

Addresses decode_addresses(const std::string& text) {
  const std::vector<std::string> words = base::words(text);
  Addresses result;
  if (words.size() < 2 || words[0] != kFormat || !parse_nonce(words[1], result.nonce)) refuse(text);
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::size_t bar = word.find('|');
    std::uint16_t port = 0;
    if (bar == std::string::npos || !parse(word.substr(bar + 1), 10, port)) refuse(text);
    const std::optional<asio::ip::address> address = parse_address(word.substr(0, bar));
    if (!address) refuse(text);
    result.endpoints.emplace_back(*address, port);
  }
  if (result.endpoints.empty()) refuse(text);
  return result;
}

GreetingBytes make_greeting(const base::Word& word, const Nonce& nonce) {
  const base::GreetingBytes greeting = base::make_greeting(word);
  GreetingBytes bytes{};
  std::copy(nonce.begin(), nonce.end(), std::copy(greeting.begin(), greeting.end(), bytes.begin()));
  return bytes;
}

std::string judge_greeting(const GreetingBytes& bytes, const Nonce& nonce, base::Word& word) {
  base::GreetingBytes greeting{};
  std::copy_n(bytes.begin(), greeting.size(), greeting.begin());
  std::string wrong = base::judge_greeting(greeting, word);
  if (wrong.empty() && !std::equal(nonce.begin(), nonce.end(), bytes.begin() + greeting.size()))
    wrong = "is another process";
  return wrong;
}

}  // namespace kolo::tcp
