// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/gather.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "data/cpu/open_job.hpp"
#include "data/kernels/reduce.hpp"

namespace kolo::data::cpu {

// ---------------------------------------------------------------- the plan

void GatherPlan::make(const data::Run& run, data::Job& job, int rank, int size, std::size_t slot_bytes,
                      std::size_t past_cache_bytes) {
  run_ = &run;
  job_ = &job;
  slot_bytes_ = static_cast<std::int64_t>(slot_bytes);
  output_ = nullptr;
  past_cache_bytes_ = static_cast<std::int64_t>(past_cache_bytes);
  begin_.clear();
  bytes_.assign(static_cast<std::size_t>(size), 0);
  bytes_[static_cast<std::size_t>(rank)] = run.elements * static_cast<std::int64_t>(size_of(run.dtype));
}

GatherPlan::Part GatherPlan::head_part(int rank) const noexcept {
  const auto room = slot_bytes_ - static_cast<std::int64_t>(kHeader);
  return {0, std::min(bytes_[static_cast<std::size_t>(rank)], room)};
}

GatherPlan::Part GatherPlan::rest_part(int rank, std::int64_t chunk) const noexcept {
  const std::int64_t begin = head_part(rank).bytes + chunk * slot_bytes_;
  return {begin, std::clamp<std::int64_t>(bytes_[static_cast<std::size_t>(rank)] - begin, 0, slot_bytes_)};
}

GatherPlan::Part GatherPlan::part(const Chunk& chunk, int rank) const noexcept {
  return chunk.stream->gathers_head ? head_part(rank) : rest_part(rank, chunk.begin);
}

std::byte* GatherPlan::output_of(int rank) const noexcept {
  return output_ == nullptr ? nullptr : output_ + begin_[static_cast<std::size_t>(rank)];
}

void GatherPlan::learn(std::vector<std::int64_t> bytes) {
  bytes_ = std::move(bytes);
  std::int64_t sum = 0;
  for (const std::int64_t part : bytes_) begin_.push_back(std::exchange(sum, sum + part));
  past_cache_ = sum >= past_cache_bytes_;
  output_ = allocate_output(*run_, bytes_, job_->status);
}

std::int64_t GatherPlan::rest_chunks() const noexcept {
  const std::int64_t longest = *std::max_element(bytes_.begin(), bytes_.end());
  const std::int64_t head = slot_bytes_ - static_cast<std::int64_t>(kHeader);
  return longest <= head ? 0 : (longest - head + slot_bytes_ - 1) / slot_bytes_;
}

// ---------------------------------------------------------------- the stages

void Gather::fill(const Chunk& chunk, std::uint64_t number, PieceCursor& cursor) {
  const GatherPlan& plan = *chunk.stream->gather;
  std::byte* to = intra_.slot(intra_.local_rank(), number);
  if (chunk.stream->gathers_head) {
    cursor = PieceCursor(*chunk.stream);
    const std::int64_t bytes = plan.bytes_of(intra_.local_rank());
    std::memcpy(to, &bytes, sizeof bytes);
    to += GatherPlan::kHeader;
  }
  const auto width = static_cast<std::int64_t>(chunk.stream->element_bytes);
  const GatherPlan::Part part = plan.part(chunk, intra_.local_rank());
  cursor.advance(part.bytes / width, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    kernels::copy(to, piece.input + first * width, elements * width);
    to += elements * width;
  });
}

void Gather::take(const Chunk& chunk, std::uint64_t number, PieceCursor& cursor) {
  GatherPlan& plan = *chunk.stream->gather;
  if (chunk.stream->gathers_head) {
    cursor = PieceCursor(*chunk.stream);
    learn(plan, number);
  }
  take_own(chunk, cursor);
  const auto copy = plan.past_cache() ? &kernels::copy_past_cache : &kernels::copy;
  // Everybody begins with the next rank's slot, so that nobody's is read by all at once.
  for (int distance = 1; distance < intra_.local_size(); ++distance) {
    const int peer = (intra_.local_rank() + distance) % intra_.local_size();
    const GatherPlan::Part part = plan.part(chunk, peer);
    std::byte* output = plan.output_of(peer);
    if (output == nullptr || part.bytes == 0) continue;
    const std::size_t header = chunk.stream->gathers_head ? GatherPlan::kHeader : 0;
    copy(output + part.begin, intra_.slot(peer, number) + header, part.bytes);
  }
}

void Gather::take_own(const Chunk& chunk, PieceCursor& cursor) {
  const auto width = static_cast<std::int64_t>(chunk.stream->element_bytes);
  const GatherPlan::Part part = chunk.stream->gather->part(chunk, intra_.local_rank());
  std::byte* output = chunk.stream->gather->output_of(intra_.local_rank());
  const auto copy = chunk.stream->gather->past_cache() ? &kernels::copy_past_cache : &kernels::copy;
  cursor.advance(part.bytes / width, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    if (output == nullptr) return;
    copy(std::exchange(output, output + elements * width) + part.begin, piece.input + first * width, elements * width);
  });
}

void Gather::learn(GatherPlan& plan, std::uint64_t number) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(intra_.local_size()));
  for (int rank = 0; rank < intra_.local_size(); ++rank)
    std::memcpy(&bytes[static_cast<std::size_t>(rank)], intra_.slot(rank, number), sizeof(std::int64_t));
  plan.learn(std::move(bytes));
}

}  // namespace kolo::data::cpu
