// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/allreduce.hpp"

#include <algorithm>

#include "core/collectives.hpp"

namespace kolo::data::cpu {

namespace {

/// Flat chunks of a reduce, as measured: 16 MiB took 2 ranks 1540 us with 128 KiB, 1640 with 256 and 1600 with 64; 4
/// MiB took 4 ranks 780 us with 64 KiB and 870 with 32.
constexpr int kFewRanks = 3;
constexpr std::size_t kMostOfFew = 128 << 10;
constexpr std::size_t kMostOfMany = 64 << 10;

}  // namespace

// ---------------------------------------------------------------- the run

void Allreduce::open(const data::Run& run, data::Job* job) {
  const bool has_root = core::traits_of(run.kind).rooted;
  format_ = WireFormat(run.dtype, run.wire);
  const std::size_t bytes = format_.bytes(run.elements);
  job_ = has_root ? nullptr : job;
  root_ = has_root ? run.root : kEverybody;
  reduction_ = {run.dtype, run.op, {run.prescale, run.postscale, run.divisor}};
  element_bytes_ = static_cast<std::int64_t>(size_of(run.dtype));
  elements_ = run.elements;
  is_flat_ = site_.takes(run.kind, Route::flat, bytes);
  std::size_t chunk_bytes = site_.chunk_bytes(bytes);
  if (is_flat_ && has_root)
    chunk_bytes = std::min(chunk_bytes, site_.local_size() <= kFewRanks ? kMostOfFew : kMostOfMany);
  chunk_elements_ = format_.elements_in(chunk_bytes) / format_.granule() * format_.granule();
  past_cache_ = bytes >= site_.tuning.past_cache_bytes;
  if (!has_root) {
    first_target_ = 0;
    targets_ = site_.local_size();
    to_node_ = Lane::kAllNodes;
  } else {
    targets_ = site_.is_near(root_) ? 1 : 0;
    first_target_ = targets_ > 0 ? site_.local_rank_of(root_) : 0;
    to_node_ = site_.topology.node_of[static_cast<std::size_t>(root_)];
  }
  offset_ = 0;
  fill_cursor_ = take_cursor_ = PieceCursor(run.pieces.data(), run.pieces.size());
}

Collective::Cut Allreduce::cut(Chunk& chunk, std::uint64_t /*taken*/) {
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

Part Allreduce::own_share(const Chunk& chunk) const noexcept {
  return site_.own_share(chunk.elements, format_.granule());
}

/// A root that reduces flat reads its inputs and writes its outputs when it takes.
Part Allreduce::kept_share(const Chunk& chunk) const noexcept {
  if (!format_.is_plain()) return {};
  if (!is_flat(chunk)) return own_share(chunk);
  return root_ == site_.topology.rank ? Part{0, chunk.elements} : Part{};
}

// ---------------------------------------------------------------- fill

void Allreduce::fill(Chunk& chunk) {
  chunk.cursor = fill_cursor_;
  const Part kept = kept_share(chunk);
  std::byte* to = site_.own_slot(chunk);
  std::int64_t at = 0;
  std::size_t stretch = 0;
  std::int64_t placed = 0;
  const bool places = !is_flat(chunk) && format_.is_plain() && job_ != nullptr && !site_.regions.empty();
  fill_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    if (!places || place_of(chunk, piece, first, elements, stretch++) == transport::kNowhere) {
      around(kept, at, elements, [&](std::int64_t from, std::int64_t count) {
        format_.encode(piece.input + (first + from - at) * element_bytes_, count, reduction_.scaling.prescale,
                       to + format_.bytes(from), site_.to_peers);
      });
    } else {
      placed += elements;
    }
    at += elements;
  });
  site_.intra.set_placed(chunk.number, placed > 0);
  if (placed > 0) job_->bytes_in_place += static_cast<std::uint64_t>(placed * element_bytes_);
}

