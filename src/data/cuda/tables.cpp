// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/tables.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "data/cuda/device.hpp"

namespace kolo::cuda {
namespace {

std::size_t chunks_in(const std::vector<Segment>& segments) noexcept {
  std::size_t chunks = 0;
  for (const Segment& segment : segments) chunks += (segment.bytes + kChunkBytes - 1) / kChunkBytes;
  return chunks;
}

/// Of what mostly differs between portions.
std::uint64_t key_of(const std::vector<Segment>& segments) noexcept {
  std::uint64_t key = segments.size();
  for (const Segment& segment : segments) {
    key = base::hash_hash(reinterpret_cast<std::uintptr_t>(segment.input), key);
    key = base::hash_hash(segment.bytes ^ segment.offset, key);
  }
  return key;
}

}  // namespace

/// Only who wants to make room asks for its last use, which is seldom, so that is recorded then.
bool ChunkTable::is_free() {
  if (user_ != nullptr) last_use_.record(std::exchange(user_, nullptr)->raw());
  return last_use_.reached();
}

Tables::Tables(std::size_t chunks) : chunks_(chunks), device_(chunks * sizeof(Chunk)), host_(chunks * sizeof(Chunk)) {}

ChunkTable* Tables::find(const std::vector<Segment>& segments, cudaStream_t stream) {
  const std::uint64_t key = key_of(segments);
  const auto [first, last] = by_key_.equal_range(key);
  const auto found = std::find_if(first, last, [&](const auto& known) {
    return known.second->stream_ == stream && known.second->segments_ == segments;
  });
  ChunkTable* table = found != last ? found->second : nullptr;
  if (table == nullptr) {
    const std::size_t chunks = chunks_in(segments);
    KOLO_CHECK(chunks > 0 && chunks <= chunks_)
        << "a portion of " << chunks << " chunks; there is room for " << chunks_;
    std::size_t begin = 0;
    while (!find_room(chunks, begin)) {
      if (!drop_oldest()) return nullptr;
    }
    std::unique_ptr<ChunkTable> made;
    if (dropped_.empty()) {
      made = std::make_unique<ChunkTable>();
    } else {
      made = std::move(dropped_.back());
      dropped_.pop_back();
    }
    made->begin_ = begin;
    made->key_ = key;
    fill(*made, segments, stream);
    table = made.get();
    by_key_.emplace(key, table);
    tables_.emplace(begin, std::move(made));
    ++made_;
  }
  table->number_ = ++uses_;
  return table;
}

/// The first gap that is large enough.
bool Tables::find_room(std::size_t chunks, std::size_t& begin) {
  begin = 0;
  for (const auto& [at, table] : tables_) {
    if (at - begin >= chunks) return true;
    begin = at + table->count_;
  }
  return chunks_ - begin >= chunks;
}

/// The one that was not used for longest; its memory is the device's until that use is over.
bool Tables::drop_oldest() {
  const auto oldest = std::min_element(tables_.begin(), tables_.end(), [](const auto& a, const auto& b) {
    return a.second->number_ < b.second->number_;
  });
  if (!oldest->second->is_free()) return false;
  const auto [first, last] = by_key_.equal_range(oldest->second->key_);
  by_key_.erase(std::find_if(first, last, [&](const auto& known) { return known.second == oldest->second.get(); }));
  dropped_.push_back(std::move(oldest->second));
  tables_.erase(oldest);
  return true;
}

void Tables::fill(ChunkTable& table, const std::vector<Segment>& segments, cudaStream_t stream) {
  std::byte* const host = host_.data() + table.begin_ * sizeof(Chunk);
  std::byte* const device = device_.data() + table.begin_ * sizeof(Chunk);
  table.segments_ = segments;
  table.chunks_ = reinterpret_cast<const Chunk*>(device);
  table.stream_ = stream;
  table.count_ = 0;
  const std::size_t bytes = chunks_in(segments) * sizeof(Chunk);
  host_touches(host, bytes, true, "making a table");
  for (const Segment& segment : segments) {
    for (std::uint64_t done = 0; done < segment.bytes; done += kChunkBytes) {
      const bool packed = segment.offset != kNoOffset;
      auto* chunk = new (host + table.count_ * sizeof(Chunk)) Chunk;
      chunk->input = segment.input == nullptr ? nullptr : segment.input + done;
      chunk->output = segment.output == nullptr ? nullptr : segment.output + done;
      chunk->offset = packed ? segment.offset + done / segment.narrowing() : kNoOffset;
      chunk->neutral = segment.neutral;
      chunk->prescale = segment.scaling.prescale;
      chunk->divisor = segment.scaling.divisor;
      chunk->postscale = segment.scaling.postscale;
      chunk->bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(segment.bytes - done, kChunkBytes));
      chunk->bytes_in_buffer = static_cast<std::uint32_t>(chunk->bytes / segment.narrowing());
      chunk->element = segment.element;
      chunk->in_buffer = segment.in_buffer;
      chunk->ends = done + chunk->bytes == segment.bytes;
      chunk->takes_part_in_pack = segment.packs;
      chunk->takes_part_in_unpack = segment.unpacks;
      ++table.count_;
    }
  }
  copy_async(device, host, bytes, stream);
}

}  // namespace kolo::cuda
