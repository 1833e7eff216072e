// SPDX-License-Identifier: Apache-2.0
//
// A leader's announcement to all others, through the bootstrap: where it listens, and a nonce that only it knows
// before.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "control/tcp/asio.hpp"

namespace kolo::tcp {

/// A random word of each listener. It distinguishes the process that announced an address from another one that answers
/// there (another host's loopback has the same address as ours).
using Nonce = std::array<std::uint8_t, 16>;

struct Announcement {
  Nonce nonce{};
  std::vector<tcp::endpoint> endpoints;
};

Nonce make_nonce();

/// As text: "1 <nonce in hex> <address>|<port> ...".
std::string encode(const Announcement& announcement);
/// Throws Error(transport) for text that `encode` does not make.
Announcement decode_announcement(const std::string& text);

}  // namespace kolo::tcp
