// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/alltoall.hpp"

#include <algorithm>
#include <iterator>

#include "base/check.hpp"
#include "data/kernels/reduce.hpp"

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

// ---------------------------------------------------------------- the stages

void Alltoall::fill(const AlltoallPlan& plan, std::int64_t chunk, std::uint64_t number) {
  plan.for_each_sent(chunk, [&](const AlltoallPlan::Block& block) {
    std::byte* to =
        is_near(block.peer) ? intra_.slot(topology_.local_rank, number) : mesh_->outgoing(exchange_of(number));
    kernels::copy(to + block.offset, block.input, static_cast<std::int64_t>(block.bytes));
  });
}

void Alltoall::enter(const AlltoallPlan& plan, std::int64_t chunk, std::uint64_t number) {
  if (mesh_ == nullptr) return;
  plan.for_each_received(chunk, [&](const AlltoallPlan::Block& block) {
    if (!is_near(block.peer)) mesh_->receive(exchange_of(number), world_rank_of(block.peer), block.offset, block.bytes);
  });
  plan.for_each_sent(chunk, [&](const AlltoallPlan::Block& block) {
    if (!is_near(block.peer)) mesh_->send(exchange_of(number), world_rank_of(block.peer), block.offset, block.bytes);
  });
}

bool Alltoall::ready(const AlltoallPlan& plan, std::int64_t chunk, std::uint64_t number) const {
  bool all = true;
  plan.for_each_received(chunk, [&](const AlltoallPlan::Block& block) {
    if (block.peer != topology_.rank && is_near(block.peer))
      all = all && intra_.reached(transport::Stage::filled, local_rank_of(block.peer)) > number;
  });
  return all;
}

void Alltoall::take(const AlltoallPlan& plan, std::int64_t chunk, std::uint64_t number) {
  const auto copy = plan.past_cache() ? &kernels::copy_past_cache : &kernels::copy;
  plan.for_each_received(chunk, [&](const AlltoallPlan::Block& block) {
    if (block.output == nullptr) return;
    const std::byte* from = block.input;
    if (block.peer != topology_.rank) {
      from =
          is_near(block.peer) ? intra_.slot(local_rank_of(block.peer), number) : mesh_->incoming(exchange_of(number));
      from += block.offset;
    }
    copy(block.output, from, static_cast<std::int64_t>(block.bytes));
  });
}

}  // namespace kolo::data::cpu
