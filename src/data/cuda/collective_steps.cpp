// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/collective_steps.hpp"

#include <algorithm>
#include <functional>

#include "base/check.hpp"
#include "core/collectives.hpp"

namespace kolo::cuda {
namespace {

using core::CollectiveKind;

void allreduce(StepPlanner& steps, const data::Run& run, const Uneven* /*uneven*/) {
  const bool is_lone = steps.has_lone_piece(run);
  // First what shares calls: a call ends where a tensor lies elsewhere.
  for (const data::Piece& piece : run.pieces) {
    const Segment whole = steps.segment_of(run, piece);
    if (!steps.is_in_arena(run, piece) && !steps.is_direct(run, whole.bytes, is_lone))
      steps.reduce_in_buffer(run, whole);
  }
  steps.reduce_in_arena(run);
  for (const data::Piece& piece : run.pieces) {
    const Segment whole = steps.segment_of(run, piece);
    if (whole.bytes > 0 && !steps.is_in_arena(run, piece) && steps.is_direct(run, whole.bytes, is_lone))
      steps.reduce_direct(run, whole, Call::Kind::all_reduce);
  }
}

/// The root alone unpacks, or has an output: of the others NCCL asks for none. First what shares calls, as above.
void reduce(StepPlanner& steps, const data::Run& run, const Uneven* /*uneven*/) {
  const bool is_root = run.root == steps.limits().rank;
  const bool is_lone = steps.has_lone_piece(run);
  for (const bool direct : {false, true}) {
    for (const data::Piece& piece : run.pieces) {
      Segment whole = steps.segment_of(run, piece);
      whole.unpacks = is_root;
      if (whole.bytes == 0 || steps.is_direct(run, whole.bytes, is_lone) != direct) continue;
      direct ? steps.reduce_direct(run, whole, Call::Kind::reduce) : steps.reduce_in_buffer(run, whole);
    }
  }
}

/// Through a buffer everything is reduced, rank by rank's rows, the same on all ranks, and a rank unpacks its own.
void reduce_scatter(StepPlanner& steps, const data::Run& run, const Uneven* /*uneven*/) {
  if (run.elements == 0) return;
  const StepLimits& limits = steps.limits();
  const std::int64_t width = run.elements / run.rows * static_cast<std::int64_t>(size_of(run.dtype));
  const data::Piece& piece = run.pieces.front();
  Segment part = steps.segment_of(run, piece);
  if (run.rows % limits.size == 0 && steps.is_direct(run, part.bytes, /*is_lone=*/true)) {
    part.bytes /= static_cast<std::uint64_t>(limits.size);
    steps.reduce_direct(run, part, Call::Kind::reduce_scatter);
    return;
  }
  for (int rank = 0; rank < limits.size; ++rank) {
    const data::RowsOf rows(run.rows, rank, limits.size);
    if (piece.input != nullptr) part.input = piece.input + rows.begin * width;
    part.bytes = static_cast<std::uint64_t>(rows.count * width);
    part.unpacks = rank == limits.rank;
    part.output = part.unpacks ? piece.output : nullptr;
    steps.reduce_in_buffer(run, part);
  }
}

void broadcast(StepPlanner& steps, const data::Run& run, const Uneven* /*uneven*/) {
  const bool is_root = run.root == steps.limits().rank;
  for (const data::Piece& piece : run.pieces) {
    Segment whole = steps.segment_of(run, piece);
    whole.element = Element::plain;
    whole.in_buffer = Element::plain;
    whole.scaling = Scaling();
    if (!steps.limits().direct) {
      whole.packs = is_root;
      whole.unpacks = !is_root || piece.input != piece.output;
      steps.broadcast_in_buffer(whole, steps.limits().buffer_bytes, run.root);
      continue;
    }
    Call call;
    call.kind = Call::Kind::broadcast;
    call.from = piece.input;
    call.to = piece.output;
    call.count = whole.bytes;
    call.peer = run.root;
    steps.call_direct(call);
  }
}

// ---------------------------------------------------------------- who sends how much to whom differs

/// Everybody sends to everybody, this rank to itself, too, unless it is there already: NCCL makes a copy of that.
void exchange_direct(StepPlanner& steps, const data::Piece& piece, const Uneven& uneven, bool gathers) {
  const auto size = static_cast<std::size_t>(steps.limits().size);
  const auto rank = static_cast<std::size_t>(steps.limits().rank);
  const std::byte* from = piece.input;
  std::byte* to = uneven.output;
  for (std::size_t peer = 0; peer < size; ++peer) {
    Call send;
    send.kind = Call::Kind::send;
    send.from = from;
    send.count = static_cast<std::uint64_t>(uneven.bytes[rank * size + peer]);
    send.peer = static_cast<int>(peer);
    Call receive;
    receive.kind = Call::Kind::receive;
    receive.to = to;
    receive.count = static_cast<std::uint64_t>(uneven.bytes[peer * size + rank]);
    receive.peer = static_cast<int>(peer);
    if (peer != rank || from != to) {
      steps.call_direct(send);
      steps.call_direct(receive);
    }
    if (!gathers) from += send.count;
    to += receive.count;
  }
}

/// Through buffers everybody hears everything, round by round, and takes what is his: what the ways through the CPU can
/// do is broadcasts. A gather loses nothing by that.
void exchange_in_buffers(StepPlanner& steps, const data::Piece& piece, const Uneven& uneven, bool gathers) {
  const auto size = static_cast<std::size_t>(steps.limits().size);
  const auto rank = static_cast<std::size_t>(steps.limits().rank);
  const std::uint64_t share = steps.limits().buffer_bytes / size / kBufferAlignment * kBufferAlignment;
  KOLO_CHECK(share > 0) << "a buffer of " << steps.limits().buffer_bytes << " bytes for " << size << " ranks";
  const auto of = [&](std::size_t from, std::size_t to) {
    return static_cast<std::uint64_t>(uneven.bytes[from * size + to]);
  };
  std::byte* to = uneven.output;
  for (std::size_t peer = 0; peer < size; ++peer) {
    const std::byte* from = piece.input;
    for (std::size_t target = 0; target < (gathers ? 1 : size); ++target) {
      const bool mine = gathers || target == rank;
      Segment part;
      part.input = peer == rank ? from : nullptr;
      part.output = mine ? to : nullptr;
      part.bytes = of(peer, target);
      part.packs = peer == rank;
      part.unpacks = mine && part.output != part.input;
      if (peer == rank) from += part.bytes;
      steps.broadcast_in_buffer(part, share, static_cast<int>(peer));
    }
    if (to != nullptr) to += of(peer, rank);  // an absent rank gets nothing
  }
}

void exchange(StepPlanner& steps, const data::Piece& piece, const Uneven& uneven, bool gathers) {
  const auto size = static_cast<std::size_t>(steps.limits().size);
  KOLO_CHECK(uneven.bytes.size() == size * size);
  steps.limits().direct ? exchange_direct(steps, piece, uneven, gathers)
                        : exchange_in_buffers(steps, piece, uneven, gathers);
}

void allgather(StepPlanner& steps, const data::Run& run, const Uneven* uneven) {
  const std::vector<std::int64_t>& bytes = uneven->bytes;
  const bool same = std::adjacent_find(bytes.begin(), bytes.end(), std::not_equal_to<>()) == bytes.end();
  if (!steps.limits().direct || !same) return exchange(steps, run.pieces.front(), *uneven, true);
  Call gather;
  gather.kind = Call::Kind::all_gather;
  gather.from = run.pieces.front().input;
  gather.to = uneven->output;
  gather.count = static_cast<std::uint64_t>(bytes.front());
  steps.call_direct(gather);
}

void allgather_equal(StepPlanner& steps, const data::Run& run, const Uneven* /*uneven*/) {
  const auto size = static_cast<std::size_t>(steps.limits().size);
  const std::int64_t bytes = run.elements * static_cast<std::int64_t>(size_of(run.dtype));
  const Uneven even{std::vector<std::int64_t>(size * size, bytes), run.pieces.front().output};
  allgather(steps, run, &even);
}

/// An exchange in which everybody sends to the root alone.
void gather(StepPlanner& steps, const data::Run& run, const Uneven* uneven) {
  const auto size = static_cast<std::size_t>(steps.limits().size);
  Uneven to_root{std::vector<std::int64_t>(size * size, 0), uneven->output};
  for (std::size_t from = static_cast<std::size_t>(run.root); from < size * size; from += size)
    to_root.bytes[from] = uneven->bytes[from];
  exchange(steps, run.pieces.front(), to_root, false);
}

void alltoall(StepPlanner& steps, const data::Run& run, const Uneven* /*uneven*/) {
  const auto size = static_cast<std::size_t>(steps.limits().size);
  const std::int64_t bytes = run.elements / steps.limits().size * static_cast<std::int64_t>(size_of(run.dtype));
  const Uneven even{std::vector<std::int64_t>(size * size, bytes), run.pieces.front().output};
  exchange(steps, run.pieces.front(), even, false);
}

/// Of a scatter, too, in which the root alone sends.
void alltoall_splits(StepPlanner& steps, const data::Run& run, const Uneven* uneven) {
  exchange(steps, run.pieces.front(), *uneven, false);
}

struct Row {
  CollectiveKind kind;
  void (*plan)(StepPlanner& steps, const data::Run& run, const Uneven* uneven);
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
};

}  // namespace

void plan(StepPlanner& steps, const data::Run& run, const Uneven* uneven) {
  KOLO_CHECK(core::traits_of(run.kind).rows_differ == (uneven != nullptr)) << core::to_string(run.kind);
  for (const Row& row : kRows)
    if (row.kind == run.kind) return row.plan(steps, run, uneven);
  KOLO_UNREACHABLE("no such collective on a device");
}

}  // namespace kolo::cuda
