// SPDX-License-Identifier: Apache-2.0
//
// The words that two leaders exchange before the first frame. The one that listens speaks first:
//
//   parent -> child   Greeting   magic, version, its node, the nonce that it announced
//   child -> parent   Hello      magic, version, its node, the job's key
//   parent -> child   kWelcome   one byte; frames follow in both directions
//
// So the key is shown only to a process that knows the announced nonce, and a process that merely answers at an
// announced address is recognised before anything is told to it. This keeps strangers and other jobs out; it hides
// nothing from somebody who reads the network.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "control/tcp/announcement.hpp"

namespace kolo::tcp {

inline constexpr std::uint8_t kWelcome = 0x4b;
inline constexpr std::size_t kMaxKeyBytes = 64;

using GreetingBytes = std::array<std::uint8_t, 32>;
using HelloBytes = std::array<std::uint8_t, 20 + kMaxKeyBytes>;

GreetingBytes make_greeting(int node, const Nonce& nonce);
/// Empty when it is the greeting of `node` with this nonce; else what is wrong with it ("is another process").
std::string judge_greeting(const GreetingBytes& bytes, int node, const Nonce& nonce);

/// The key has 1 to kMaxKeyBytes bytes.
HelloBytes make_hello(int node, const std::string& job_key);
/// The node that says hello; or nothing, and `wrong` says why. Takes the same time for every wrong key.
std::optional<int> judge_hello(const HelloBytes& bytes, const std::string& job_key, std::string& wrong);

}  // namespace kolo::tcp
