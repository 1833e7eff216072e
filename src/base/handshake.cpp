// SPDX-License-Identifier: Apache-2.0
#include "base/handshake.hpp"

#include <algorithm>
#include <cstring>

namespace kolo::base {
namespace {

constexpr std::array<std::uint8_t, 8> kHandshakeMagic = {'K', 'O', 'L', 'O', 'M', 'E', 'E', 'T'};
constexpr std::uint32_t kVersion = 2;

constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kGreetingWordAt = 12;
constexpr std::size_t kRankAt = 12;
constexpr std::size_t kSizeAt = 16;
constexpr std::size_t kNumberAt = 20;
constexpr std::size_t kWordAt = 28;
constexpr std::size_t kProofAt = 60;

void put(std::uint8_t* at, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint64_t get(const std::uint8_t* at, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= std::uint64_t{at[i]} << (8 * i);
  return value;
}

void put_head(std::uint8_t* bytes) {
  std::copy(kHandshakeMagic.begin(), kHandshakeMagic.end(), bytes);
  put(bytes + kVersionAt, kVersion, 4);
}

std::string judge_head(const std::uint8_t* bytes) {
  if (!std::equal(kHandshakeMagic.begin(), kHandshakeMagic.end(), bytes)) return "does not speak Kolo's protocol";
  const std::uint64_t version = get(bytes + kVersionAt, 4);
  if (version == kVersion) return {};
  return "speaks version " + std::to_string(version) + " of Kolo's protocol, not " + std::to_string(kVersion) +
         ": all ranks must run the same release";
}

Word proof_of_rank(std::string_view key, const Word& of_greeting, const HelloBytes& hello) {
  std::string text = "rank";
  text += bytes_of(of_greeting);
  text.append(reinterpret_cast<const char*>(hello.data()), kProofAt);
  return prove(key, text);
}

Word prove_both(std::string_view key, std::string text, const Word& of_greeting, const Word& of_hello) {
  text += bytes_of(of_greeting);
  text += bytes_of(of_hello);
  return prove(key, text);
}

}  // namespace

GreetingBytes make_greeting(const Word& word) {
  GreetingBytes bytes{};
  put_head(bytes.data());
  std::copy(word.begin(), word.end(), bytes.begin() + kGreetingWordAt);
  return bytes;
}

std::string judge_greeting(const GreetingBytes& bytes, Word& word) {
  std::string wrong = judge_head(bytes.data());
  if (wrong.empty()) std::copy_n(bytes.begin() + kGreetingWordAt, word.size(), word.begin());
  return wrong;
}

HelloBytes make_hello(std::string_view key, const Word& of_greeting, const Hello& hello) {
  HelloBytes bytes{};
  put_head(bytes.data());
  put(bytes.data() + kRankAt, static_cast<std::uint32_t>(hello.rank), 4);
  put(bytes.data() + kSizeAt, static_cast<std::uint32_t>(hello.size), 4);
  put(bytes.data() + kNumberAt, static_cast<std::uint64_t>(hello.number), 8);
  std::copy(hello.word.begin(), hello.word.end(), bytes.begin() + kWordAt);
  const Word proof = proof_of_rank(key, of_greeting, bytes);
  std::copy(proof.begin(), proof.end(), bytes.begin() + kProofAt);
  return bytes;
}

std::optional<Hello> judge_hello(std::string_view key, const Word& of_greeting, const HelloBytes& bytes,
                                 std::string& wrong) {
  wrong = judge_head(bytes.data());
  if (!wrong.empty()) return std::nullopt;
  Word proof{};
  std::copy_n(bytes.begin() + kProofAt, proof.size(), proof.begin());
  if (!equal_words(proof, proof_of_rank(key, of_greeting, bytes))) {
    wrong = "is of another job, or has another KOLO_JOB_KEY";
    return std::nullopt;
  }
  Hello hello;
  hello.rank = static_cast<std::int32_t>(get(bytes.data() + kRankAt, 4));
  hello.size = static_cast<std::int32_t>(get(bytes.data() + kSizeAt, 4));
  hello.number = static_cast<std::int64_t>(get(bytes.data() + kNumberAt, 8));
  std::copy_n(bytes.begin() + kWordAt, hello.word.size(), hello.word.begin());
  return hello;
}

WelcomeBytes make_welcome(std::string_view key, const Word& of_greeting, const Word& of_hello) {
  return prove_both(key, "root", of_greeting, of_hello);
}

Word session_key(std::string_view key, const Word& of_greeting, const Word& of_hello) {
  return prove_both(key, "frames", of_greeting, of_hello);
}

}  // namespace kolo::base
