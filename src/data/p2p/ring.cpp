// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/ring.hpp"

#include <cstring>
#include <string>

#include <kolo/error.hpp>

namespace kolo::p2p {

Record read_record(const Ring& ring, std::uint64_t position, int source) {
  const std::uint64_t word = ring.word(position).load(std::memory_order_seq_cst);
  Record record;
  if (word == 0) return record;
  const std::size_t remaining = Ring::kBytes - position % Ring::kBytes;
  record.is_filler = (word & kFiller) != 0;
  record.bytes = static_cast<std::uint32_t>(word);
  record.data_bytes = (word & ~kFiller) >> kLengthBits;
  if (record.is_filler) {
    if (record.bytes == remaining && record.data_bytes == 0) return record;
    blame(source, "left out ", record.bytes, " bytes of a ring of which ", remaining, " are left");
  }
  if (record.data_bytes > Ring::kPartBytes || record.bytes != record_bytes(record.data_bytes) ||
      record.bytes > remaining)
    blame(source, "wrote a record of ", record.bytes, " bytes for ", record.data_bytes, " bytes of data");
  const std::byte* const begin = ring.data + position % Ring::kBytes;
  std::memcpy(&record.frame, begin + sizeof word, sizeof record.frame);
  record.data = begin + data_offset(record.data_bytes);
  return record;
}

}  // namespace kolo::p2p
