// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/allreduce.hpp"

#include <algorithm>

namespace kolo::data::cpu {

// ---------------------------------------------------------------- the run

void Allreduce::open(const data::Run& run, data::Job& job) {
  job_ = &job;
  reduction_ = {run.dtype, run.op, {run.prescale, run.postscale, run.divisor}};
  element_bytes_ = size_of(run.dtype);
  cast_.reset();
  if (run.sent_as) {
    cast_ = Cast{run.dtype, static_cast<std::int64_t>(element_bytes_), run.prescale};
    reduction_ = {*run.sent_as, run.op, {1, run.postscale, run.divisor}};
    element_bytes_ = size_of(*run.sent_as);
  }
  open(run.pieces.data(), run.pieces.size(), run.elements);
}

void Allreduce::open(ReduceOp op, const data::Piece& numbers) {
  job_ = nullptr;
  reduction_ = {DType::int64, op, {}};
  element_bytes_ = sizeof(std::int64_t);
  cast_.reset();
  open(&numbers, 1, numbers.elements);
}

void Allreduce::open(const data::Piece* pieces, std::size_t count, std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * element_bytes_;
  elements_ = elements;
  chunk_elements_ = static_cast<std::int64_t>(site_.chunk_bytes(bytes) / element_bytes_);
  past_cache_ = bytes >= site_.tuning.past_cache_bytes;
  offset_ = 0;
  fill_cursor_ = take_cursor_ = PieceCursor(pieces, count);
}

Collective::Cut Allreduce::cut(Chunk& chunk, std::uint64_t /*taken*/) {
  if (offset_ == elements_) return Cut::end;
  chunk.of = this;
  chunk.begin = offset_;
  chunk.elements = std::min(elements_ - offset_, chunk_elements_);
  const bool small = static_cast<std::size_t>(chunk.elements) * element_bytes_ <= site_.tuning.flat_bytes;
  chunk.peers_read_at_take = site_.one_node() && small;
  chunk.exchanges = site_.lane;
  chunk.enters_when_filled = site_.one_node() ? !small : site_.lane != nullptr;
  offset_ += chunk.elements;
  return Cut::chunk;
}

std::string_view Allreduce::route(const data::Run& run) const {
  if (!site_.one_node()) return "lanes";
  const std::size_t bytes = static_cast<std::size_t>(run.elements) * size_of(run.sent_as.value_or(run.dtype));
  return bytes <= site_.tuning.flat_bytes ? "flat" : "sliced";
}

Part Allreduce::own_share(const Chunk& chunk) const noexcept {
  return site_.own_share(chunk.elements, line_of(element_bytes_));
}

/// What of the chunk neither fill nor take moves, because this rank's reduce does: from its inputs, to its outputs.
Part Allreduce::kept_share(const Chunk& chunk) const noexcept {
  return !is_flat(chunk) && !cast_ ? own_share(chunk) : Part{};
}

// ---------------------------------------------------------------- fill

void Allreduce::fill(Chunk& chunk) {
  chunk.cursor = fill_cursor_;
  const auto width = static_cast<std::int64_t>(element_bytes_);
  const Part kept = kept_share(chunk);
  std::byte* to = site_.own_slot(chunk);
  std::int64_t at = 0;
  std::size_t stretch = 0;
  std::int64_t placed = 0;
  const bool places = !is_flat(chunk) && !cast_ && job_ != nullptr && !site_.regions.empty();
  fill_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    if (!places || place_of(chunk, piece, first, elements, stretch++) == transport::kNowhere) {
      around(kept, at, elements, [&](std::int64_t from, std::int64_t count) {
        if (cast_) {
          kernels::scale_and_cast(cast_->memory, piece.input + (first + from - at) * cast_->width, reduction_.dtype,
                                  to + from * width, count, cast_->prescale);
        } else {
          kernels::copy_ahead(to + from * width, piece.input + (first + from - at) * width, count * width);
        }
      });
    } else {
      placed += elements;
    }
    at += elements;
  });
  site_.intra.set_placed(chunk.number, placed > 0);
  if (placed > 0) job_->bytes_in_place += static_cast<std::uint64_t>(placed * width);
}

/// Where the peers will find a stretch of the chunk that is being filled, if not in the slot; written down for them.
transport::Place Allreduce::place_of(const Chunk& chunk, const data::Piece& piece, std::int64_t first,
                                     std::int64_t elements, std::size_t stretch) {
  if (stretch >= transport::kPlaces) return transport::kNowhere;
  transport::Place place = transport::kNowhere;
  if (piece.input == piece.output)
    place = site_.regions.find(piece.input + static_cast<std::size_t>(first) * element_bytes_,
                               static_cast<std::size_t>(elements) * element_bytes_);
  site_.intra.places(site_.local_rank(), chunk.number)[stretch] = place;
  return place;
}

// ---------------------------------------------------------------- reduce

