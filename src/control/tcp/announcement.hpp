// SPDX-License-Identifier: Apache-2.0
//
// What a leader tells all others through the bootstrap: where it listens, and a word that only it can greet with.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "control/tcp/asio.hpp"

namespace kolo::tcp {

/// Random, one a listener. Tells a process that merely answers at an announced address (another host's loopback has
/// the same address as ours) from the one that announced it.
using Nonce = std::array<std::uint8_t, 16>;

struct Announcement {
  Nonce nonce{};
  std::vector<tcp::endpoint> endpoints;
};

Nonce make_nonce();

/// As text: "1 <nonce in hex> <address>|<port> ...".
std::string encode(const Announcement& announcement);
/// Throws Error(transport) on anything that `encode` does not make.
Announcement decode_announcement(const std::string& text);

}  // namespace kolo::tcp
