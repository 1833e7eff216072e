// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/allgather.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "data/kernels/reduce.hpp"

namespace kolo::data::cpu {

// ---------------------------------------------------------------- on one node

void Allgather::open(const data::Run& run, data::Job& job) {
  run_ = &run;
  job_ = &job;
  width_ = static_cast<std::int64_t>(size_of(run.dtype));
  slot_bytes_ = static_cast<std::int64_t>(site_.intra.slot_bytes());
  bytes_.assign(static_cast<std::size_t>(site_.local_size()), 0);
  bytes_[static_cast<std::size_t>(site_.local_rank())] = run.elements * width_;
  begin_.clear();
  output_ = nullptr;
  next_ = kHead;
  fill_cursor_ = take_cursor_ = PieceCursor(run.pieces.data(), run.pieces.size());
}

Collective::Cut Allgather::cut(Chunk& chunk, std::uint64_t taken) {
  if (next_ == kHead) {
    head_number_ = chunk.number;
  } else {
    if (taken <= head_number_) return Cut::wait;
    if (next_ == rest_chunks_) return Cut::end;
  }
  chunk.of = this;
  chunk.begin = next_++;
  chunk.elements = 1;
  chunk.peers_read_at_take = true;
  return Cut::chunk;
}

std::int64_t Allgather::head_bytes(int rank) const noexcept {
  return std::min(bytes_[static_cast<std::size_t>(rank)], slot_bytes_ - kHeader);
}

Allgather::Span Allgather::span(const Chunk& chunk, int rank) const noexcept {
  if (chunk.begin == kHead) return {0, head_bytes(rank)};
  const std::int64_t begin = head_bytes(rank) + chunk.begin * slot_bytes_;
  return {begin, std::clamp<std::int64_t>(bytes_[static_cast<std::size_t>(rank)] - begin, 0, slot_bytes_)};
}

void Allgather::fill(Chunk& chunk) {
  std::byte* to = site_.own_slot(chunk);
  if (chunk.begin == kHead) {
    std::memcpy(to, &bytes_[static_cast<std::size_t>(site_.local_rank())], sizeof(std::int64_t));
    to += kHeader;
  }
  const Span own = span(chunk, site_.local_rank());
  fill_cursor_.advance(own.bytes / width_, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    kernels::copy(to, piece.input + first * width_, elements * width_);
    to += elements * width_;
  });
}

void Allgather::take(const Chunk& chunk) {
  if (chunk.begin == kHead) learn(chunk);
  take_own(chunk);
  if (output_ == nullptr) return;
  const auto copy = past_cache_ ? &kernels::copy_past_cache : &kernels::copy;
  // Everybody begins with the next rank's slot, so that nobody's is read by all at once.
  for (int distance = 1; distance < site_.local_size(); ++distance) {
    const int peer = (site_.local_rank() + distance) % site_.local_size();
    const Span theirs = span(chunk, peer);
    if (theirs.bytes == 0) continue;
    const std::int64_t header = chunk.begin == kHead ? kHeader : 0;
    copy(output_ + begin_[static_cast<std::size_t>(peer)] + theirs.begin, site_.slot(peer, chunk) + header,
         theirs.bytes);
  }
}

void Allgather::take_own(const Chunk& chunk) {
  const Span own = span(chunk, site_.local_rank());
  std::byte* to =
      output_ == nullptr ? nullptr : output_ + begin_[static_cast<std::size_t>(site_.local_rank())] + own.begin;
  const auto copy = past_cache_ ? &kernels::copy_past_cache : &kernels::copy;
  take_cursor_.advance(own.bytes / width_, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    if (to == nullptr) return;
    std::byte* const here = std::exchange(to, to + elements * width_);
    const std::byte* const from = piece.input + first * width_;
    if (here != from) copy(here, from, elements * width_);
  });
}

/// Learns all lengths, and asks for the output.
void Allgather::learn(const Chunk& head) {
  std::int64_t sum = 0;
  for (int rank = 0; rank < site_.local_size(); ++rank) {
    std::int64_t& bytes = bytes_[static_cast<std::size_t>(rank)];
    std::memcpy(&bytes, site_.slot(rank, head), sizeof bytes);
    begin_.push_back(std::exchange(sum, sum + bytes));
  }
  const std::int64_t longest = *std::max_element(bytes_.begin(), bytes_.end());
  const std::int64_t rest = std::max<std::int64_t>(0, longest - (slot_bytes_ - kHeader));
  rest_chunks_ = (rest + slot_bytes_ - 1) / slot_bytes_;
  past_cache_ = static_cast<std::size_t>(sum) >= site_.tuning.past_cache_bytes;
  output_ = allocate_output(*run_, bytes_, job_->status);
}

// ---------------------------------------------------------------- between nodes

void AllgatherBetweenNodes::open(const data::Run& run, data::Job& job) {
  run_ = &run;
  job_ = &job;
  lengths_.open()[static_cast<std::size_t>(site_.topology.rank)] =
      run.elements * static_cast<std::int64_t>(size_of(run.dtype));
  lengths_known_ = false;
}

Collective::Cut AllgatherBetweenNodes::cut(Chunk& chunk, std::uint64_t taken) {
  if (!lengths_known_) {
    const Cut cut = lengths_.cut(chunk, taken);
    if (cut != Cut::end) return cut;
    open_broadcasts();
  }
  for (; broadcasting_ < static_cast<std::size_t>(site_.topology.size); ++broadcasting_)
    if (broadcasts_[broadcasting_].cut(chunk, taken) == Cut::chunk) return Cut::chunk;
  return Cut::end;
}

void AllgatherBetweenNodes::open_broadcasts() {
  lengths_known_ = true;
  const auto width = static_cast<std::int64_t>(size_of(run_->dtype));
  std::byte* output = allocate_output(*run_, lengths_.all(), job_->status);
  const auto place = [&](const std::byte* input, std::int64_t elements) {
    pieces_.push_back({input, output, elements});
    if (output != nullptr) output += elements * width;
  };
  const int size = site_.topology.size;
  pieces_.clear();
  pieces_.reserve(run_->pieces.size() + static_cast<std::size_t>(size));
  while (broadcasts_.size() < static_cast<std::size_t>(size)) broadcasts_.emplace_back(site_);
  for (int rank = 0; rank < size; ++rank) {
    const std::size_t first = pieces_.size();
    const std::int64_t elements = lengths_.all()[static_cast<std::size_t>(rank)] / width;
    if (rank == site_.topology.rank) {
      for (const data::Piece& piece : run_->pieces) place(piece.input, piece.elements);
    } else {
      place(nullptr, elements);
    }
    broadcasts_[static_cast<std::size_t>(rank)].open(rank, pieces_.data() + first, pieces_.size() - first, elements,
                                                     size_of(run_->dtype));
  }
  broadcasting_ = 0;
}

}  // namespace kolo::data::cpu
