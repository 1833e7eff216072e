// SPDX-License-Identifier: Apache-2.0
//
// Where a leader listens, as all others learn it through the bootstrap, and how two leaders then know each other.
//
// The handshake is that of base/handshake.hpp. The parent is the listener, and the number in a hello counts the child's
// hellos. A child that lost a connection says hello again on another; the parent keeps the one with the highest number,
// whichever comes first. The greeting also has the parent's nonce: a child sends nothing to another process that
// answers at the parent's address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/handshake.hpp"
#include "control/tcp/asio.hpp"

namespace kolo::tcp {

/// A random word of each listener. It distinguishes the process that listens at an address from another one that
/// answers there (another host's loopback has the same address as ours).
using Nonce = std::array<std::uint8_t, 16>;

struct Addresses {
  Nonce nonce{};
  std::vector<tcp::endpoint> endpoints;
};

Nonce make_nonce();

/// As text: "1 <nonce in hex> <address>|<port> ...".
std::string encode(const Addresses& addresses);
/// Throws Error(transport) for text that `encode` does not make.
Addresses decode_addresses(const std::string& text);

using GreetingBytes = std::array<std::uint8_t, sizeof(base::GreetingBytes) + sizeof(Nonce)>;

[[nodiscard]] GreetingBytes make_greeting(const base::Word& word, const Nonce& nonce);
/// Empty, and `word` is set, when it is a greeting with this nonce; else what is wrong with it ("is another process").
[[nodiscard]] std::string judge_greeting(const GreetingBytes& bytes, const Nonce& nonce, base::Word& word);

}  // namespace kolo::tcp
