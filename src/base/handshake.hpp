// SPDX-License-Identifier: Apache-2.0
//
// The handshake between a rank that listens and one that connects, before the first frame. Rank 0 uses it when ranks
// meet (launch/exchange.hpp), and parents in the control tree (control/tcp/rendezvous.hpp). All messages have a fixed
// length, so that another process cannot make a listener store more than that.
//
//   listener -> rank r   Greeting   magic, version, a word S that is random for this connection
//   rank r -> listener   Hello      magic, version, r, the size that r was told, a number, a random word C,
//                                   HMAC(key, "rank" S and all of this)
//   listener -> rank r   Welcome    HMAC(key, "root" S C)
//
// The key is never sent, messages of an earlier connection cannot be replayed, and a process that only listens at the
// right address is not accepted, because it cannot compute the Welcome. A process in the middle that passes on all
// messages is not detected here. Where that matters, each later frame is authenticated, too, by the session's key
// HMAC(key, "frames" S C) (launch/connection.hpp). A process that does not know the key gets a Greeting and an end of
// file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/proof.hpp"

namespace kolo::base {

using GreetingBytes = std::array<std::uint8_t, 44>;
using HelloBytes = std::array<std::uint8_t, 92>;
using WelcomeBytes = Word;

/// A rank's description of itself.
struct Hello {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t number = 0;  ///< its meaning depends on the user of the handshake
  Word word{};              ///< random, of this connection
};

[[nodiscard]] GreetingBytes make_greeting(const Word& word);
/// Returns an empty text and sets `word`, or returns what is wrong: "does not speak Kolo's protocol".
[[nodiscard]] std::string judge_greeting(const GreetingBytes& bytes, Word& word);

[[nodiscard]] HelloBytes make_hello(std::string_view key, const Word& of_greeting, const Hello& hello);
/// Empty, and `wrong` says why, if the process does not know the key.
[[nodiscard]] std::optional<Hello> judge_hello(std::string_view key, const Word& of_greeting, const HelloBytes& bytes,
                                               std::string& wrong);

[[nodiscard]] WelcomeBytes make_welcome(std::string_view key, const Word& of_greeting, const Word& of_hello);

/// A key that only the two sides of this connection can compute.
[[nodiscard]] Word session_key(std::string_view key, const Word& of_greeting, const Word& of_hello);

}  // namespace kolo::base
