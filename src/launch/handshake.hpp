// SPDX-License-Identifier: Apache-2.0
//
// The words between rank 0 and a process that connects to it, before the first frame (exchange.hpp). All have a fixed
// length, so that no stranger can make rank 0 keep more than that of it.
//
//   rank 0 -> rank r   Greeting   magic, version, a word S that is random for this connection
//   rank r -> rank 0   Hello      magic, version, r, the size that r was told, its process, a random word C,
//                                 HMAC(key, "rank" S and all of this)
//   rank 0 -> rank r   Welcome    HMAC(key, "root" S C)
//
// Nobody shows the key, nothing of an earlier connection can be repeated, and a process that merely listens at rank 0's
// address is not believed: it cannot make the last word. One that listens there and passes all of it on to rank 0 can;
// so what follows is proven, too, by the session's key HMAC(key, "frames" S C) (connection.hpp). Who does not know the
// key gets a Greeting and an end of file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/proof.hpp"

namespace kolo::launch {

using GreetingBytes = std::array<std::uint8_t, 44>;
using HelloBytes = std::array<std::uint8_t, 92>;
using WelcomeBytes = Word;

/// What a rank says of itself.
struct Hello {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t process = 0;  ///< its number where it runs
  Word word{};               ///< random, of this connection
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

}  // namespace kolo::launch
