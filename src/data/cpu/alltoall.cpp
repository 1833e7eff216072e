// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/alltoall.hpp"

#include <algorithm>
#include <iterator>

#include "base/check.hpp"
#include "data/kernels/copy.hpp"

namespace kolo::data::cpu {

namespace {

std::int64_t lines(std::int64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

std::vector<std::int64_t>& sum_up(const std::vector<std::int64_t>& parts, std::vector<std::int64_t>& begin) {
  begin.assign(1, 0);
  for (const std::int64_t part : parts) begin.push_back(begin.back() + part);
  return begin;
}

}  // namespace

// ---------------------------------------------------------------- the plan

void AlltoallPlan::make(int rank, const std::byte* input, std::byte* output, const std::vector<std::int64_t>& send,
                        const std::vector<std::int64_t>& receive, const std::vector<std::int64_t>& largest,
                        std::size_t slot_bytes, std::size_t past_cache_bytes) {
  rank_ = rank;
  input_ = input;
  output_ = output;
  sum_up(send, send_begin_);
  sum_up(receive, receive_begin_);
  past_cache_ = static_cast<std::size_t>(receive_begin_.back()) >= past_cache_bytes;
  groups_.clear();
  chunks_ = 0;
  const auto room = static_cast<std::int64_t>(slot_bytes);
  for (int distance = 0; distance < size();) {
    Group group{distance, 0, 0, chunks_};
    std::int64_t most = 0;
    for (; distance < size(); ++distance, ++group.distances) {
      const std::int64_t with = std::max(most, largest[static_cast<std::size_t>(distance)]);
      if (group.distances > 0 && (group.distances + 1) * lines(with) > room) break;
      most = with;
    }
    group.block = std::clamp<std::int64_t>(lines(most), 64, room);
    groups_.push_back(group);
    chunks_ += (most + group.block - 1) / group.block;
  }
}

const AlltoallPlan::Group& AlltoallPlan::group_of(std::int64_t chunk) const noexcept {
  const auto after = [](std::int64_t wanted, const Group& group) { return wanted < group.first_chunk; };
  // Groups without chunks begin where the next one does: the last that begins so early is the one.
  return *std::prev(std::upper_bound(groups_.begin(), groups_.end(), chunk, after));
}

AlltoallPlan::Block AlltoallPlan::sent(const Group& group, int i, std::int64_t chunk) const noexcept {
  const int peer = (rank_ + group.first_distance + i) % size();
  const std::int64_t* begin = &send_begin_[static_cast<std::size_t>(peer)];
  const std::int64_t from = begin[0] + (chunk - group.first_chunk) * group.block;
  const std::int64_t bytes = std::clamp<std::int64_t>(begin[1] - from, 0, group.block);
  if (bytes == 0) return {peer, 0, 0, nullptr, nullptr};
  return {peer, static_cast<std::size_t>(i * group.block), static_cast<std::size_t>(bytes), input_ + from, nullptr};
}

AlltoallPlan::Block AlltoallPlan::received(const Group& group, int i, std::int64_t chunk) const noexcept {
  const int peer = (rank_ - group.first_distance - i + size()) % size();
  const std::int64_t* begin = &receive_begin_[static_cast<std::size_t>(peer)];
  const std::int64_t from = begin[0] + (chunk - group.first_chunk) * group.block;
  const std::int64_t bytes = std::clamp<std::int64_t>(begin[1] - from, 0, group.block);
  if (bytes == 0) return {peer, 0, 0, nullptr, nullptr};
  return {peer, static_cast<std::size_t>(i * group.block), static_cast<std::size_t>(bytes),
          peer == rank_ ? sent(group, i, chunk).input : nullptr, output_ == nullptr ? nullptr : output_ + from};
}

// ---------------------------------------------------------------- the run

MeshBytes Alltoall::mesh_bytes(const core::Topology& /*topology*/, std::size_t slot_bytes) noexcept {
  return {slot_bytes, slot_bytes};
}

void Alltoall::open(Runs runs, data::Job& /*job*/) {
  const data::Run& run = runs[0];
  const int size = site_.topology.size;
  even_.assign(static_cast<std::size_t>(size), run.elements / size * static_cast<std::int64_t>(size_of(run.dtype)));
  open(run.pieces.front().input, run.pieces.front().output, even_, even_, even_);
}

void Alltoall::open(const std::byte* input, std::byte* output, const std::vector<std::int64_t>& send,
                    const std::vector<std::int64_t>& receive, const std::vector<std::int64_t>& largest) {
  plan_.make(site_.topology.rank, input, output, send, receive, largest, site_.intra.slot_bytes(),
             site_.tuning.copied_past_cache_bytes);
  next_ = 0;
}

Collective::Cut Alltoall::cut(Chunk& chunk, std::uint64_t /*taken*/) {
  if (next_ == plan_.chunks()) return Cut::end;
  chunk.of = this;
  chunk.begin = next_++;
  chunk.elements = 1;
  chunk.peers_read_at_take = true;
  chunk.exchanges = site_.mesh;
  return Cut::chunk;
}

// ---------------------------------------------------------------- the stages

void Alltoall::fill(Chunk& chunk) {
  plan_.for_each_sent(chunk.begin, [&](const AlltoallPlan::Block& block) {
    const auto bytes = static_cast<std::int64_t>(block.bytes);
    if (site_.is_near(block.peer)) return site_.to_peers(site_.own_slot(chunk) + block.offset, block.input, bytes);
    kernels::copy(site_.mesh->outgoing(site_.exchange_of(chunk)) + block.offset, block.input, bytes);
  });
}

void Alltoall::enter(const Chunk& chunk) {
  if (site_.mesh == nullptr) return;
  const std::size_t exchange = site_.exchange_of(chunk);
  plan_.for_each_received(chunk.begin, [&](const AlltoallPlan::Block& block) {
    if (!site_.is_near(block.peer))
      site_.mesh->receive(exchange, site_.world_rank_of(block.peer), block.offset, block.bytes);
  });
  plan_.for_each_sent(chunk.begin, [&](const AlltoallPlan::Block& block) {
    if (!site_.is_near(block.peer))
      site_.mesh->send(exchange, site_.world_rank_of(block.peer), block.offset, block.bytes);
  });
}

/// Whether what the node's ranks send here is there.
bool Alltoall::ready(const Chunk& chunk) const {
  bool all = true;
  plan_.for_each_received(chunk.begin, [&](const AlltoallPlan::Block& block) {
    if (block.peer != site_.topology.rank && site_.is_near(block.peer))
      all = all && site_.intra.reached(transport::Stage::filled, site_.local_rank_of(block.peer)) > chunk.number;
  });
  return all;
}

void Alltoall::take(const Chunk& chunk) {
  const auto copy = plan_.past_cache() ? &kernels::copy_past_cache : &kernels::copy;
  plan_.for_each_received(chunk.begin, [&](const AlltoallPlan::Block& block) {
    if (block.output == nullptr) return;
    const std::byte* from = block.input;
    if (block.peer != site_.topology.rank) {
      from = site_.is_near(block.peer) ? site_.slot(site_.local_rank_of(block.peer), chunk)
                                       : site_.mesh->incoming(site_.exchange_of(chunk));
      from += block.offset;
    }
    if (from != block.output) copy(block.output, from, static_cast<std::int64_t>(block.bytes));
  });
}

// ---------------------------------------------------------------- small calls

/// Each rank copies its block of each input.
constexpr SmallPart Alltoall::kSmall = {
    [](CpuSmallCalls& calls, const SmallCall& call) {
      const std::size_t block = call.bytes() / static_cast<std::size_t>(calls.ranks());
      const std::size_t own = block * static_cast<std::size_t>(calls.own());
      return calls.lay_out_input(call, {own, own + block});
    },
    [](CpuSmallCalls& calls, const SmallCall& call) {
      const std::size_t block = call.bytes() / static_cast<std::size_t>(calls.ranks());
      const std::size_t own = block * static_cast<std::size_t>(calls.own());
      // Each rank begins with the next one, so that not all read the same input at once.
      for (int distance = 0; distance < calls.ranks(); ++distance) {
        const int peer = (calls.own() + distance) % calls.ranks();
        const std::byte* const input = peer == calls.own() ? call.tensor.input : calls.input_of(peer, call.bytes());
        copy_out(call.tensor.output + block * static_cast<std::size_t>(peer), input + own, block);
      }
    }};

// ---------------------------------------------------------------- rows that differ by rank

void UnevenRows::open(Runs runs, data::Job& /*job*/) {
  runs_ = runs;
  lengths_known_ = false;
  is_open_ = false;
  ends_.clear();
  open_lengths();
}

Collective::Cut UnevenRows::cut(Chunk& chunk, std::uint64_t taken) {
  if (!lengths_known_) {
    const Cut cut = cut_lengths(chunk, taken);
    if (cut != Cut::end) return cut;
    lengths_known_ = true;
  }
  for (; ends_.count() < runs_.size(); ends_.add(chunk.number)) {
    if (!is_open_) open_rows(ends_.count(), rows_.now());
    is_open_ = true;
    if (rows_.now().cut(chunk, taken) == Cut::chunk) {
      rows_.note_chunk();
      return Cut::chunk;
    }
    rows_.advance();
    is_open_ = false;
  }
  return Cut::end;
}

void UnevenRows::open_rooted(Alltoall& rows, const data::Run& run, std::byte* output,
                             const std::vector<std::int64_t>& bytes, bool to_root) {
  const int size = site_.topology.size;
  const std::vector<std::int64_t> nothing(bytes.size(), 0);
  std::vector<std::int64_t> own = nothing;
  own[static_cast<std::size_t>(run.root)] = bytes[static_cast<std::size_t>(site_.topology.rank)];
  const std::vector<std::int64_t>& roots = run.root == site_.topology.rank ? bytes : nothing;
  std::vector<std::int64_t> over_distance;  // over each, the root has to do with one rank
  for (int distance = 0; distance < size; ++distance) {
    const int other = (run.root + (to_root ? size - distance : distance)) % size;
    over_distance.push_back(bytes[static_cast<std::size_t>(other)]);
  }
  rows.open(run.pieces.front().input, output, to_root ? own : roots, to_root ? roots : own, over_distance);
}

void AlltoallSplits::open_lengths() {
  const auto size = static_cast<std::size_t>(site_.topology.size);
  const auto rank = static_cast<std::size_t>(site_.topology.rank);
  lengths_.open(runs().size(), ReduceOp::max);
  sent_counts_.clear();
  for (std::size_t to = 0; to < size; ++to) {
    for (std::size_t i = 0; i < runs().size(); ++i) {
      const data::Run& run = runs()[i];
      KOLO_CHECK(run.splits.size() == size) << run.splits.size() << " splits for " << size << " ranks";
      sent_counts_.push_back(run.splits[to]);
      lengths_.at(i, static_cast<int>((to + size - rank) % size)) = run.splits[to];
    }
  }
  received_counts_.assign(sent_counts_.size(), 0);
  const std::vector<std::int64_t> widths(size, static_cast<std::int64_t>(runs().size() * sizeof(std::int64_t)));
  splits_.open(reinterpret_cast<const std::byte*>(sent_counts_.data()),
               reinterpret_cast<std::byte*>(received_counts_.data()), widths, widths, widths);
}

Collective::Cut AlltoallSplits::cut_lengths(Chunk& chunk, std::uint64_t taken) {
  return splits_.cut(chunk, taken) == Cut::chunk ? Cut::chunk : UnevenRows::cut_lengths(chunk, taken);
}

void AlltoallSplits::open_rows(std::size_t index, Alltoall& rows) {
  data::Run& run = runs()[index];
  const std::int64_t row_bytes = run.row_elements * static_cast<std::int64_t>(size_of(run.dtype));
  const auto of_run = [&](const std::vector<std::int64_t>& counts, std::int64_t unit) {
    std::vector<std::int64_t> own;
    for (std::size_t i = index; i < counts.size(); i += runs().size()) own.push_back(counts[i] * unit);
    return own;
  };
  std::byte* output = allocate_output(run, of_run(received_counts_, 1));
  std::vector<std::int64_t> largest = lengths_.of(index);
  for (std::int64_t& count : largest) count *= row_bytes;
  rows.open(run.pieces.front().input, output, of_run(sent_counts_, row_bytes), of_run(received_counts_, row_bytes),
            largest);
}

}  // namespace kolo::data::cpu
