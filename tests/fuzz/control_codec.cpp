// SPDX-License-Identifier: Apache-2.0
//
// Control messages: bytes are a message, which says the same when it is encoded again, or an Error.
#include "fuzz.hpp"

#include <kolo/error.hpp>

#include "control/codec.hpp"
#include "control/ranges.hpp"
#include "tests/support/control_samples.hpp"

namespace kolo::fuzz {
namespace {

constexpr std::int32_t kWorld = 8;
constexpr std::uint32_t kIds = 64;

void check(const control::UpMessage& message) { control::check_ranges(message, kWorld); }
void check(const control::LogEntry& entry) { control::check_ranges(entry, kWorld, kIds); }

template <class Message>
void decode_by(Message (*decode)(control::ByteView), control::ByteView bytes) {
  try {
    const Message message = decode(bytes);
    const control::Bytes again = control::encoded(message);
    KOLO_CHECK(again.size() <= bytes.size()) << "a message grows when it is encoded again";
    KOLO_CHECK(control::encoded(decode({again.data(), again.size()})) == again) << "a message changes on its way";
    check(message);
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::transport);
  }
}

template <class Message>
void add(std::vector<std::string>& all, char way, const std::vector<Message>& messages) {
  for (const Message& message : messages) {
    const control::Bytes bytes = control::encoded(message);
    all.push_back(way + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
}

}  // namespace

/// The first byte says which way the message goes.
void run(std::string_view input) {
  if (input.empty()) return;
  const std::string_view rest = input.substr(1);
  const control::ByteView bytes(reinterpret_cast<const std::byte*>(rest.data()), rest.size());
  if (input.front() % 2 == 0) {
    decode_by(control::decode_up, bytes);
  } else {
    decode_by(control::decode_log, bytes);
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  add(all, '\0', control::sample_up());
  add(all, '\1', control::sample_log());
  return all;
}

}  // namespace kolo::fuzz
