// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/reduce_scatter.hpp"

#include <algorithm>

namespace kolo::data::cpu {

namespace {

/// A chunk of more owners would hold too little of each to be worth a message.
constexpr int kMostOwners = 32;

std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

std::size_t accumulator_bytes(std::size_t width) noexcept {
  return width == 2 ? 4 : width;  // 16-bit floats are summed in 32
}

/// The most bytes that partial sums of so many blocks take, over all element types.
std::size_t partial_bytes(int blocks, int size, std::size_t slot_bytes) noexcept {
  std::size_t most = 0;
  for (const std::size_t width : {1, 2, 4, 8}) {
    const auto elements = static_cast<std::size_t>(ScatterPlan::largest_block(size, slot_bytes, width));
    most = std::max(most, static_cast<std::size_t>(blocks) * elements * accumulator_bytes(width));
  }
  return most;
}

}  // namespace

// ---------------------------------------------------------------- the plan

int ScatterPlan::owners_in_chunk(int size, std::size_t slot_bytes) noexcept {
  return std::min({size, kMostOwners, static_cast<int>(slot_bytes / 64)});
}

std::int64_t ScatterPlan::largest_block(int size, std::size_t slot_bytes, std::size_t width) noexcept {
  const std::int64_t line = line_of(width);
  const auto elements = static_cast<std::int64_t>(slot_bytes / width) / owners_in_chunk(size, slot_bytes);
  return elements / line * line;
}

ScatterPlan::ScatterPlan(const data::Run& run, int rank, int size, std::size_t slot_bytes,
                         std::size_t past_cache_bytes) noexcept
    : reduction_{run.dtype, run.op, {run.prescale, run.postscale, run.divisor}}, width_(size_of(run.dtype)),
      size_(size), rows_(run.rows), row_elements_(run.rows == 0 ? 0 : run.elements / run.rows),
      input_(run.pieces.front().input), output_(run.pieces.front().output), owners_(owners_in_chunk(size, slot_bytes)) {
  const std::int64_t longest = data::RowsOf(rows_, 0, size).count * row_elements_;
  const std::int64_t most = largest_block(size, slot_bytes, width_);
  const std::int64_t line = line_of(width_);
  // As few blocks as can be, and all about the same.
  blocks_ = std::max<std::int64_t>(1, divide_up(longest, most));
  block_ = std::max(line, divide_up(divide_up(longest, blocks_), line) * line);
  chunks_ = longest == 0 ? 0 : blocks_ * divide_up(size_, owners_);
  const data::RowsOf own(rows_, rank, size_);
  const std::size_t result = static_cast<std::size_t>(own.count * row_elements_) * width_;
  const bool in_place = input_ + static_cast<std::size_t>(own.begin * row_elements_) * width_ == output_;
  past_cache_ = !in_place && result >= past_cache_bytes;
}

ScatterPlan::Block ScatterPlan::block(std::int64_t chunk, int owner) const noexcept {
  const data::RowsOf rows(rows_, owner, size_);
  const std::int64_t begin = chunk % blocks_ * block_;
  const std::int64_t elements = std::clamp<std::int64_t>(rows.count * row_elements_ - begin, 0, block_);
  const auto width = static_cast<std::int64_t>(width_);
  const auto offset = static_cast<std::size_t>((owner - first_owner(chunk)) * block_ * width);
  if (elements == 0) return {offset, 0, nullptr, nullptr};
  return {offset, elements, input_ + (rows.begin * row_elements_ + begin) * width, output_ + begin * width};
}

// ---------------------------------------------------------------- the stages

ReduceScatter::ReduceScatter(const core::Topology& topology, const std::vector<int>& members,
                             transport::IntraNode& intra, Mesh* mesh)
    : topology_(topology), members_(members), intra_(intra), mesh_(mesh),
      inputs_(static_cast<std::size_t>(topology.local_size())) {}

std::size_t ReduceScatter::outgoing_bytes(const core::Topology& topology, std::size_t slot_bytes) noexcept {
  return partial_bytes(ScatterPlan::owners_in_chunk(topology.size, slot_bytes), topology.size, slot_bytes);
}

std::size_t ReduceScatter::incoming_bytes(const core::Topology& topology, std::size_t slot_bytes) noexcept {
  return partial_bytes(topology.node_count(), topology.size, slot_bytes);
}

bool ReduceScatter::reduces_for(int owner) const noexcept {
  if (topology_.node_of[static_cast<std::size_t>(owner)] == topology_.node) return owner == topology_.rank;
  return topology_.local_rank_of[static_cast<std::size_t>(owner)] % topology_.local_size() == topology_.local_rank;
}

int ReduceScatter::reducer_for(int owner, int node) const noexcept {
  const std::vector<int>& ranks = topology_.nodes[static_cast<std::size_t>(node)];
  const auto turn = static_cast<std::size_t>(topology_.local_rank_of[static_cast<std::size_t>(owner)]);
  return world_rank_of(ranks[turn % ranks.size()]);
}

void ReduceScatter::fill(const ScatterPlan& plan, std::int64_t chunk, std::uint64_t number) {
  std::byte* slot = intra_.slot(topology_.local_rank, number);
  for (int owner = plan.first_owner(chunk); owner < plan.end_owner(chunk); ++owner) {
    if (reduces_for(owner)) continue;
    const ScatterPlan::Block block = plan.block(chunk, owner);
    kernels::copy_ahead(slot + block.offset, block.input, block.elements * static_cast<std::int64_t>(plan.width()));
  }
}

void ReduceScatter::gather_inputs(const ScatterPlan::Block& block, std::uint64_t number) {
  for (int peer = 0; peer < topology_.local_size(); ++peer)
    inputs_[static_cast<std::size_t>(peer)] = intra_.slot(peer, number) + block.offset;
  inputs_[static_cast<std::size_t>(topology_.local_rank)] = block.input;
}

bool ReduceScatter::enter(const ScatterPlan& plan, std::int64_t chunk, std::uint64_t number) {
  if (mesh_ == nullptr) return true;
  if (intra_.all_reached(transport::Stage::filled) <= number) return false;
  const std::size_t exchange = exchange_of(number);
  const std::size_t wide = size_of(kernels::accumulator_of(plan.reduction().dtype));
  std::size_t sent = 0;
  for (int owner = plan.first_owner(chunk); owner < plan.end_owner(chunk); ++owner) {
    if (owner == topology_.rank || !reduces_for(owner)) continue;
    const ScatterPlan::Block block = plan.block(chunk, owner);
    if (block.elements == 0) continue;
    gather_inputs(block, number);
    kernels::reduce_partial(plan.reduction(), inputs_.data(), topology_.local_size(), mesh_->outgoing(exchange) + sent,
                            block.elements);
    const std::size_t bytes = static_cast<std::size_t>(block.elements) * wide;
    mesh_->send(exchange, world_rank_of(owner), sent, bytes);
    sent += static_cast<std::size_t>(plan.block_elements()) * wide;
  }
  if (!plan.holds(chunk, topology_.rank)) return true;
  const std::size_t bytes = static_cast<std::size_t>(plan.block(chunk, topology_.rank).elements) * wide;
  const std::size_t stride = static_cast<std::size_t>(plan.block_elements()) * wide;
  for (int node = 0; node < topology_.node_count(); ++node) {
    if (node != topology_.node)
      mesh_->receive(exchange, reducer_for(topology_.rank, node), static_cast<std::size_t>(node) * stride, bytes);
  }
  return true;
}

bool ReduceScatter::ready(const ScatterPlan& plan, std::int64_t chunk, std::uint64_t number) const {
  return !plan.holds(chunk, topology_.rank) || intra_.all_reached(transport::Stage::filled) > number;
}

void ReduceScatter::take(const ScatterPlan& plan, std::int64_t chunk, std::uint64_t number) {
  if (!plan.holds(chunk, topology_.rank)) return;
  const ScatterPlan::Block block = plan.block(chunk, topology_.rank);
  if (block.elements == 0) return;
  gather_inputs(block, number);
  if (mesh_ != nullptr) return take_between_nodes(plan, block, number);
  const auto reduce = plan.past_cache() ? &kernels::reduce_past_cache : &kernels::reduce;
  reduce(plan.reduction(), inputs_.data(), topology_.local_size(), block.output, block.elements);
}

void ReduceScatter::take_between_nodes(const ScatterPlan& plan, const ScatterPlan::Block& block, std::uint64_t number) {
  const std::size_t stride =
      static_cast<std::size_t>(plan.block_elements()) * size_of(kernels::accumulator_of(plan.reduction().dtype));
  std::byte* sums = mesh_->incoming(exchange_of(number));
  kernels::reduce_partial(plan.reduction(), inputs_.data(), topology_.local_size(),
                          sums + static_cast<std::size_t>(topology_.node) * stride, block.elements);
  for (int node = 1; node < topology_.node_count(); ++node)
    kernels::combine(plan.reduction(), sums, sums + static_cast<std::size_t>(node) * stride, block.elements);
  kernels::finish(plan.reduction(), sums, block.output, block.elements);
}

}  // namespace kolo::data::cpu
