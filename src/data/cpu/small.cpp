// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/small.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/machine.hpp"
#include "data/cpu/registry.hpp"
#include "data/kernels/copy.hpp"
#include "data/kernels/float_mode.hpp"
#include "data/kernels/reduction.hpp"

namespace kolo::data::cpu {

void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) kernels::copy(to, from, static_cast<std::int64_t>(bytes));
}

CpuSmallCalls::CpuSmallCalls(core::ShortcutMemory memory, const Routes& routes, kernels::PeerCopy to_peers)
    : lengths(static_cast<std::size_t>(memory.ranks())), memory_(std::move(memory)), routes_(routes), copy_(to_peers),
      inputs_(lengths.size()) {}

bool CpuSmallCalls::lay_out(core::Round number, const SmallCall& call) {
  number_ = number;
  laid_out_ = 0;
  if (!routes_.may_take(call.kind, Route::small, call.bytes())) return false;
  if (core::traits_of(call.kind).shapes == core::Shapes::none) return true;  // the words say all
  const SmallPart* const part = small_part(call.kind);
  return part != nullptr && part->lay_out(*this, call);
}

void CpuSmallCalls::take(const SmallCall& call) {
  const SmallPart* const part = small_part(call.kind);
  if (part != nullptr) part->take(*this, call);
}

/// The lines of the next call are taken from the peers' caches while this rank waits for their words. A peer that is
/// still copying from them, in the call before this one, asks for them once more. Not those of a long payload, which
/// may be written past the cache.
void CpuSmallCalls::expect_next() noexcept {
  constexpr std::size_t kMost = 1 << 10;
  constexpr std::size_t kLong = 8 << 10;
  base::claim_lines(&memory_.word(own(), number_ + 1), sizeof(core::ShortcutMemory::Word) + memory_.kInlineBytes);
  if (laid_out_ <= memory_.kInlineBytes || laid_out_ >= kLong) return;
  base::claim_lines(memory_.payload(own(), number_ + 1), std::min(laid_out_, kMost));
}

// ---------------------------------------------------------------- what parts share

bool CpuSmallCalls::fits(std::size_t bytes, std::size_t head) const noexcept {
  return bytes <= memory_.kInlineBytes - head || bytes <= memory_.capacity();
}

std::byte* CpuSmallCalls::input_of(int rank, std::size_t bytes, std::size_t head) const noexcept {
  return bytes <= memory_.kInlineBytes - head ? memory_.inlined(rank, number_) + head : memory_.payload(rank, number_);
}

void CpuSmallCalls::write_head(Head head) const noexcept {
  std::memcpy(memory_.inlined(own(), number_), &head, sizeof head);
}

CpuSmallCalls::Head CpuSmallCalls::head_of(int rank) const noexcept {
  Head head = 0;
  std::memcpy(&head, memory_.inlined(rank, number_), sizeof head);
  return head;
}

void CpuSmallCalls::copy_in(const SmallCall& call, std::byte* to, Range unread) {
  const auto copy = [&](std::size_t begin, std::size_t end) {
    if (begin == end) return;
    copy_(to + begin, call.tensor.input + begin, static_cast<std::int64_t>(end - begin));
    laid_out_ += end - begin;
  };
  copy(0, unread.begin);
  copy(unread.end, call.bytes());
}

bool CpuSmallCalls::lay_out_input(const SmallCall& call, Range unread) {
  if (!fits(call.bytes())) return false;
  copy_in(call, input_of(own(), call.bytes()), unread);
  return true;
}

bool CpuSmallCalls::lay_out_contribution(const SmallCall& call, Range unread) {
  const std::size_t bytes = call.bytes();
  if (!fits(bytes, sizeof(Head))) return false;
  write_head(static_cast<Head>(bytes));
  copy_in(call, input_of(own(), bytes, sizeof(Head)), unread);
  return true;
}

void CpuSmallCalls::reduce(const SmallCall& call, Range range) {
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::byte* const input = rank == own() ? call.tensor.input : input_of(rank, call.bytes());
    inputs_[static_cast<std::size_t>(rank)] = input + range.begin;
  }
  const int divisor = call.op == ReduceOp::average ? ranks() : 1;
  const kernels::FloatMode float_mode;
  kernels::reduce({call.dtype, call.op, {call.prescale, call.postscale, divisor}}, inputs_.data(), ranks(),
                  call.tensor.output, static_cast<std::int64_t>((range.end - range.begin) / size_of(call.dtype)),
                  own());
}

void CpuSmallCalls::take_contributions(const SmallCall& call) {
  for (int rank = 0; rank < ranks(); ++rank) lengths[static_cast<std::size_t>(rank)] = head_of(rank);
  std::byte* to = call.make_room(lengths);
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto bytes = static_cast<std::size_t>(lengths[static_cast<std::size_t>(rank)]);
    copy_out(to, rank == own() ? call.tensor.input : input_of(rank, bytes, sizeof(Head)), bytes);
    to += bytes;
  }
}

}  // namespace kolo::data::cpu
