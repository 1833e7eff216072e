// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/allgather.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "data/kernels/copy.hpp"

namespace kolo::data::cpu {

namespace {

/// Where the next line begins.
std::int64_t next_line(std::int64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

std::int64_t contributed_bytes(const data::Run& run) noexcept {
  return run.elements * static_cast<std::int64_t>(size_of(run.dtype));
}

}  // namespace

// ---------------------------------------------------------------- on one node

void Allgather::open(Runs runs, data::Job& /*job*/) {
  const auto ranks = static_cast<std::size_t>(site_.local_size());
  runs_ = runs;
  slot_bytes_ = static_cast<std::int64_t>(site_.intra.slot_bytes());
  lengths_.assign(ranks * runs.size(), 0);
  contributions_.assign(ranks * runs.size(), {});
  results_.assign(runs.size(), {});
  std::int64_t* own = &lengths_[static_cast<std::size_t>(site_.local_rank()) * runs.size()];
  for (const data::Run& run : runs) *own++ = contributed_bytes(run);
  place_in_stream(site_.local_rank());
  lengths_known_ = false;
  chunks_ = chunks_of_lengths_ = chunks_for(bytes_of_lengths());
  next_ = 0;
  filling_ = 0;
  taking_.assign(ranks, 0);
  parts_.resize(ranks);
  over_ = 0;
}

std::int64_t Allgather::bytes_of_lengths() const noexcept {
  return static_cast<std::int64_t>(runs_.size() * sizeof(std::int64_t));
}

std::int64_t Allgather::chunks_for(std::int64_t bytes) const noexcept {
  if (bytes <= slot_bytes_) return bytes > 0 ? 1 : 0;  // most: what a division costs is felt
  return (bytes + slot_bytes_ - 1) / slot_bytes_;
}

/// Lays out a rank's stream, whose lengths are known. Returns where it ends.
std::int64_t Allgather::place_in_stream(int rank) {
  std::int64_t end = bytes_of_lengths();
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    Contribution& its = contribution(rank, run);
    its.bytes = lengths_[static_cast<std::size_t>(rank) * runs_.size() + run];
    its.in_stream = next_line(end);
    end = its.in_stream + its.bytes;
  }
  return end;
}

Collective::Cut Allgather::cut(Chunk& chunk, std::uint64_t /*taken*/) {
  if (next_ == chunks_) return lengths_known_ ? Cut::end : Cut::wait;
  if (next_ == 0) first_number_ = chunk.number;
  chunk.of = this;
  chunk.begin = next_++;
  chunk.elements = 1;
  chunk.peers_read_at_take = true;
  return Cut::chunk;
}

/// Calls visit(run, first byte of the contribution, bytes, where in the slot) for what of a rank's contributions lies
/// in the chunk. `run`: the first that earlier chunks do not hold wholly; moved on.
template <class Visit>
void Allgather::each_part(const Chunk& chunk, int rank, std::size_t& run, Visit&& visit) {
  const std::int64_t begin = chunk.begin * slot_bytes_;
  const std::int64_t end = begin + slot_bytes_;
  for (; run < runs_.size(); ++run) {
    const Contribution& its = contribution(rank, run);
    if (its.in_stream >= end) return;
    const std::int64_t first = std::max(its.in_stream, begin);
    const std::int64_t last = std::min(its.in_stream + its.bytes, end);
    if (first < last) visit(run, first - its.in_stream, last - first, first - begin);
    if (its.in_stream + its.bytes > end) return;
  }
}

void Allgather::fill(Chunk& chunk) {
  std::byte* slot = site_.own_slot(chunk);
  if (chunk.begin < chunks_of_lengths_) {
    const std::int64_t from = chunk.begin * slot_bytes_;
    const auto* own =
        reinterpret_cast<const std::byte*>(&lengths_[static_cast<std::size_t>(site_.local_rank()) * runs_.size()]);
    std::memcpy(slot, own + from, static_cast<std::size_t>(std::min(slot_bytes_, bytes_of_lengths() - from)));
  }
  each_part(chunk, site_.local_rank(), filling_,
            [&](std::size_t run, std::int64_t first, std::int64_t bytes, std::int64_t in_slot) {
              site_.to_peers(slot + in_slot, runs_[run].pieces.front().input + first, bytes);
            });
}

void Allgather::take(const Chunk& chunk) {
  if (chunk.begin < chunks_of_lengths_) read_lengths(chunk);
  if (!lengths_known_) return;
  // Everybody begins with the own part, and goes on with the next rank's slot, so that nobody's is read by all at once.
  for (int distance = 0; distance < site_.local_size(); ++distance)
    take_from((site_.local_rank() + distance) % site_.local_size(), chunk);
  for (; over_ < runs_.size() && results_[over_].end <= chunk.number + 1; ++over_) {
    if (!results_[over_].is_asked_for) (void)result_of(over_);  // nobody has brought anything
  }
}

void Allgather::take_from(int rank, const Chunk& chunk) {
  const bool is_own = rank == site_.local_rank();
  const std::byte* slot = site_.slot(rank, chunk);
  each_part(chunk, rank, taking_[static_cast<std::size_t>(rank)],
            [&](std::size_t run, std::int64_t first, std::int64_t bytes, std::int64_t in_slot) {
              const Result& result = result_of(run);
              if (result.output == nullptr) return;
              std::byte* to = result.output + contribution(rank, run).in_output + first;
              const std::byte* from = is_own ? runs_[run].pieces.front().input + first : slot + in_slot;
              if (to == from) return;
              const auto copy = result.past_cache ? &kernels::copy_past_cache : &kernels::copy;
              copy(to, from, bytes);
            });
}

void Allgather::read_lengths(const Chunk& chunk) {
  const std::int64_t from = chunk.begin * slot_bytes_;
  const auto bytes = static_cast<std::size_t>(std::min(slot_bytes_, bytes_of_lengths() - from));
  for (int rank = 0; rank < site_.local_size(); ++rank) {
    auto* its = reinterpret_cast<std::byte*>(&lengths_[static_cast<std::size_t>(rank) * runs_.size()]);
    if (rank != site_.local_rank()) std::memcpy(its + from, site_.slot(rank, chunk), bytes);
  }
  if (chunk.begin + 1 == chunks_of_lengths_) learn();
}

/// All lengths are there: says where everything lies, and how many chunks there are.
void Allgather::learn() {
  lengths_known_ = true;
  for (int rank = 0; rank < site_.local_size(); ++rank) {
    chunks_ = std::max(chunks_, chunks_for(place_in_stream(rank)));
  }
  std::int64_t end = bytes_of_lengths();
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < site_.local_size(); ++rank) {
      Contribution& its = contribution(rank, run);
      its.in_output = std::exchange(sum, sum + its.bytes);
      if (its.bytes > 0) end = std::max(end, its.in_stream + its.bytes);
    }
    results_[run].past_cache = static_cast<std::size_t>(sum) >= site_.tuning.copied_past_cache_bytes;
    results_[run].end = first_number_ + static_cast<std::uint64_t>(chunks_for(end));
  }
}

