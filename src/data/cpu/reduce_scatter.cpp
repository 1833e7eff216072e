// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/reduce_scatter.hpp"

#include <algorithm>

namespace kolo::data::cpu {

namespace {

/// A chunk of more owners would hold too little of each to be worth a message.
constexpr int kMostOwners = 32;

std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

/// The most bytes that partial sums of so many blocks take, over all formats.
std::size_t partial_bytes(int blocks, int size, std::size_t slot_bytes) noexcept {
  std::size_t most = 0;
  for_each_wire_format([&](const WireFormat& format) {
    const auto elements = static_cast<std::size_t>(ScatterPlan::largest_block(size, slot_bytes, format));
    most = std::max(most, static_cast<std::size_t>(blocks) * elements * size_of(format.sums()));
  });
  return most;
}

}  // namespace

// ---------------------------------------------------------------- the plan

int ScatterPlan::owners_in_chunk(int size, std::size_t slot_bytes) noexcept {
  return std::min({size, kMostOwners, static_cast<int>(slot_bytes / 64)});
}

std::int64_t ScatterPlan::largest_block(int size, std::size_t slot_bytes, const WireFormat& format) noexcept {
  const std::int64_t elements = format.elements_in(slot_bytes) / owners_in_chunk(size, slot_bytes);
  return elements / format.granule() * format.granule();
}

ScatterPlan::ScatterPlan(const data::Run& run, int rank, int size, std::size_t slot_bytes,
                         std::size_t past_cache_bytes) noexcept
    : reduction_{run.dtype, run.op, {run.prescale, run.postscale, run.divisor}}, format_(run.dtype, run.wire),
      size_(size), rows_(run.rows), row_elements_(run.rows == 0 ? 0 : run.elements / run.rows),
      input_(run.pieces.front().input), output_(run.pieces.front().output), owners_(owners_in_chunk(size, slot_bytes)) {
  const std::int64_t longest = data::RowsOf(rows_, 0, size).count * row_elements_;
  const std::int64_t line = format_.granule();
  const std::int64_t most = largest_block(size, slot_bytes, format_);
  // As few blocks as can be, and all about the same.
  blocks_ = std::max<std::int64_t>(1, divide_up(longest, most));
  block_ = std::max(line, divide_up(divide_up(longest, blocks_), line) * line);
  chunks_ = longest == 0 ? 0 : blocks_ * divide_up(size_, owners_);
  const data::RowsOf own(rows_, rank, size_);
  const auto width = static_cast<std::int64_t>(size_of(run.dtype));
  const auto result = static_cast<std::size_t>(own.count * row_elements_ * width);
  const bool in_place = input_ + own.begin * row_elements_ * width == output_;
  past_cache_ = !in_place && result >= past_cache_bytes;
}

ScatterPlan::Block ScatterPlan::block(std::int64_t chunk, int owner) const noexcept {
  const data::RowsOf rows(rows_, owner, size_);
  const std::int64_t begin = chunk % blocks_ * block_;
  const std::int64_t elements = std::clamp<std::int64_t>(rows.count * row_elements_ - begin, 0, block_);
  const auto width = static_cast<std::int64_t>(size_of(reduction_.dtype));
  const std::size_t offset = format_.bytes((owner - first_owner(chunk)) * block_);
  if (elements == 0) return {offset, 0, nullptr, nullptr};
  return {offset, elements, input_ + (rows.begin * row_elements_ + begin) * width, output_ + begin * width};
}

// ---------------------------------------------------------------- the run

MeshBytes ReduceScatter::mesh_bytes(const core::Topology& topology, std::size_t slot_bytes) noexcept {
  return {partial_bytes(ScatterPlan::owners_in_chunk(topology.size, slot_bytes), topology.size, slot_bytes),
          partial_bytes(topology.node_count(), topology.size, slot_bytes)};
}

void ReduceScatter::open(Runs runs, data::Job& /*job*/) {
  const data::Run& run = runs[0];
  plan_ = ScatterPlan(run, site_.topology.rank, site_.topology.size, site_.intra.slot_bytes(),
                      site_.tuning.past_cache_bytes);
  next_ = 0;
}

Collective::Cut ReduceScatter::cut(Chunk& chunk, std::uint64_t /*taken*/) {
  if (next_ == plan_.chunks()) return Cut::end;
  chunk.of = this;
  chunk.begin = next_++;
  chunk.elements = 1;
  chunk.peers_read_at_take = true;
  chunk.exchanges = site_.mesh;
  chunk.enters_when_filled = site_.mesh != nullptr;
  return Cut::chunk;
}

// ---------------------------------------------------------------- the stages

bool ReduceScatter::reduces_for(int owner) const noexcept {
  if (site_.is_near(owner)) return owner == site_.topology.rank;
  return site_.local_rank_of(owner) % site_.local_size() == site_.local_rank();
}

int ReduceScatter::reducer_for(int owner, int node) const noexcept {
  const std::vector<int>& ranks = site_.topology.nodes[static_cast<std::size_t>(node)];
  return site_.world_rank_of(ranks[static_cast<std::size_t>(site_.local_rank_of(owner)) % ranks.size()]);
}

void ReduceScatter::fill(Chunk& chunk) {
  std::byte* slot = site_.own_slot(chunk);
  for (int owner = plan_.first_owner(chunk.begin); owner < plan_.end_owner(chunk.begin); ++owner) {
    if (reduces_for(owner) && plan_.format().is_plain()) continue;
    const ScatterPlan::Block block = plan_.block(chunk.begin, owner);
    plan_.format().encode(block.input, block.elements, plan_.reduction().scaling.prescale, slot + block.offset,
                          site_.to_peers);
  }
}

void ReduceScatter::gather_inputs(const ScatterPlan::Block& block, const Chunk& chunk) {
  for (int peer = 0; peer < site_.local_size(); ++peer)
    site_.inputs[static_cast<std::size_t>(peer)] = site_.slot(peer, chunk) + block.offset;
  if (plan_.format().is_plain()) site_.inputs[static_cast<std::size_t>(site_.local_rank())] = block.input;
}

void ReduceScatter::enter(const Chunk& chunk) {
  if (site_.mesh == nullptr) return;
  const int rank = site_.topology.rank;
  const std::size_t exchange = site_.exchange_of(chunk);
  const std::size_t stride = plan_.sum_bytes(plan_.block_elements());
  std::size_t sent = 0;
  for (int owner = plan_.first_owner(chunk.begin); owner < plan_.end_owner(chunk.begin); ++owner) {
    if (owner == rank || !reduces_for(owner)) continue;
    const ScatterPlan::Block block = plan_.block(chunk.begin, owner);
    if (block.elements == 0) continue;
    gather_inputs(block, chunk);
    plan_.format().reduce_partial(plan_.reduction(), site_.inputs.data(), site_.local_size(),
                                  site_.mesh->outgoing(exchange) + sent, block.elements);
    site_.mesh->send(exchange, site_.world_rank_of(owner), sent, plan_.sum_bytes(block.elements));
    sent += stride;
  }
  if (!plan_.holds(chunk.begin, rank)) return;
  const std::size_t bytes = plan_.sum_bytes(plan_.block(chunk.begin, rank).elements);
  for (int node = 0; node < site_.topology.node_count(); ++node) {
    if (node != site_.topology.node)
      site_.mesh->receive(exchange, reducer_for(rank, node), static_cast<std::size_t>(node) * stride, bytes);
  }
}

bool ReduceScatter::ready(const Chunk& chunk) const {
  return !plan_.holds(chunk.begin, site_.topology.rank) || Collective::ready(chunk);
}

void ReduceScatter::take(const Chunk& chunk) {
  if (!plan_.holds(chunk.begin, site_.topology.rank)) return;
  const ScatterPlan::Block block = plan_.block(chunk.begin, site_.topology.rank);
  if (block.elements == 0) return;
  gather_inputs(block, chunk);
  site_.mesh != nullptr ? take_between_nodes(block, chunk) : take_inside_node(block, chunk);
}

/// The own block of the own slot is read by nobody else: encoded sums replace it.
void ReduceScatter::take_inside_node(const ScatterPlan::Block& block, const Chunk& chunk) {
  if (plan_.format().is_plain()) {
    const auto reduce = plan_.past_cache() ? &kernels::reduce_past_cache : &kernels::reduce;
    return reduce(plan_.reduction(), site_.inputs.data(), site_.local_size(), block.output, block.elements,
                  site_.local_rank());
  }
  void* const sums = site_.own_slot(chunk) + block.offset;
  plan_.format().reduce(plan_.reduction(), site_.inputs.data(), site_.local_size(), &sums, 1, block.elements);
  plan_.format().decode(static_cast<const std::byte*>(sums), block.elements, block.output, plan_.past_cache());
}

void ReduceScatter::take_between_nodes(const ScatterPlan::Block& block, const Chunk& chunk) {
  const WireFormat& format = plan_.format();
  const std::size_t stride = plan_.sum_bytes(plan_.block_elements());
  std::byte* sums = site_.mesh->incoming(site_.exchange_of(chunk));
  format.reduce_partial(plan_.reduction(), site_.inputs.data(), site_.local_size(),
                        sums + static_cast<std::size_t>(site_.topology.node) * stride, block.elements);
  for (int node = 0; node < site_.topology.node_count(); ++node)
    site_.inputs[static_cast<std::size_t>(node)] = sums + static_cast<std::size_t>(node) * stride;
  kernels::reduce({format.sums(), plan_.reduction().op, {}}, site_.inputs.data(), site_.topology.node_count(), sums,
                  block.elements);
  if (format.is_plain()) return format.finish(plan_.reduction(), sums, block.output, block.elements);
  std::byte* const encoded = site_.own_slot(chunk) + block.offset;
  format.finish(plan_.reduction(), sums, encoded, block.elements);
  format.decode(encoded, block.elements, block.output, false);
}

// ---------------------------------------------------------------- small calls

namespace {

/// Of an input: this rank's.
CpuSmallCalls::Range own_rows(const CpuSmallCalls& calls, const SmallCall& call) noexcept {
  const data::RowsOf rows(call.shape[0], calls.own(), calls.ranks());
  const std::size_t row = call.shape[0] == 0 ? 0 : call.bytes() / static_cast<std::size_t>(call.shape[0]);
  const auto begin = static_cast<std::size_t>(rows.begin) * row;
  return {begin, begin + static_cast<std::size_t>(rows.count) * row};
}

}  // namespace

/// Each rank reduces its rows of all inputs.
constexpr SmallPart ReduceScatter::kSmall = {
    [](CpuSmallCalls& calls, const SmallCall& call) { return calls.lay_out_input(call, own_rows(calls, call)); },
    [](CpuSmallCalls& calls, const SmallCall& call) { calls.reduce(call, own_rows(calls, call)); }};

}  // namespace kolo::data::cpu