/// Where the peers will find a stretch of the chunk that is being filled, if not in the slot; written down for them.
transport::Place Allreduce::place_of(const Chunk& chunk, const data::Piece& piece, std::int64_t first,
                                     std::int64_t elements, std::size_t stretch) {
  if (stretch >= transport::kPlaces) return transport::kNowhere;
  transport::Place place = transport::kNowhere;
  if (piece.input == piece.output)
    place =
        site_.regions.find(piece.input + first * element_bytes_, static_cast<std::size_t>(elements * element_bytes_));
  site_.intra.places(site_.local_rank(), chunk.number)[stretch] = place;
  return place;
}

// ---------------------------------------------------------------- reduce

/// Points `inputs` and `outputs` at everybody's memory of the own share, `part`, stretch by stretch, and calls
/// visit(first element, elements), counted from the share's begin. A rank that has no output gets no result.
template <class Visit>
void Allreduce::each_stretch(const Chunk& chunk, const Part& part, Visit&& visit) {
  const auto self = static_cast<std::size_t>(site_.local_rank());
  if (part.elements == 0) return;
  find_peers(chunk);
  PieceCursor cursor = chunk.cursor;
  std::int64_t at = 0;
  std::size_t stretch = 0;
  cursor.advance(part.begin + part.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    const std::int64_t begin = std::max(at, part.begin);
    const std::int64_t end = at + elements;
    if (begin < end) {
      for (int peer = 0; peer < site_.local_size(); ++peer) {
        site_.inputs[static_cast<std::size_t>(peer)] = site_.outputs[static_cast<std::size_t>(peer)] =
            peers_memory(peer, stretch, begin, begin - at);
      }
      if (format_.is_plain()) {
        const std::int64_t offset = (first + begin - at) * element_bytes_;
        site_.inputs[self] = piece.input + offset;
        if (piece.output != nullptr) site_.outputs[self] = piece.output + offset;
      }
      visit(begin - part.begin, end - begin);
    }
    at = end;
    ++stretch;
  });
}

void Allreduce::find_peers(const Chunk& chunk) {
  peers_.resize(static_cast<std::size_t>(site_.local_size()));
  for (int peer = 0; peer < site_.local_size(); ++peer) {
    const bool placed = site_.intra.is_placed(peer, chunk.number);
    peers_[static_cast<std::size_t>(peer)] = {site_.slot(peer, chunk),
                                              placed ? site_.intra.places(peer, chunk.number) : nullptr};
  }
}

/// Where a peer's stretch lies: `in_chunk` elements into its slot, or `in_stretch` elements into its place.
inline std::byte* Allreduce::peers_memory(int peer, std::size_t stretch, std::int64_t in_chunk,
                                          std::int64_t in_stretch) const {
  const Peer& its = peers_[static_cast<std::size_t>(peer)];
  if (its.places != nullptr && stretch < transport::kPlaces && its.places[stretch] != transport::kNowhere)
    return site_.at(peer, its.places[stretch]) + in_stretch * element_bytes_;
  return its.slot + format_.bytes(in_chunk);
}

void Allreduce::enter(const Chunk& chunk) {
  if (is_flat(chunk)) return;
  const Part share = own_share(chunk);
  const int ranks = site_.local_size();
  if (site_.one_node()) {
    each_stretch(chunk, share, [&](std::int64_t, std::int64_t elements) {
      format_.reduce(reduction_, site_.inputs.data(), ranks, targets(), targets_, elements);
    });
    return;
  }
  if (site_.lane == nullptr) return;
  const std::size_t exchange = site_.exchange_of(chunk);
  const auto sum_bytes = static_cast<std::int64_t>(size_of(format_.sums()));
  each_stretch(chunk, share, [&](std::int64_t first, std::int64_t elements) {
    format_.reduce_partial(reduction_, site_.inputs.data(), ranks, site_.lane->partial(exchange) + first * sum_bytes,
                           elements);
  });
  site_.lane->start_reduce(exchange, format_, reduction_, share.elements, to_node_);
}