/// Asks for the output when the first of it comes, so that memory is not taken for what will be long in coming.
Allgather::Result& Allgather::result_of(std::size_t run) {
  Result& result = results_[run];
  if (result.is_asked_for) return result;
  result.is_asked_for = true;
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) parts_[rank] = lengths_[rank * runs_.size() + run];
  result.output = allocate_output(runs_[run], parts_);
  return result;
}

// ---------------------------------------------------------------- between nodes

void AllgatherBetweenNodes::open(Runs runs, data::Job& /*job*/) {
  runs_ = runs;
  lengths_.open(runs.size());
  for (std::size_t run = 0; run < runs.size(); ++run)
    lengths_.at(run, site_.topology.rank) = contributed_bytes(runs[run]);
  lengths_known_ = false;
  ends_.clear();
  group_ = group_end_ = 0;
  sending_ = site_.topology.size;
}

Collective::Cut AllgatherBetweenNodes::cut(Chunk& chunk, std::uint64_t taken) {
  if (!lengths_known_) {
    const Cut cut = lengths_.cut(chunk, taken);
    if (cut != Cut::end) return cut;
    lengths_known_ = true;
  }
  while (true) {
    if (sending_ == site_.topology.size) {
      while (ends_.count() < group_end_) ends_.add(chunk.number);
      if (group_end_ == runs_.size()) return Cut::end;
      open_group();
    }
    if (senders_.now().broadcast.cut(chunk, taken) == Cut::chunk) {
      senders_.note_chunk();
      return Cut::chunk;
    }
    senders_.advance();
    if (++sending_ < site_.topology.size) open_broadcast();
  }
}

void AllgatherBetweenNodes::open_group() {
  const auto enough = static_cast<std::int64_t>(site_.intra.slots() * site_.intra.slot_bytes());
  outputs_.clear();
  group_ = group_end_;
  for (std::int64_t bytes = 0; group_end_ < runs_.size() && bytes < enough; ++group_end_) {
    const std::vector<std::int64_t> parts = lengths_.of(group_end_);
    for (const std::int64_t part : parts) bytes += part;
    outputs_.push_back(allocate_output(runs_[group_end_], parts));
  }
  sending_ = 0;
  open_broadcast();
}

void AllgatherBetweenNodes::open_broadcast() {
  Sender& sender = senders_.now();
  sender.pieces.clear();
  std::int64_t sum = 0;
  for (std::size_t run = group_; run < group_end_; ++run) {
    const std::int64_t bytes = lengths_.at(run, sending_);
    const bool is_own = sending_ == site_.topology.rank;
    std::byte*& output = outputs_[run - group_];
    sender.pieces.push_back({is_own ? runs_[run].pieces.front().input : nullptr, output, bytes});
    if (output != nullptr) output += bytes;
    sum += bytes;
  }
  sender.broadcast.open(sending_, sender.pieces.data(), sender.pieces.size(), sum, 1);
}

// ---------------------------------------------------------------- small calls

/// Each rank copies all inputs.
constexpr SmallPart Allgather::kSmall = {
    [](CpuSmallCalls& calls, const SmallCall& call) { return calls.lay_out_contribution(call, {}); },
    [](CpuSmallCalls& calls, const SmallCall& call) { calls.take_contributions(call); }};

}  // namespace kolo::data::cpu
