// SPDX-License-Identifier: Apache-2.0
//
// A ring of the board, which another process writes: messages, or an Error.
#include "fuzz.hpp"

#include <cstring>
#include <memory>

#include <kolo/error.hpp>

#include "control/byte_ring.hpp"

namespace kolo::fuzz {
namespace {

constexpr std::size_t kRingBytes = 256;
constexpr int kMostMessages = 64;

}  // namespace

/// Two bytes say where the reader is, two how much has been written; the rest is the ring.
void run(std::string_view bytes) {
  Input input(bytes);
  std::uint64_t position = input.number(2) * 4;
  const std::uint64_t end = position + input.number(2) * 4;
  const auto memory = std::make_unique<std::byte[]>(kRingBytes);  // exactly so long, for the address sanitizer
  const std::string_view contents = input.text(kRingBytes);
  std::memcpy(memory.get(), contents.data(), contents.size());
  const control::ByteRing ring(memory.get(), kRingBytes);
  control::PartReader reader;
  control::Bytes message;
  try {
    for (int i = 0; i < kMostMessages && reader.read(ring, position, end, message); ++i) {
      KOLO_CHECK(message.size() <= kRingBytes) << "a message of " << message.size() << " bytes";
    }
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::transport);
  }
  KOLO_CHECK(position <= end) << "the reader has passed the writer";
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const std::uint64_t begin : {0, 200}) {
    alignas(64) std::byte memory[kRingBytes] = {};
    const control::ByteRing ring(memory, kRingBytes);
    control::PartWriter writer;
    std::uint64_t position = begin;
    control::Bytes message;
    while (writer.write(ring, position, begin, {message.data(), message.size()})) {
      message.resize(message.size() * 2 + 1, std::byte{0x5A});
    }
    Output out;
    out.number(begin / 4, 2).number((position - begin) / 4, 2);
    out.text({reinterpret_cast<const char*>(memory), kRingBytes});
    all.push_back(out.bytes());
  }
  return all;
}

}  // namespace kolo::fuzz
