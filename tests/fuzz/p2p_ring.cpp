// SPDX-License-Identifier: Apache-2.0
//
// A ring of messages, which another process of the node writes: records inside of it, or an Error.
#include "fuzz.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include <kolo/error.hpp>

#include "data/p2p/ring.hpp"

namespace kolo::fuzz {
namespace {

constexpr int kMostRecords = 32;
constexpr std::uint64_t kLines = p2p::Ring::kBytes / p2p::kLine;

void read(const p2p::Ring& ring, std::uint64_t position) {
  for (int records = 0; records < kMostRecords; ++records) {
    const p2p::Record record = p2p::read_record(ring, position, 1);
    if (record.bytes == 0) return;
    KOLO_CHECK(position % p2p::Ring::kBytes + record.bytes <= p2p::Ring::kBytes);
    if (!record.is_filler) {
      KOLO_CHECK(record.data_bytes <= p2p::Ring::kPartBytes);
      const std::vector<std::byte> data(record.data, record.data + record.data_bytes);
      KOLO_CHECK(data.size() == record.data_bytes);
      KOLO_CHECK(record.data + record.data_bytes <= ring.data + p2p::Ring::kBytes);
    }
    position += record.bytes;
    KOLO_CHECK(position % p2p::kLine == 0);
  }
}

}  // namespace

/// Where the reader is, counted from the end of the ring in lines; then what is written: at a place, from there, a word
/// and the bytes behind it.
void run(std::string_view bytes) {
  Input input(bytes);
  const auto ring = std::make_unique<p2p::Ring>();
  const auto position_of = [](std::uint64_t line) { return (2 * kLines - line % kLines) * p2p::kLine; };
  const std::uint64_t position = position_of(input.number(2));
  while (!input.empty()) {
    const std::uint64_t at = position_of(input.number(2));
    ring->word(at).store(input.number(8));
    const std::string_view head = input.text(input.byte() % (p2p::kLine - sizeof(std::uint64_t)));
    std::memcpy(ring->data + at % p2p::Ring::kBytes + sizeof(std::uint64_t), head.data(), head.size());
  }
  try {
    read(*ring, position);
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::transport);
  }
}

/// Records behind each other, and around the end.
std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const std::size_t bytes : {std::size_t{0}, p2p::kShortBytes, std::size_t{1000}, p2p::Ring::kPartBytes}) {
    for (const std::uint64_t first : {1, 20, 600}) {
      Output out;
      out.number(first, 2);
      std::uint64_t position = (2 * kLines - first) * p2p::kLine;
      const auto put = [&](std::uint64_t word, std::size_t length) {
        out.number(2 * kLines - position / p2p::kLine, 2).number(word, 8).number(2).text("\1\2");
        position += length;
      };
      for (int i = 0; i < 3; ++i) {
        const std::size_t record = p2p::record_bytes(bytes);
        if (const std::size_t filler = p2p::filler_before(position, record)) put(p2p::filler_word(filler), filler);
        put(p2p::record_word(bytes), record);
      }
      all.push_back(out.bytes());
    }
  }
  return all;
}

}  // namespace kolo::fuzz
