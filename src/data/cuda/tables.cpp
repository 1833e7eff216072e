// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/tables.hpp"

#include <algorithm>
#include <new>

#include "base/check.hpp"
#include "data/cuda/device.hpp"

namespace kolo::cuda {

void Table::fill(const std::vector<Segment>& segments, cudaStream_t stream) {
  segments_ = segments;
  count_ = 0;
  host_touches(host_.data(), host_.size(), true, "making a table");
  for (const Segment& segment : segments) {
    for (std::uint64_t done = 0; done < segment.bytes; done += kChunkBytes) {
      KOLO_CHECK(count_ < capacity_) << "a step of more than " << capacity_ << " chunks";
      const bool packed = segment.offset != kNoOffset;
      auto* chunk = new (host_.data() + count_ * sizeof(Chunk)) Chunk;
      chunk->input = segment.input == nullptr ? nullptr : segment.input + done;
      chunk->output = segment.output == nullptr ? nullptr : segment.output + done;
      chunk->offset = packed ? segment.offset + done / segment.narrowing() : kNoOffset;
      chunk->neutral = segment.neutral;
      chunk->prescale = segment.scaling.prescale;
      chunk->divisor = segment.scaling.divisor;
      chunk->postscale = segment.scaling.postscale;
      chunk->bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(segment.bytes - done, kChunkBytes));
      chunk->bytes_in_slot = static_cast<std::uint32_t>(chunk->bytes / segment.narrowing());
      chunk->element = segment.element;
      chunk->in_slot = segment.in_slot;
      chunk->ends = done + chunk->bytes == segment.bytes;
      chunk->takes_part_in_pack = segment.packs;
      chunk->takes_part_in_unpack = segment.unpacks;
      ++count_;
    }
  }
  copy_async(device_.data(), host_.data(), count_ * sizeof(Chunk), stream);
}

Tables::Tables(std::size_t tables, std::size_t chunks) {
  tables_.reserve(tables);
  for (std::size_t i = 0; i < tables; ++i) tables_.push_back(std::make_unique<Table>(chunks));
}

Table* Tables::find(const std::vector<Segment>& segments, cudaStream_t stream) {
  const auto same = [&](const std::unique_ptr<Table>& table) { return table->segments_ == segments; };
  auto found = std::find_if(tables_.begin(), tables_.end(), same);
  if (found == tables_.end()) {
    // The one that was not used for longest; its memory is the device's until then.
    found = std::min_element(tables_.begin(), tables_.end(),
                             [](const auto& a, const auto& b) { return a->number_ < b->number_; });
    if (!(*found)->last_use_.reached()) return nullptr;
    (*found)->fill(segments, stream);
    ++made_;
  }
  (*found)->number_ = ++uses_;
  return found->get();
}

}  // namespace kolo::cuda
