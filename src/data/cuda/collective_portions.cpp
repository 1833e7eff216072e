// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <string>

#include "base/check.hpp"
#include "core/collectives.hpp"
#include "data/cuda/portions.hpp"

namespace kolo::cuda {
namespace {

using core::CollectiveKind;

void allreduce(PortionPlanner& portions, const data::Run& run, const Uneven* /*uneven*/) {
  const bool is_lone = portions.has_lone_piece(run);
  // First what shares calls: a call ends where a tensor lies elsewhere.
  for (const data::Piece& piece : run.pieces) {
    const Segment whole = portions.segment_of(run, piece);
    if (!portions.is_in_arena(run, piece) && !portions.is_direct(run, whole.bytes, is_lone))
      portions.reduce_in_buffer(run, whole);
  }
  portions.reduce_in_arena(run);
  for (const data::Piece& piece : run.pieces) {
    const Segment whole = portions.segment_of(run, piece);
    if (whole.bytes > 0 && !portions.is_in_arena(run, piece) && portions.is_direct(run, whole.bytes, is_lone))
      portions.reduce_direct(run, whole, Call::Kind::all_reduce);
  }
}

/// The root alone unpacks, or has an output: of the others NCCL asks for none. First what shares calls, as above.
void reduce(PortionPlanner& portions, const data::Run& run, const Uneven* /*uneven*/) {
  const bool is_root = run.root == portions.limits().rank;
  const bool is_lone = portions.has_lone_piece(run);
  for (const bool direct : {false, true}) {
    for (const data::Piece& piece : run.pieces) {
      Segment whole = portions.segment_of(run, piece);
      whole.unpacks = is_root;
      if (whole.bytes == 0 || portions.is_direct(run, whole.bytes, is_lone) != direct) continue;
      direct ? portions.reduce_direct(run, whole, Call::Kind::reduce) : portions.reduce_in_buffer(run, whole);
    }
  }
}

/// Through a buffer everything is reduced, rank by rank's rows, the same on all ranks, and a rank unpacks its own.
void reduce_scatter(PortionPlanner& portions, const data::Run& run, const Uneven* /*uneven*/) {
  if (run.elements == 0) return;
  const PortionLimits& limits = portions.limits();
  const std::int64_t width = run.elements / run.rows * static_cast<std::int64_t>(size_of(run.dtype));
  const data::Piece& piece = run.pieces.front();
  Segment part = portions.segment_of(run, piece);
  if (run.rows % limits.size == 0 && portions.is_direct(run, part.bytes, /*is_lone=*/true)) {
    part.bytes /= static_cast<std::uint64_t>(limits.size);
    portions.reduce_direct(run, part, Call::Kind::reduce_scatter);
    return;
  }
  for (int rank = 0; rank < limits.size; ++rank) {
    const data::RowsOf rows(run.rows, rank, limits.size);
    if (piece.input != nullptr) part.input = piece.input + rows.begin * width;
    part.bytes = static_cast<std::uint64_t>(rows.count * width);
    part.unpacks = rank == limits.rank;
    part.output = part.unpacks ? piece.output : nullptr;
    portions.reduce_in_buffer(run, part);
  }
}

void broadcast(PortionPlanner& portions, const data::Run& run, const Uneven* /*uneven*/) {
  const bool is_root = run.root == portions.limits().rank;
  for (const data::Piece& piece : run.pieces) {
    Segment whole = portions.segment_of(run, piece);
    whole.element = Element::plain;
    whole.in_buffer = Element::plain;
    whole.scaling = Scaling();
    if (!portions.limits().direct) {
      whole.packs = is_root;
      whole.unpacks = !is_root || piece.input != piece.output;
      portions.broadcast_in_buffer(whole, portions.limits().buffer_bytes, run.root);
      continue;
    }
    portions.call_direct({.kind = Call::Kind::broadcast,
                          .from = piece.input,
                          .to = piece.output,
                          .count = whole.bytes,
                          .peer = run.root});
  }
}

/// From the root to the other rank.
void message(PortionPlanner& portions, const data::Run& run, const Uneven* uneven) {
  const PortionLimits& limits = portions.limits();
  if (!limits.direct || limits.size != 2) return broadcast(portions, run, uneven);
  const data::Piece& piece = run.pieces.front();
  portions.call_direct({.kind = run.root == limits.rank ? Call::Kind::send : Call::Kind::receive,
                        .from = piece.input,
                        .to = piece.output,
                        .count = portions.segment_of(run, piece).bytes,
                        .peer = 1 - limits.rank});
}

// ---------------------------------------------------------------- who sends how much to whom differs

/// Everybody sends to everybody, this rank to itself, too, unless it is there already: NCCL makes a copy of that.
void exchange_direct(PortionPlanner& portions, const data::Piece& piece, const Uneven& uneven, bool gathers) {
  const auto size = static_cast<std::size_t>(portions.limits().size);
  const auto rank = static_cast<std::size_t>(portions.limits().rank);
  const std::byte* from = piece.input;
  std::byte* to = uneven.output;
  for (std::size_t peer = 0; peer < size; ++peer) {
    const auto sent = static_cast<std::uint64_t>(uneven.bytes[rank * size + peer]);
    const auto received = static_cast<std::uint64_t>(uneven.bytes[peer * size + rank]);
    if (peer != rank || from != to) {
      const int other = static_cast<int>(peer);
      portions.call_direct({.kind = Call::Kind::send, .from = from, .count = sent, .peer = other});
      portions.call_direct({.kind = Call::Kind::receive, .to = to, .count = received, .peer = other});
    }
    if (!gathers) from += sent;
    to += received;
  }
}

/// Through buffers everybody hears everything, round by round, and takes what is his: what the ways through the CPU can
/// do is broadcasts. A gather loses nothing by that.
void exchange_in_buffers(PortionPlanner& portions, const data::Piece& piece, const Uneven& uneven, bool gathers) {
  const auto size = static_cast<std::size_t>(portions.limits().size);
  const auto rank = static_cast<std::size_t>(portions.limits().rank);
  const std::uint64_t share = portions.limits().buffer_bytes / size / kBufferAlignment * kBufferAlignment;
  KOLO_CHECK(share > 0) << "a buffer of " << portions.limits().buffer_bytes << " bytes for " << size << " ranks";
  const auto of = [&](std::size_t from, std::size_t to) {
    return static_cast<std::uint64_t>(uneven.bytes[from * size + to]);
  };
  std::byte* to = uneven.output;
  for (std::size_t peer = 0; peer < size; ++peer) {
    const std::byte* from = piece.input;
    for (std::size_t target = 0; target < (gathers ? 1 : size); ++target) {
      const bool mine = gathers || target == rank;
      const std::byte* const input = peer == rank ? from : nullptr;
      std::byte* const output = mine ? to : nullptr;
      const Segment part{.input = input,
                         .output = output,
                         .bytes = of(peer, target),
                         .packs = peer == rank,
                         .unpacks = mine && output != input};
      if (peer == rank) from += part.bytes;
      portions.broadcast_in_buffer(part, share, static_cast<int>(peer));
    }
    if (to != nullptr) to += of(peer, rank);  // an absent rank gets nothing
  }
}

void exchange(PortionPlanner& portions, const data::Piece& piece, const Uneven& uneven, bool gathers) {
  const auto size = static_cast<std::size_t>(portions.limits().size);
  KOLO_CHECK(uneven.bytes.size() == size * size);
  portions.limits().direct ? exchange_direct(portions, piece, uneven, gathers)
                           : exchange_in_buffers(portions, piece, uneven, gathers);
}

void allgather(PortionPlanner& portions, const data::Run& run, const Uneven* uneven) {
  const std::vector<std::int64_t>& bytes = uneven->bytes;
  const bool same = std::adjacent_find(bytes.begin(), bytes.end(), std::not_equal_to<>()) == bytes.end();
  if (!portions.limits().direct || !same) return exchange(portions, run.pieces.front(), *uneven, true);
  portions.call_direct({.kind = Call::Kind::all_gather,
                        .from = run.pieces.front().input,
                        .to = uneven->output,
                        .count = static_cast<std::uint64_t>(bytes.front())});
}

void allgather_equal(PortionPlanner& portions, const data::Run& run, const Uneven* /*uneven*/) {
  const auto size = static_cast<std::size_t>(portions.limits().size);
  const std::int64_t bytes = run.elements * static_cast<std::int64_t>(size_of(run.dtype));
  const Uneven even{std::vector<std::int64_t>(size * size, bytes), run.pieces.front().output};
  allgather(portions, run, &even);
}

/// An exchange in which everybody sends to the root alone.
void gather(PortionPlanner& portions, const data::Run& run, const Uneven* uneven) {
  const auto size = static_cast<std::size_t>(portions.limits().size);
  Uneven to_root{std::vector<std::int64_t>(size * size, 0), uneven->output};
  for (std::size_t from = static_cast<std::size_t>(run.root); from < size * size; from += size)
    to_root.bytes[from] = uneven->bytes[from];
  exchange(portions, run.pieces.front(), to_root, false);
}

void alltoall(PortionPlanner& portions, const data::Run& run, const Uneven* /*uneven*/) {
  const auto size = static_cast<std::size_t>(portions.limits().size);
  const std::int64_t bytes = run.elements / portions.limits().size * static_cast<std::int64_t>(size_of(run.dtype));
  if (portions.limits().direct) {
    return portions.call_direct({.kind = Call::Kind::all_to_all,
                                 .from = run.pieces.front().input,
                                 .to = run.pieces.front().output,
                                 .count = static_cast<std::uint64_t>(bytes)});
  }
  const Uneven even{std::vector<std::int64_t>(size * size, bytes), run.pieces.front().output};
  exchange(portions, run.pieces.front(), even, false);
}

/// Of a scatter, too, in which the root alone sends.
void alltoall_splits(PortionPlanner& portions, const data::Run& run, const Uneven* uneven) {
  exchange(portions, run.pieces.front(), *uneven, false);
}

struct Row {
  CollectiveKind kind;
  void (*plan)(PortionPlanner& portions, const data::Run& run, const Uneven* uneven);
};

constexpr Row kRows[] = {
    {CollectiveKind::allreduce, allreduce},
    {CollectiveKind::broadcast, broadcast},
    {CollectiveKind::allgather, allgather},
    {CollectiveKind::alltoall, alltoall},
    {CollectiveKind::alltoall_splits, alltoall_splits},
    {CollectiveKind::reduce_scatter, reduce_scatter},
    {CollectiveKind::reduce, reduce},
    {CollectiveKind::gather, gather},
    {CollectiveKind::scatter, alltoall_splits},
    {CollectiveKind::allgather_equal, allgather_equal},
    {CollectiveKind::alltoall_known, alltoall_splits},
    {CollectiveKind::message, message},
};

}  // namespace

void plan(PortionPlanner& portions, const data::Run& run, const Uneven* uneven) {
  KOLO_CHECK(core::traits_of(run.kind).rows_differ == (uneven != nullptr)) << core::to_string(run.kind);
  for (const Row& row : kRows)
    if (row.kind == run.kind) return row.plan(portions, run, uneven);
  KOLO_UNREACHABLE("no such collective on a device");
}

// ---------------------------------------------------------------- in words

namespace {

std::string in_buffer(const std::string& why) { return "through a fusion buffer, because " + why; }
std::string in_place(const std::string& why) { return "where it lies, because " + why; }

}  // namespace

std::string explain_route(const PortionPlanner& portions, const data::Run& run, const data::Piece& piece) {
  const PortionLimits& limits = portions.limits();
  if (!limits.direct) return in_buffer("the CPU reduces what is in one (KOLO_GPU_BACKEND is staged)");
  if (!core::traits_of(run.kind).reduces) return in_place("it is moved, not reduced");
  if (portions.is_in_arena(run, piece)) return in_place("all ranks have it at the same place of an arena");
  const std::uint64_t bytes = static_cast<std::uint64_t>(piece.elements) * size_of(run.dtype);
  const bool is_dealt = core::traits_of(run.kind).shapes != core::Shapes::own_rows || run.rows % limits.size == 0;
  const std::string least = "KOLO_GPU_DIRECT_BYTES (" + std::to_string(limits.direct_bytes) + ")";
  const bool is_lone = core::traits_of(run.kind).shapes == core::Shapes::own_rows || portions.has_lone_piece(run);
  if (is_dealt && portions.is_direct(run, bytes, false)) return in_place("it has at least " + least);
  if (is_dealt && portions.is_direct(run, bytes, is_lone))
    return in_place("no other tensor would share its collective");
  if (run.wire != core::Wire::own && limits.size > 1) return in_buffer("it is sent as another type");
  if (run.prescale != 1.0) return in_buffer("it is multiplied before it is reduced (prescale)");
  if (run.dtype == DType::boolean) return in_buffer("booleans are made 0 or 1 before they are reduced");
  if (!is_dealt) return in_buffer("the ranks get different numbers of rows");
  return in_buffer("it is smaller than " + least);
}

}  // namespace kolo::cuda
