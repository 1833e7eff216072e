// SPDX-License-Identifier: Apache-2.0
#include "launch/entry.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string_view>

#include "base/proof.hpp"
#include "base/text.hpp"

namespace kolo::launch {
namespace {

constexpr const char* kEntryFormat = "kolo-1";

std::string body_of(const StoreEntry& entry) {
  std::string text = entry.word;
  for (const auto& [address, port] : entry.addresses) text += " " + address + "|" + std::to_string(port);
  return text;
}

}  // namespace

bool is_address(const std::string& host) {
  if (host.find('\0') != std::string::npos) return false;  // inet_pton ends there
  in_addr v4{};
  in6_addr v6{};
  return ::inet_pton(AF_INET, host.c_str(), &v4) == 1 || ::inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

std::string proof_of(const StoreEntry& entry, const JobKey& key) {
  return base::hex_of(base::prove(key.secret, "entry " + key.job + "\n" + body_of(entry)));
}

std::string encode(const StoreEntry& entry, const JobKey& key) {
  return std::string(kEntryFormat) + " " + proof_of(entry, key) + " " + body_of(entry);
}

std::optional<StoreEntry> decode_entry(const std::string& text, std::string& proof) {
  const std::vector<std::string> words = base::words(text);
  StoreEntry entry;
  base::Word word{};
  if (words.size() < 3 || words[0] != kEntryFormat || !base::word_from_hex(words[2], word)) return {};
  proof = words[1];
  entry.word = words[2];
  for (std::size_t i = 3; i < words.size(); ++i) {
    const std::string& one = words[i];
    const std::size_t bar = one.find('|');
    if (bar == std::string::npos) return {};
    const auto port = base::parse_number<std::uint16_t>(std::string_view(one).substr(bar + 1));
    if (!port || !is_address(one.substr(0, bar))) return {};
    entry.addresses.emplace_back(one.substr(0, bar), *port);
  }
  return entry;
}

}  // namespace kolo::launch
