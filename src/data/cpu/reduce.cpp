// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/reduce.hpp"

#include <algorithm>

namespace kolo::data::cpu {

namespace {

/// Flat chunks, as measured: 16 MiB took 2 ranks 1540 us with 128 KiB, 1640 with 256 and 1600 with 64; 4 MiB took 4
/// ranks 780 us with 64 KiB and 870 with 32.
constexpr int kFewRanks = 3;
constexpr std::size_t kMostOfFew = 128 << 10;
constexpr std::size_t kMostOfMany = 64 << 10;

}  // namespace

// ---------------------------------------------------------------- the run

void Reduce::open(Runs runs, data::Job& /*job*/) {
  const data::Run& run = runs[0];
  const WireFormat& format = wire_format(run.dtype, run.wire);
  const std::size_t bytes = format.bytes(run.elements);
  root_ = run.root;
  format_ = &format;
  reduction_ = {run.dtype, run.op, {run.prescale, run.postscale, run.divisor}};
  element_bytes_ = static_cast<std::int64_t>(size_of(run.dtype));
  elements_ = run.elements;
  std::size_t chunk_bytes = site_.chunk_bytes(bytes);
  is_flat_ = site_.takes(run.kind, Route::flat, bytes);
  if (is_flat_) chunk_bytes = std::min(chunk_bytes, site_.local_size() <= kFewRanks ? kMostOfFew : kMostOfMany);
  chunk_elements_ = format.elements_in(chunk_bytes) / format.granule() * format.granule();
  past_cache_ = bytes >= site_.tuning.past_cache_bytes;
  offset_ = 0;
  fill_cursor_ = take_cursor_ = PieceCursor(run.pieces.data(), run.pieces.size());
}

Collective::Cut Reduce::cut(Chunk& chunk, std::uint64_t /*taken*/) {
  if (offset_ == elements_) return Cut::end;
  chunk.of = this;
  chunk.begin = offset_;
  chunk.elements = std::min(elements_ - offset_, chunk_elements_);
  chunk.peers_read_at_take = is_flat_;
  chunk.exchanges = site_.lane;
  chunk.enters_when_filled = site_.one_node() ? !is_flat_ : site_.lane != nullptr;
  offset_ += chunk.elements;
  return Cut::chunk;
}

Part Reduce::own_share(const Chunk& chunk) const noexcept {
  return site_.own_share(chunk.elements, format_->granule());
}

/// What of the chunk this rank reads from its inputs when it reduces, so that it need not be filled, and what the root
/// writes to its outputs then, so that it need not be taken.
Part Reduce::kept_share(const Chunk& chunk) const noexcept {
  if (!format_->is_plain()) return {};
  if (!is_flat(chunk)) return own_share(chunk);
  return is_root() ? Part{0, chunk.elements} : Part{};
}

// ---------------------------------------------------------------- fill

void Reduce::fill(Chunk& chunk) {
  chunk.cursor = fill_cursor_;
  const Part kept = kept_share(chunk);
  std::byte* to = site_.own_slot(chunk);
  std::int64_t at = 0;
  fill_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    around(kept, at, elements, [&](std::int64_t from, std::int64_t count) {
      format_->encode(piece.input + (first + from - at) * element_bytes_, count, reduction_.scaling.prescale,
                      to + format_->bytes(from), site_.to_peers);
    });
    at += elements;
  });
}

// ---------------------------------------------------------------- reduce

/// Points the site's inputs at element `at` of the chunk in all local slots.
void Reduce::point_at_slots(const Chunk& chunk, std::int64_t at) {
  for (int peer = 0; peer < site_.local_size(); ++peer)
    site_.inputs[static_cast<std::size_t>(peer)] = site_.slot(peer, chunk) + format_->bytes(at);
}

/// Points the site's inputs at everybody's elements of the own share, stretch by stretch, and calls visit(first
/// element, elements, memory of the root for their result), counted from the share's begin. Null: the root is
/// elsewhere.
template <class Visit>
void Reduce::each_stretch(const Chunk& chunk, Visit&& visit) {
  const Part share = own_share(chunk);
  if (share.elements == 0) return;
  const auto self = static_cast<std::size_t>(site_.local_rank());
  std::byte* const result = site_.is_near(root_) ? site_.slot(site_.local_rank_of(root_), chunk) : nullptr;
  PieceCursor cursor = chunk.cursor;
  std::int64_t at = 0;
  cursor.advance(share.begin + share.elements,
                 [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
                   const std::int64_t begin = std::max(at, share.begin);
                   const std::int64_t end = at + elements;
                   if (begin < end) {
                     point_at_slots(chunk, begin);
                     std::byte* sum = result != nullptr ? result + format_->bytes(begin) : nullptr;
                     if (format_->is_plain()) {
                       const std::int64_t offset = (first + begin - at) * element_bytes_;
                       site_.inputs[self] = piece.input + offset;
                       if (is_root()) sum = piece.output + offset;
                     }
                     visit(begin - share.begin, end - begin, sum);
                   }
                   at = end;
                 });
}

