// SPDX-License-Identifier: Apache-2.0
#include "engine/small_calls.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "data/backend.hpp"
#include "data/kernels/float_mode.hpp"
#include "data/kernels/reduce.hpp"

namespace kolo::engine {

using control::Shortcut;
using core::CollectiveKind;

namespace {

/// In front of a contribution to a gather: its length. In front of what a scatter's root gives: the rows for each rank,
/// or kUneven; then the number for each rank stands at the beginning of the payload.
using Head = std::int64_t;
constexpr Head kUneven = -1;
/// An all-reduce goes by the log where each rank would read more than so many times the longest input.
constexpr std::size_t kInputsRead = 8;

void write_head(std::byte* room, Head head) { std::memcpy(room, &head, sizeof head); }
Head head_at(const std::byte* room) {
  Head head = 0;
  std::memcpy(&head, room, sizeof head);
  return head;
}

void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) kernels::copy(to, from, static_cast<std::int64_t>(bytes));
}

std::int64_t sum_of(const std::int64_t* first, const std::int64_t* last) {
  return std::accumulate(first, last, std::int64_t{0});
}

bool is_even(Span<const std::int64_t> splits) {
  return std::all_of(splits.begin(), splits.end(), [&](std::int64_t rows) { return rows == splits[0]; });
}

}  // namespace

SmallCalls::SmallCalls(Shortcut& shortcut, kernels::PeerCopy to_peers)
    : shortcut_(shortcut), ranks_(shortcut.ranks()), own_(shortcut.local_rank()), copy_(to_peers),
      inputs_(static_cast<std::size_t>(ranks_)), lengths_(static_cast<std::size_t>(ranks_)) {}

/// In the line behind a head, or in the payload.
bool SmallCalls::fits(std::size_t bytes, std::size_t head) const noexcept {
  return bytes <= Shortcut::kRoom - head || bytes <= shortcut_.capacity();
}

std::byte* SmallCalls::input_of(int rank, std::size_t bytes, std::size_t head) const noexcept {
  return bytes <= Shortcut::kRoom - head ? shortcut_.room(rank) + head : shortcut_.payload(rank);
}

/// Of a reduce-scatter's input.
SmallCalls::Range SmallCalls::rows_of(const SmallCall& call, int rank) const noexcept {
  const data::RowsOf rows(call.shape[0], rank, ranks_);
  const std::size_t row = call.shape[0] == 0 ? 0 : call.bytes() / static_cast<std::size_t>(call.shape[0]);
  const auto begin = static_cast<std::size_t>(rows.begin) * row;
  return {begin, begin + static_cast<std::size_t>(rows.count) * row};
}

/// Of an all-to-all: what one rank gives another.
std::size_t SmallCalls::block_bytes(const SmallCall& call) const noexcept {
  return call.bytes() / static_cast<std::size_t>(ranks_);
}

// ---------------------------------------------------------------- before all have spoken

bool SmallCalls::lay_out(const SmallCall& call) {
  laid_out_ = 0;
  const std::size_t bytes = call.bytes();
  switch (call.kind) {
  case CollectiveKind::allreduce:
    if (bytes > Shortcut::kRoom && bytes * static_cast<std::size_t>(ranks_) > kInputsRead * shortcut_.capacity())
      return false;
    break;
  case CollectiveKind::barrier:
  case CollectiveKind::reduce:
  case CollectiveKind::reduce_scatter:
  case CollectiveKind::broadcast:
  case CollectiveKind::alltoall:
    break;
  case CollectiveKind::allgather:
  case CollectiveKind::gather:
    return lay_out_contribution(call);
  case CollectiveKind::scatter:
    return lay_out_rows(call);
  default:
    return false;
  }
  if (!fits(bytes)) return false;
  copy_in(call, input_of(own_, bytes), unread_of(call));
  return true;
}

/// What no peer reads of this rank's input.
SmallCalls::Range SmallCalls::unread_of(const SmallCall& call) const noexcept {
  switch (call.kind) {
  case CollectiveKind::reduce:
  case CollectiveKind::gather:
    return call.root == own_ ? Range{0, call.bytes()} : Range{};
  case CollectiveKind::broadcast:
    return call.root == own_ ? Range{} : Range{0, call.bytes()};
  case CollectiveKind::reduce_scatter:
    return rows_of(call, own_);
  case CollectiveKind::alltoall: {
    const std::size_t begin = static_cast<std::size_t>(own_) * block_bytes(call);
    return {begin, begin + block_bytes(call)};
  }
  default:
    return {};
  }
}

void SmallCalls::copy_in(const SmallCall& call, std::byte* to, Range unread) {
  const auto copy = [&](std::size_t begin, std::size_t end) {
    if (begin == end) return;
    copy_(to + begin, call.buffer.input + begin, static_cast<std::int64_t>(end - begin));
    laid_out_ += end - begin;
  };
  copy(0, unread.begin);
  copy(unread.end, call.bytes());
}

bool SmallCalls::lay_out_contribution(const SmallCall& call) {
  const std::size_t bytes = call.bytes();
  if (!fits(bytes, sizeof(Head))) return false;
  write_head(shortcut_.room(own_), static_cast<Head>(bytes));
  copy_in(call, input_of(own_, bytes, sizeof(Head)), unread_of(call));
  return true;
}

