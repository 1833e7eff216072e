// SPDX-License-Identifier: Apache-2.0
//
// The words between a rank that listens and one that connects to it, before the first frame: of rank 0 as ranks meet
// (launch/exchange.hpp), and of parents in the control tree (control/tcp/rendezvous.hpp). All have a fixed length, so
// that no stranger can make a listener keep more than that of it.
//
//   listener -> rank r   Greeting   magic, version, a word S that is random for this connection
//   rank r -> listener   Hello      magic, version, r, the size that r was told, a number, a random word C,
//                                   HMAC(key, "rank" S and all of this)
//   listener -> rank r   Welcome    HMAC(key, "root" S C)
//
// Nobody shows the key, nothing of an earlier connection can be repeated, and a process that merely listens at the
// right address is not believed: it cannot make the last word. One that listens there and passes all of it on to the
// right one can; where that matters, what follows is proven, too, by the session's key HMAC(key, "frames" S C)
// (launch/connection.hpp). Whoever does not know the key gets a Greeting and an end of file.
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

/// What a rank says of itself.
struct Hello {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t number = 0;  ///< whose meaning the two sides agree on
  Word word{};              ///< random, of this connection
};

[[nodiscard]] GreetingBytes make_greeting(const Word& word);
/// Empty, and `word` is set; else what is wrong: "does not speak Kolo's protocol".
[[nodiscard]] std::string judge_greeting(const GreetingBytes& bytes, Word& word);

[[nodiscard]] HelloBytes make_hello(std::string_view key, const Word& of_greeting, const Hello& hello);
/// Nothing, and `wrong` says why, when the process does not know the key.
[[nodiscard]] std::optional<Hello> judge_hello(std::string_view key, const Word& of_greeting, const HelloBytes& bytes,
                                               std::string& wrong);

[[nodiscard]] WelcomeBytes make_welcome(std::string_view key, const Word& of_greeting, const Word& of_hello);

/// What only the two sides of this connection can make.
[[nodiscard]] Word session_key(std::string_view key, const Word& of_greeting, const Word& of_hello);

}  // namespace kolo::base
