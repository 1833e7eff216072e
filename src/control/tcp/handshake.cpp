// SPDX-License-Identifier: Apache-2.0
#include "control/tcp/handshake.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace kolo::tcp {
namespace {

constexpr std::array<std::uint8_t, 8> kMagic = {'K', 'O', 'L', 'O', 'T', 'R', 'E', 'E'};
constexpr std::uint32_t kVersion = 1;

constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kNodeAt = 12;
constexpr std::size_t kNonceAt = 16;      // in a greeting
constexpr std::size_t kKeyLengthAt = 16;  // in a hello
constexpr std::size_t kKeyAt = 20;

void put(std::uint8_t* at, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint32_t get(const std::uint8_t* at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= std::uint32_t{at[i]} << (8 * i);
  return value;
}

/// Looks at every byte whatever it has seen: how long it takes tells nothing about where they differ.
bool equal_in_constant_time(const std::uint8_t* a, const std::uint8_t* b, std::size_t size) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < size; ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

void put_head(std::uint8_t* bytes, int node) {
  std::copy(kMagic.begin(), kMagic.end(), bytes);
  put(bytes + kVersionAt, kVersion);
  put(bytes + kNodeAt, static_cast<std::uint32_t>(node));
}

std::string judge_head(const std::uint8_t* bytes) {
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes)) return "does not speak Kolo's protocol";
  const std::uint32_t version = get(bytes + kVersionAt);
  if (version != kVersion) {
    return "speaks version " + std::to_string(version) + " of the protocol, not " + std::to_string(kVersion);
  }
  return {};
}

}  // namespace

GreetingBytes make_greeting(int node, const Nonce& nonce) {
  GreetingBytes bytes{};
  put_head(bytes.data(), node);
  std::copy(nonce.begin(), nonce.end(), bytes.data() + kNonceAt);
  return bytes;
}

std::string judge_greeting(const GreetingBytes& bytes, int node, const Nonce& nonce) {
  std::string wrong = judge_head(bytes.data());
  if (!wrong.empty()) return wrong;
  if (get(bytes.data() + kNodeAt) != static_cast<std::uint32_t>(node) ||
      !equal_in_constant_time(bytes.data() + kNonceAt, nonce.data(), nonce.size())) {
    return "is another process";
  }
  return {};
}

HelloBytes make_hello(int node, const std::string& job_key) {
  KOLO_CHECK(!job_key.empty() && job_key.size() <= kMaxKeyBytes) << "a job key of " << job_key.size() << " bytes";
  HelloBytes bytes{};
  put_head(bytes.data(), node);
  put(bytes.data() + kKeyLengthAt, static_cast<std::uint32_t>(job_key.size()));
  std::memcpy(bytes.data() + kKeyAt, job_key.data(), job_key.size());
  return bytes;
}

std::optional<int> judge_hello(const HelloBytes& bytes, const std::string& job_key, std::string& wrong) {
  wrong = judge_head(bytes.data());
  if (!wrong.empty()) return std::nullopt;
  // Compared with the hello that we would send ourselves: the key with its length and padding.
  const HelloBytes right = make_hello(0, job_key);
  if (!equal_in_constant_time(bytes.data() + kKeyLengthAt, right.data() + kKeyLengthAt, bytes.size() - kKeyLengthAt)) {
    wrong = "has another job's key";
    return std::nullopt;
  }
  return static_cast<int>(get(bytes.data() + kNodeAt));
}

}  // namespace kolo::tcp