void Reduce::enter(const Chunk& chunk) {
  if (is_flat(chunk)) return;
  const int ranks = site_.local_size();
  if (site_.one_node()) {
    each_stretch(chunk, [&](std::int64_t, std::int64_t elements, std::byte* sum) {
      void* const output = sum;
      format_->reduce(reduction_, site_.inputs.data(), ranks, &output, 1, elements);
    });
    return;
  }
  if (site_.lane == nullptr) return;
  const std::size_t exchange = site_.exchange_of(chunk);
  const auto sum_bytes = static_cast<std::int64_t>(size_of(format_->sums()));
  each_stretch(chunk, [&](std::int64_t first, std::int64_t elements, std::byte*) {
    format_->reduce_partial(reduction_, site_.inputs.data(), ranks, site_.lane->partial(exchange) + first * sum_bytes,
                            elements);
  });
  site_.lane->start_reduce(exchange, *format_, reduction_, own_share(chunk).elements,
                           site_.topology.node_of[static_cast<std::size_t>(root_)]);
}

/// On the root's node: brings the own share of the result to where the root takes it from, or to its output.
void Reduce::arrive(const Chunk& chunk) {
  if (!site_.is_near(root_)) return;
  each_stretch(chunk, [&](std::int64_t first, std::int64_t elements, std::byte* result) {
    void* const output = result;
    site_.lane->deliver(site_.exchange_of(chunk), first, elements, &output, 1);
  });
}

// ---------------------------------------------------------------- take

/// Flat, nobody waits for what the root does but the next chunk of the slot.
bool Reduce::ready(const Chunk& chunk) const { return (is_flat(chunk) && !is_root()) || Collective::ready(chunk); }

void Reduce::take(const Chunk& chunk) {
  if (!is_root()) return;
  is_flat(chunk) ? reduce_out(chunk) : copy_out(chunk);
}

void Reduce::reduce_out(const Chunk& chunk) {
  const bool plain = format_->is_plain();
  const int ranks = site_.local_size();
  if (!plain) site_.scratch.reserve(format_->bytes(chunk.elements));
  std::int64_t at = 0;
  take_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    point_at_slots(chunk, at);
    const std::byte* input = piece.input + first * element_bytes_;
    std::byte* output = piece.output + first * element_bytes_;
    if (plain) {
      const int own = site_.local_rank();
      site_.inputs[static_cast<std::size_t>(own)] = input;
      const bool past_cache = past_cache_ && input != output;
      (past_cache ? kernels::reduce_past_cache : kernels::reduce)(reduction_, site_.inputs.data(), ranks, output,
                                                                  elements, own);
    } else {
      void* const sum = site_.scratch.data();
      format_->reduce(reduction_, site_.inputs.data(), ranks, &sum, 1, elements);
      format_->decode(site_.scratch.data(), elements, output, false);
    }
    at += elements;
  });
}

void Reduce::copy_out(const Chunk& chunk) {
  const std::byte* slot = site_.own_slot(chunk);
  const Part kept = kept_share(chunk);
  std::int64_t at = 0;
  take_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    const bool past_cache = past_cache_ && piece.output != piece.input;
    around(kept, at, elements, [&](std::int64_t from, std::int64_t count) {
      format_->decode(slot + format_->bytes(from), count, piece.output + (first + from - at) * element_bytes_,
                      past_cache);
    });
    at += elements;
  });
}

// ---------------------------------------------------------------- small calls

/// The root reduces all inputs.
constexpr SmallPart Reduce::kSmall = {[](CpuSmallCalls& calls, const SmallCall& call) {
                                        return calls.lay_out_input(call, calls.is_root(call) ? whole(call)
                                                                                             : CpuSmallCalls::Range{});
                                      },
                                      [](CpuSmallCalls& calls, const SmallCall& call) {
                                        if (calls.is_root(call)) calls.reduce(call, whole(call));
                                      }};

}  // namespace kolo::data::cpu
