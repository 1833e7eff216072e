// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/broadcast.hpp"

#include <algorithm>

#include "data/kernels/copy.hpp"

namespace kolo::data::cpu {

void Broadcast::open(Runs runs, data::Job& /*job*/) {
  const data::Run& run = runs[0];
  open(run.root, run.pieces.data(), run.pieces.size(), run.elements, size_of(run.dtype));
}

void Broadcast::open(int root, const data::Piece* pieces, std::size_t count, std::int64_t elements,
                     std::size_t element_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * element_bytes;
  root_ = root;
  element_bytes_ = static_cast<std::int64_t>(element_bytes);
  elements_ = elements;
  chunk_elements_ = static_cast<std::int64_t>(site_.chunk_bytes(bytes) / element_bytes);
  past_cache_ = bytes >= site_.tuning.copied_past_cache_bytes;
  offset_ = 0;
  fill_cursor_ = take_cursor_ = PieceCursor(pieces, count);
}

Collective::Cut Broadcast::cut(Chunk& chunk, std::uint64_t /*taken*/) {
  if (offset_ == elements_) return Cut::end;
  chunk.of = this;
  chunk.begin = offset_;
  chunk.elements = std::min(elements_ - offset_, chunk_elements_);
  chunk.peers_read_at_take = is_root_near();
  chunk.exchanges = site_.lane;
  chunk.enters_when_filled = site_.lane != nullptr;
  offset_ += chunk.elements;
  return Cut::chunk;
}

Part Broadcast::own_share(const Chunk& chunk) const noexcept {
  return site_.own_share(chunk.elements, line_of(static_cast<std::size_t>(element_bytes_)));
}

void Broadcast::fill(Chunk& chunk) {
  if (!is_root()) return;
  std::byte* to = site_.own_slot(chunk);
  fill_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    site_.to_peers(to, piece.input + first * element_bytes_, elements * element_bytes_);
    to += elements * element_bytes_;
  });
}

void Broadcast::enter(const Chunk& chunk) {
  if (site_.lane == nullptr) return;
  const Part share = own_share(chunk);
  const std::size_t exchange = site_.exchange_of(chunk);
  if (is_root_near()) {
    const std::byte* from = site_.slot(site_.local_rank_of(root_), chunk) + share.begin * element_bytes_;
    kernels::copy(site_.lane->result(exchange), from, share.elements * element_bytes_);
  }
  site_.lane->start_broadcast(exchange, static_cast<std::size_t>(share.elements * element_bytes_),
                              site_.topology.node_of[static_cast<std::size_t>(root_)]);
}

/// Copies the own share into each local rank's slot.
void Broadcast::arrive(const Chunk& chunk) {
  if (is_root_near()) return;
  const Part share = own_share(chunk);
  const std::byte* from = site_.lane->result(site_.exchange_of(chunk));
  for (int peer = 0; peer < site_.local_size(); ++peer)
    kernels::copy(site_.slot(peer, chunk) + share.begin * element_bytes_, from, share.elements * element_bytes_);
}

bool Broadcast::ready(const Chunk& chunk) const {
  if (!is_root_near()) return Collective::ready(chunk);
  return site_.intra.reached(transport::Stage::filled, site_.local_rank_of(root_)) > chunk.number;
}

void Broadcast::take(const Chunk& chunk) {
  const std::byte* from = is_root_near() ? site_.slot(site_.local_rank_of(root_), chunk) : site_.own_slot(chunk);
  // Asking for the lines ahead gained nothing (measured where ranks share CPUs).
  const auto copy = past_cache_ ? &kernels::copy_past_cache : &kernels::copy;
  take_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    const std::byte* source = from;
    from += elements * element_bytes_;
    if (piece.output == nullptr || (is_root() && piece.input == piece.output)) return;
    copy(piece.output + first * element_bytes_, source, elements * element_bytes_);
  });
}

// ---------------------------------------------------------------- small calls

/// Each rank copies the root's input.
constexpr SmallPart Broadcast::kSmall = {
    [](CpuSmallCalls& calls, const SmallCall& call) {
      return calls.lay_out_input(call, calls.is_root(call) ? CpuSmallCalls::Range{} : whole(call));
    },
    [](CpuSmallCalls& calls, const SmallCall& call) {
      const std::size_t bytes = call.bytes();
      copy_out(call.tensor.output, calls.is_root(call) ? call.tensor.input : calls.input_of(call.root, bytes), bytes);
    }};

}  // namespace kolo::data::cpu