/// The other ranks do not know how much the root gives: they guess by what they get.
bool SmallCalls::lay_out_rows(const SmallCall& call) {
  if (call.root != own_) {
    const auto ranks = static_cast<std::size_t>(ranks_);
    return fits(ranks * static_cast<std::size_t>(call.output_elements) * size_of(call.dtype), sizeof(Head));
  }
  const Span<const std::int64_t> splits = call.splits;
  const bool even = is_even(splits);
  const std::size_t table = even ? 0 : splits.size() * sizeof(std::int64_t);
  if (even ? !fits(call.bytes(), sizeof(Head)) : table + call.bytes() > shortcut_.capacity()) return false;
  write_head(shortcut_.room(own_), even ? splits[0] : kUneven);
  if (!even) std::memcpy(shortcut_.payload(own_), splits.data(), table);
  const std::size_t row = static_cast<std::size_t>(call.shape.elements()) * size_of(call.dtype);
  const auto before = static_cast<std::size_t>(sum_of(splits.begin(), splits.begin() + own_));
  const auto rows = static_cast<std::size_t>(splits[static_cast<std::size_t>(own_)]);
  std::byte* const to = even ? input_of(own_, call.bytes(), sizeof(Head)) : shortcut_.payload(own_) + table;
  copy_in(call, to, {before * row, (before + rows) * row});
  return true;
}

// ---------------------------------------------------------------- once all have spoken

void SmallCalls::take(const SmallCall& call) {
  const std::size_t bytes = call.bytes();
  switch (call.kind) {
  case CollectiveKind::allreduce:
    return reduce(call, {0, bytes});
  case CollectiveKind::reduce:
    if (call.root == own_) reduce(call, {0, bytes});
    return;
  case CollectiveKind::reduce_scatter:
    return reduce(call, rows_of(call, own_));
  case CollectiveKind::broadcast:
    return copy_out(call.buffer.output, call.root == own_ ? call.buffer.input : input_of(call.root, bytes), bytes);
  case CollectiveKind::alltoall:
    return exchange(call);
  case CollectiveKind::allgather:
    return take_contributions(call);
  case CollectiveKind::gather:
    if (call.root == own_) take_contributions(call);
    return;
  case CollectiveKind::scatter:
    return take_scattered(call);
  default:
    return;
  }
}

void SmallCalls::reduce(const SmallCall& call, Range range) {
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::byte* const input = rank == own_ ? call.buffer.input : input_of(rank, call.bytes());
    inputs_[static_cast<std::size_t>(rank)] = input + range.begin;
  }
  const int divisor = call.op == ReduceOp::average ? ranks_ : 1;
  const kernels::FloatMode float_mode;
  kernels::reduce({call.dtype, call.op, {call.prescale, call.postscale, divisor}}, inputs_.data(), ranks_,
                  call.buffer.output, static_cast<std::int64_t>((range.end - range.begin) / size_of(call.dtype)), own_);
}

void SmallCalls::take_contributions(const SmallCall& call) {
  for (int rank = 0; rank < ranks_; ++rank) lengths_[static_cast<std::size_t>(rank)] = head_at(shortcut_.room(rank));
  std::byte* to = call.make_room(lengths_);
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto bytes = static_cast<std::size_t>(lengths_[static_cast<std::size_t>(rank)]);
    copy_out(to, rank == own_ ? call.buffer.input : input_of(rank, bytes, sizeof(Head)), bytes);
    to += bytes;
  }
}

void SmallCalls::take_scattered(const SmallCall& call) {
  const auto ranks = static_cast<std::size_t>(ranks_);
  const auto own = static_cast<std::size_t>(own_);
  const Head each = head_at(shortcut_.room(call.root));
  std::size_t table = 0;
  if (each == kUneven) {
    table = ranks * sizeof(std::int64_t);
    std::memcpy(lengths_.data(), shortcut_.payload(call.root), table);
  } else {
    std::fill(lengths_.begin(), lengths_.end(), each);
  }
  const std::size_t row = static_cast<std::size_t>(call.shape.elements()) * size_of(call.dtype);
  const std::size_t begin = static_cast<std::size_t>(sum_of(lengths_.data(), lengths_.data() + own)) * row;
  const std::size_t all = static_cast<std::size_t>(sum_of(lengths_.data(), lengths_.data() + ranks)) * row;
  const std::int64_t rows = lengths_[own];
  std::fill(lengths_.begin(), lengths_.end(), 0);
  lengths_[static_cast<std::size_t>(call.root)] = rows;
  std::byte* const output = call.make_room(lengths_);
  const std::byte* from = call.buffer.input;
  if (call.root != own_)
    from = each == kUneven ? shortcut_.payload(call.root) + table : input_of(call.root, all, sizeof(Head));
  copy_out(output, from + begin, static_cast<std::size_t>(rows) * row);
}

void SmallCalls::exchange(const SmallCall& call) const {
  const std::size_t block = block_bytes(call);
  const std::size_t own = block * static_cast<std::size_t>(own_);
  // Each rank begins with the next one, so that not all read the same input at once.
  for (int distance = 0; distance < ranks_; ++distance) {
    const int peer = (own_ + distance) % ranks_;
    const std::byte* const input = peer == own_ ? call.buffer.input : input_of(peer, call.bytes());
    copy_out(call.buffer.output + block * static_cast<std::size_t>(peer), input + own, block);
  }
}

}  // namespace kolo::engine