/// Brings the own share of the result to where each rank that gets it takes it from, and to the own output.
void Allreduce::arrive(const Chunk& chunk) {
  if (targets_ == 0) return;
  each_stretch(chunk, own_share(chunk), [&](std::int64_t first, std::int64_t elements) {
    site_.lane->deliver(site_.exchange_of(chunk), first, elements, targets(), targets_);
  });
}

// ---------------------------------------------------------------- take

/// Flat, nobody waits for what a root does but the next chunk of the slot.
bool Allreduce::ready(const Chunk& chunk) const {
  return (is_flat(chunk) && !gets_result()) || Collective::ready(chunk);
}

void Allreduce::take(const Chunk& chunk) {
  if (gets_result()) is_flat(chunk) ? reduce_out(chunk) : copy_out(chunk);
}

/// The own input is read where it lies: nobody but peers reads the own slot.
void Allreduce::reduce_out(const Chunk& chunk) {
  const bool plain = format_.is_plain();
  const int ranks = site_.local_size();
  const int own = site_.local_rank();
  if (!plain) site_.scratch.reserve(format_.bytes(chunk.elements));
  std::int64_t at = 0;
  take_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    for (int peer = 0; peer < ranks; ++peer)
      site_.inputs[static_cast<std::size_t>(peer)] = site_.slot(peer, chunk) + format_.bytes(at);
    const std::byte* input = piece.input + first * element_bytes_;
    std::byte* output = piece.output + first * element_bytes_;
    if (plain) {
      site_.inputs[static_cast<std::size_t>(own)] = input;
      const bool past_cache = past_cache_ && input != output;
      (past_cache ? kernels::reduce_past_cache : kernels::reduce)(reduction_, site_.inputs.data(), ranks, output,
                                                                  elements, own);
    } else {
      void* const sum = site_.scratch.data();
      format_.reduce(reduction_, site_.inputs.data(), ranks, &sum, 1, elements);
      format_.decode(site_.scratch.data(), elements, output, false);
    }
    at += elements;
  });
}

void Allreduce::copy_out(const Chunk& chunk) {
  const std::byte* slot = site_.own_slot(chunk);
  const transport::Place* places = site_.intra.is_placed(site_.local_rank(), chunk.number)
                                       ? site_.intra.places(site_.local_rank(), chunk.number)
                                       : nullptr;
  const Part kept = kept_share(chunk);
  std::int64_t at = 0;
  std::size_t stretch = 0;
  take_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    const bool placed = places != nullptr && stretch < transport::kPlaces && places[stretch] != transport::kNowhere;
    if (!placed) {
      const bool past_cache = past_cache_ && piece.output != piece.input;
      around(kept, at, elements, [&](std::int64_t from, std::int64_t count) {
        format_.decode(slot + format_.bytes(from), count, piece.output + (first + from - at) * element_bytes_,
                       past_cache);
      });
    }
    at += elements;
    ++stretch;
  });
}

// ---------------------------------------------------------------- small calls

/// Each rank reduces all inputs.
constexpr SmallPart Allreduce::kSmall = {
    [](CpuSmallCalls& calls, const SmallCall& call) { return calls.lay_out_input(call, {}); },
    [](CpuSmallCalls& calls, const SmallCall& call) { calls.reduce(call, whole(call)); }};

/// The root reduces all inputs.
constexpr SmallPart Allreduce::kSmallToRoot = {[](CpuSmallCalls& calls, const SmallCall& call) {
                                                 return calls.lay_out_input(
                                                     call, calls.is_root(call) ? whole(call) : CpuSmallCalls::Range{});
                                               },
                                               [](CpuSmallCalls& calls, const SmallCall& call) {
                                                 if (calls.is_root(call)) calls.reduce(call, whole(call));
                                               }};

}  // namespace kolo::data::cpu