/// Points `inputs` and `outputs` at everybody's memory of the own share, `part`, stretch by stretch, and calls
/// visit(first element, elements), counted from the share's begin.
template <class Visit>
void Allreduce::each_stretch(const Chunk& chunk, const Part& part, Visit&& visit) {
  const std::size_t width = element_bytes_;
  const auto self = static_cast<std::size_t>(site_.local_rank());
  if (part.elements == 0) return;
  PieceCursor cursor = chunk.cursor;
  std::int64_t at = 0;
  std::size_t stretch = 0;
  cursor.advance(part.begin + part.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    const std::int64_t begin = std::max(at, part.begin);
    const std::int64_t end = at + elements;
    if (begin < end) {
      for (int peer = 0; peer < site_.local_size(); ++peer) {
        site_.inputs[static_cast<std::size_t>(peer)] = site_.outputs[static_cast<std::size_t>(peer)] =
            peers_memory(peer, chunk, stretch, static_cast<std::size_t>(begin) * width,
                         static_cast<std::size_t>(begin - at) * width);
      }
      if (!cast_) {
        const std::size_t offset = static_cast<std::size_t>(first + begin - at) * width;
        site_.inputs[self] = piece.input + offset;
        site_.outputs[self] = piece.output + offset;
      }
      visit(begin - part.begin, end - begin);
    }
    at = end;
    ++stretch;
  });
}

/// Where a peer's stretch lies: `in_slot` bytes into its slot, or `in_stretch` bytes into its place.
std::byte* Allreduce::peers_memory(int peer, const Chunk& chunk, std::size_t stretch, std::size_t in_slot,
                                   std::size_t in_stretch) {
  if (stretch < transport::kPlaces && site_.intra.is_placed(peer, chunk.number)) {
    const transport::Place place = site_.intra.places(peer, chunk.number)[stretch];
    if (place != transport::kNowhere) return site_.regions.at(peer, place) + in_stretch;
  }
  return site_.slot(peer, chunk) + in_slot;
}

void Allreduce::enter(const Chunk& chunk) {
  if (is_flat(chunk)) return;
  const Part share = own_share(chunk);
  const int ranks = site_.local_size();
  if (site_.one_node()) {
    each_stretch(chunk, share, [&](std::int64_t, std::int64_t elements) {
      kernels::reduce_to_all(reduction_, site_.inputs.data(), ranks, site_.outputs.data(), ranks, elements);
    });
    return;
  }
  if (site_.lane == nullptr) return;
  const std::size_t exchange = site_.exchange_of(chunk);
  const std::size_t wide = size_of(kernels::accumulator_of(reduction_.dtype));
  each_stretch(chunk, share, [&](std::int64_t first, std::int64_t elements) {
    kernels::reduce_partial(reduction_, site_.inputs.data(), ranks,
                            site_.lane->partial(exchange) + static_cast<std::size_t>(first) * wide, elements);
  });
  site_.lane->start_allreduce(exchange, reduction_, share.elements);
}

/// Brings the own share of the result to where each local rank takes it from, and to the own output.
void Allreduce::arrive(const Chunk& chunk) {
  each_stretch(chunk, own_share(chunk), [&](std::int64_t first, std::int64_t elements) {
    site_.lane->deliver(site_.exchange_of(chunk), first, elements, site_.outputs.data(), site_.local_size());
  });
}

// ---------------------------------------------------------------- take

void Allreduce::take(const Chunk& chunk) { is_flat(chunk) ? reduce_out(chunk) : copy_out(chunk); }

void Allreduce::reduce_out(const Chunk& chunk) {
  for (int peer = 0; peer < site_.local_size(); ++peer)
    site_.inputs[static_cast<std::size_t>(peer)] = site_.slot(peer, chunk);
  if (cast_) site_.scratch.resize(static_cast<std::size_t>(chunk.elements) * element_bytes_);
  take_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    std::byte* output = cast_ ? site_.scratch.data() : piece.output + static_cast<std::size_t>(first) * element_bytes_;
    kernels::reduce(reduction_, site_.inputs.data(), site_.local_size(), output, elements);
    if (cast_) kernels::cast(reduction_.dtype, output, cast_->memory, piece.output + first * cast_->width, elements);
    for (const void*& input : site_.inputs)
      input = static_cast<const std::byte*>(input) + static_cast<std::size_t>(elements) * element_bytes_;
  });
}

void Allreduce::copy_out(const Chunk& chunk) {
  const auto width = static_cast<std::int64_t>(element_bytes_);
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
      const bool apart = piece.output != piece.input;
      const auto copy = apart && past_cache_ ? &kernels::copy_past_cache : &kernels::copy_ahead;
      around(kept, at, elements, [&](std::int64_t from, std::int64_t count) {
        if (cast_) {
          kernels::cast(reduction_.dtype, slot + from * width, cast_->memory,
                        piece.output + (first + from - at) * cast_->width, count);
        } else {
          copy(piece.output + (first + from - at) * width, slot + from * width, count * width);
        }
      });
    }
    at += elements;
    ++stretch;
  });
}

}  // namespace kolo::data::cpu
