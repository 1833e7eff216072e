// SPDX-License-Identifier: Apache-2.0

/// @file
/// Uneven data: a rank that is out of data joins, and the others go on.
#ifndef KOLO_JOIN_HPP
#define KOLO_JOIN_HPP

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/handle.hpp>
#include <kolo/options.hpp>

namespace kolo {

/// This rank is out of data; the others go on. Returns when all ranks of the group have joined. The result is the rank
/// that joined last; it has made all steps, so the others take its parameters:
///
///     for (const Batch& batch : batches) train(batch);  // as many as there are on this rank
///     const int last = kolo::join();
///     kolo::broadcast_parameters(parameters, last);
///
/// From its join until all have joined, a rank is *absent*: the group's operations run without it, bit for bit as if
/// the group had only the other ranks (by NCCL except for its rounding). Averages are over the ranks that are present,
/// or over all (`JoinOptions::counts_in_averages`). The rows of a reduce_scatter that an absent rank would get are
/// lost. Operations that this rank had in flight when it joined still include it. The join's deadline counts from the
/// last operation of the other ranks.
///
/// An operation that needs an absent rank fails on the ranks that call it (`Error` invalid_argument), and the job goes
/// on: a collective whose root is absent, an alltoall, a scatter, a new group of a rank that has joined the world, a
/// product with prescale. After `join_async` a rank's own calls fail in the same way until its join has ended, except
/// synchronous calls without a name, which wait for that end.
///
/// If a rank shuts down while others have joined, the join fails on them (rank_lost), and so do later operations of the
/// group. Must not be called inside a callback of `on_done` (`Error` invalid_argument). Thread-safe. Each rank of the
/// group joins once, and may join again when the join has ended. If the ranks that have not joined run nothing in the
/// group for longer than `JoinOptions::timeout`, that is a fatal error (timeout).
KOLO_API int join(const Group& group, const JoinOptions& options = {});
KOLO_API Future<int> join_async(const Group& group, const JoinOptions& options = {});
inline int join(const JoinOptions& options = {}) { return join(current_context(), options); }
inline Future<int> join_async(const JoinOptions& options = {}) { return join_async(current_context(), options); }

}  // namespace kolo

#endif  // KOLO_JOIN_HPP
