// SPDX-License-Identifier: Apache-2.0
//
// How two leaders meet: the handshake of base/handshake.hpp, in which the parent is the listener, and the number in a
// hello counts the child's hellos. A child that lost a connection says hello again on another; the parent keeps the one
// with the highest number, whichever comes first.
//
// The greeting also has the parent's announced nonce: a child sends nothing to another process that answers at an
// announced address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/handshake.hpp"
#include "control/tcp/announcement.hpp"

namespace kolo::tcp {

using GreetingBytes = std::array<std::uint8_t, sizeof(base::GreetingBytes) + sizeof(Nonce)>;

[[nodiscard]] GreetingBytes make_greeting(const base::Word& word, const Nonce& nonce);
/// Empty, and `word` is set, when it is a greeting with this nonce; else what is wrong with it ("is another process").
[[nodiscard]] std::string judge_greeting(const GreetingBytes& bytes, const Nonce& nonce, base::Word& word);

}  // namespace kolo::tcp
