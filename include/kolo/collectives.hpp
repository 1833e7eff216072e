// SPDX-License-Identifier: Apache-2.0

/// @file
/// The collectives. Rules for all of them:
///
/// - Every rank makes the same calls on the same names, with the same dtype, shape, op, scales and root, in any order
///   and from any threads. If ranks disagree, the operation fails on every rank (`Error` mismatch). The job goes on.
/// - One operation of a name at a time: submitting the name again before it has completed is an error at the call
///   (duplicate_name).
/// - A call without a name is matched by the order of the calls, so all ranks of the group must make their unnamed
///   calls in the same order. Synchronous and asynchronous calls share this order: one rank may make a call
///   synchronously that another rank makes asynchronously. Any number may be in flight. Calls of several threads are
///   numbered as they come, so threads without a common order need names, or a group each. If ranks disagree about a
///   call, it fails on all of them, and later calls go on. Kolo's own communication (`split`, an optimizer,
///   `broadcast_object`) takes no place in this order.
/// - Buffers stay valid, and untouched by the caller, until completion. Any alignment is accepted. The input and the
///   output of an `_into` call must not overlap (else: invalid_argument).
/// - Errors at the call: invalid_argument, duplicate_name, unsupported, not_initialized, out_of_memory, or the fatal
///   error if there was one. Errors at `wait()`: mismatch, out_of_memory, timeout, rank_lost, shut_down, transport.
///   After those, buffers in flight are undefined.
/// - A name has at most 65,536 bytes and must not begin with "kolo." (those are Kolo's own).
/// - A result that several ranks get is bitwise the same on all of them. Kolo's sums round to nearest and keep
///   subnormal numbers, even if the program's threads flush them to zero. The floating-point control registers are
///   afterwards as they were.
///
/// Each makes a `Call` and runs it, or starts it and returns a handle (`_async`). Each may be given where first: a
/// group, a name, or `{group, name}` (where.hpp). `prepare` and `grouped` (call.hpp) take such calls, too; there is
/// also `grouped_allreduce`.
#ifndef KOLO_COLLECTIVES_HPP
#define KOLO_COLLECTIVES_HPP

#include <cstdint>
#include <optional>
#include <type_traits>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/handle.hpp>
#include <kolo/options.hpp>
#include <kolo/types.hpp>
#include <kolo/where.hpp>

namespace kolo {

/// @name allreduce
/// Reduces element by element over all ranks; the same shape everywhere. In place, or from `in` to `out`.
/// @{
inline void allreduce(TensorView inout, const AllreduceOptions& options = {}) { run(Call::allreduce(inout, options)); }
inline void allreduce(const Where& where, TensorView inout, const AllreduceOptions& options = {}) {
  run(where, Call::allreduce(inout, options));
}
inline Handle allreduce_async(TensorView inout, const AllreduceOptions& options = {}) {
  return start(Call::allreduce(inout, options));
}
inline Handle allreduce_async(const Where& where, TensorView inout, const AllreduceOptions& options = {}) {
  return start(where, Call::allreduce(inout, options));
}
inline void allreduce_into(ConstTensorView in, TensorView out, const AllreduceOptions& options = {}) {
  run(Call::allreduce_into(in, out, options));
}
inline void allreduce_into(const Where& where, ConstTensorView in, TensorView out,
                           const AllreduceOptions& options = {}) {
  run(where, Call::allreduce_into(in, out, options));
}
inline Handle allreduce_into_async(ConstTensorView in, TensorView out, const AllreduceOptions& options = {}) {
  return start(Call::allreduce_into(in, out, options));
}
inline Handle allreduce_into_async(const Where& where, ConstTensorView in, TensorView out,
                                   const AllreduceOptions& options = {}) {
  return start(where, Call::allreduce_into(in, out, options));
}

/// A scalar, by value. Sums and products of integers wrap around, as those of tensors do: of n bits, what is right
/// modulo 2^n. Give a wider type where that may happen.
template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
[[nodiscard]] T allreduce(const Where& where, T value, ReduceOp op = ReduceOp::sum) {
  run(where, Call::allreduce(TensorView(&value, dtype_of<T>(), Shape{}), op));
  return value;
}
template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
[[nodiscard]] T allreduce(T value, ReduceOp op = ReduceOp::sum) {
  return allreduce(current_context(), value, op);
}
/// @}

/// @name reduce
/// Reduces element by element over all ranks; only rank `root` gets the result. It is allreduce's result, bit for bit
/// in memory of the CPU. The same shape everywhere. In place: the result replaces the root's tensor; the other ranks'
/// tensors are not changed.
/// @{
inline void reduce(TensorView inout, int root, const ReduceOptions& options = {}) {
  run(Call::reduce(inout, root, options));
}
inline void reduce(const Where& where, TensorView inout, int root, const ReduceOptions& options = {}) {
  run(where, Call::reduce(inout, root, options));
}
inline Handle reduce_async(TensorView inout, int root, const ReduceOptions& options = {}) {
  return start(Call::reduce(inout, root, options));
}
inline Handle reduce_async(const Where& where, TensorView inout, int root, const ReduceOptions& options = {}) {
  return start(where, Call::reduce(inout, root, options));
}
/// From `in` to the root's `out`, which the root must give (else: invalid_argument at the call). Other ranks may give
/// `std::nullopt`; an output that they give is checked and not written.
inline void reduce_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const ReduceOptions& options = {}) {
  run(Call::reduce_into(in, out, root, options));
}
inline void reduce_into(const Where& where, ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const ReduceOptions& options = {}) {
  run(where, Call::reduce_into(in, out, root, options));
}
inline Handle reduce_into_async(ConstTensorView in, const std::optional<TensorView>& out, int root,
                                const ReduceOptions& options = {}) {
  return start(Call::reduce_into(in, out, root, options));
}
inline Handle reduce_into_async(const Where& where, ConstTensorView in, const std::optional<TensorView>& out, int root,
                                const ReduceOptions& options = {}) {
  return start(where, Call::reduce_into(in, out, root, options));
}
/// @}

/// @name broadcast
/// Copies rank `root`'s contents to all ranks; the same shape everywhere.
/// @{
inline void broadcast(TensorView inout, int root, const BroadcastOptions& options = {}) {
  run(Call::broadcast(inout, root, options));
}
inline void broadcast(const Where& where, TensorView inout, int root, const BroadcastOptions& options = {}) {
  run(where, Call::broadcast(inout, root, options));
}
inline Handle broadcast_async(TensorView inout, int root, const BroadcastOptions& options = {}) {
  return start(Call::broadcast(inout, root, options));
}
inline Handle broadcast_async(const Where& where, TensorView inout, int root, const BroadcastOptions& options = {}) {
  return start(where, Call::broadcast(inout, root, options));
}
/// The root reads `in`; every rank, including the root, gets the contents in `out`.
inline void broadcast_into(ConstTensorView in, TensorView out, int root, const BroadcastOptions& options = {}) {
  run(Call::broadcast_into(in, out, root, options));
}
inline void broadcast_into(const Where& where, ConstTensorView in, TensorView out, int root,
                           const BroadcastOptions& options = {}) {
  run(where, Call::broadcast_into(in, out, root, options));
}
inline Handle broadcast_into_async(ConstTensorView in, TensorView out, int root, const BroadcastOptions& options = {}) {
  return start(Call::broadcast_into(in, out, root, options));
}
inline Handle broadcast_into_async(const Where& where, ConstTensorView in, TensorView out, int root,
                                   const BroadcastOptions& options = {}) {
  return start(where, Call::broadcast_into(in, out, root, options));
}
/// @}

/// @name allgather
/// Concatenates all ranks' tensors along the first dimension, in the order of ranks. The first dimension may differ by
/// rank (and be 0); the others agree. A scalar counts as one row.
/// @{
inline Tensor allgather(ConstTensorView in, const AllgatherOptions& options = {}) {
  return detail::result_of(Call::allgather(in, options)).output;
}
inline Tensor allgather(const Where& where, ConstTensorView in, const AllgatherOptions& options = {}) {
  return detail::result_of(where, Call::allgather(in, options)).output;
}
inline Future<Tensor> allgather_async(ConstTensorView in, const AllgatherOptions& options = {}) {
  return Future<Tensor>(start(Call::allgather(in, options)));
}
inline Future<Tensor> allgather_async(const Where& where, ConstTensorView in, const AllgatherOptions& options = {}) {
  return Future<Tensor>(start(where, Call::allgather(in, options)));
}
/// Into memory of the caller, which must have as many elements as the result; else the operation fails on this rank
/// (invalid_argument) and completes on the others. In place: `in` may be exactly this rank's rows of `out`; if it lies
/// elsewhere in `out`, the operation fails in the same way.
inline void allgather_into(ConstTensorView in, TensorView out, const AllgatherOptions& options = {}) {
  run(Call::allgather_into(in, out, options));
}
inline void allgather_into(const Where& where, ConstTensorView in, TensorView out,
                           const AllgatherOptions& options = {}) {
  run(where, Call::allgather_into(in, out, options));
}
inline Handle allgather_into_async(ConstTensorView in, TensorView out, const AllgatherOptions& options = {}) {
  return start(Call::allgather_into(in, out, options));
}
inline Handle allgather_into_async(const Where& where, ConstTensorView in, TensorView out,
                                   const AllgatherOptions& options = {}) {
  return start(where, Call::allgather_into(in, out, options));
}
/// As allgather_into, where every rank brings equally many rows: the whole shape must agree on all ranks. Tensors of
/// GPUs are gathered without asking each rank for its number of rows first. The output must have as many elements as
/// the result (`Error` invalid_argument at the call). Not while a rank has joined.
inline void allgather_equal_into(ConstTensorView in, TensorView out, const AllgatherOptions& options = {}) {
  run(Call::allgather_equal_into(in, out, options));
}
inline void allgather_equal_into(const Where& where, ConstTensorView in, TensorView out,
                                 const AllgatherOptions& options = {}) {
  run(where, Call::allgather_equal_into(in, out, options));
}
inline Handle allgather_equal_into_async(ConstTensorView in, TensorView out, const AllgatherOptions& options = {}) {
  return start(Call::allgather_equal_into(in, out, options));
}
inline Handle allgather_equal_into_async(const Where& where, ConstTensorView in, TensorView out,
                                         const AllgatherOptions& options = {}) {
  return start(where, Call::allgather_equal_into(in, out, options));
}
/// @}

/// @name gather
/// As allgather, but only rank `root` gets the result. On the other ranks the result has no rows.
/// @{
inline Tensor gather(ConstTensorView in, int root, const GatherOptions& options = {}) {
  return detail::result_of(Call::gather(in, root, options)).output;
}
inline Tensor gather(const Where& where, ConstTensorView in, int root, const GatherOptions& options = {}) {
  return detail::result_of(where, Call::gather(in, root, options)).output;
}
inline Future<Tensor> gather_async(ConstTensorView in, int root, const GatherOptions& options = {}) {
  return Future<Tensor>(start(Call::gather(in, root, options)));
}
inline Future<Tensor> gather_async(const Where& where, ConstTensorView in, int root,
                                   const GatherOptions& options = {}) {
  return Future<Tensor>(start(where, Call::gather(in, root, options)));
}
/// As allgather_into, into memory of the root, which the root must give (else: invalid_argument at the call). Where the
/// operation fails on the root, it completes on the others (memory of a device: fails everywhere). Other ranks may give
/// `std::nullopt`; an output that they give is not written.
inline void gather_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const GatherOptions& options = {}) {
  run(Call::gather_into(in, out, root, options));
}
inline void gather_into(const Where& where, ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const GatherOptions& options = {}) {
  run(where, Call::gather_into(in, out, root, options));
}
inline Handle gather_into_async(ConstTensorView in, const std::optional<TensorView>& out, int root,
                                const GatherOptions& options = {}) {
  return start(Call::gather_into(in, out, root, options));
}
inline Handle gather_into_async(const Where& where, ConstTensorView in, const std::optional<TensorView>& out, int root,
                                const GatherOptions& options = {}) {
  return start(where, Call::gather_into(in, out, root, options));
}
/// @}

/// @name scatter
/// Distributes rank `root`'s rows (of the first dimension) in the order of ranks. `splits` has the number of rows for
/// each rank, 0 or more, and its sum is the number of rows; without splits every rank gets the same number. Only the
/// root's `in` and `splits` are read (if they are wrong: invalid_argument at the call). Other ranks may give
/// `std::nullopt` as the input. The type and the shape of a row agree everywhere; an output that is a scalar counts as
/// one row. If an output has another size than what the root sends, the operation fails on that rank (invalid_argument)
/// and completes on the others (memory of a device: fails everywhere). In place: the root's `out` may be exactly its
/// rows of `in`.
/// @{
inline void scatter_into(const std::optional<ConstTensorView>& in, TensorView out, int root, Splits splits = {},
                         const ScatterOptions& options = {}) {
  run(Call::scatter_into(in, out, root, splits, options));
}
inline void scatter_into(const Where& where, const std::optional<ConstTensorView>& in, TensorView out, int root,
                         Splits splits = {}, const ScatterOptions& options = {}) {
  run(where, Call::scatter_into(in, out, root, splits, options));
}
inline Handle scatter_into_async(const std::optional<ConstTensorView>& in, TensorView out, int root, Splits splits = {},
                                 const ScatterOptions& options = {}) {
  return start(Call::scatter_into(in, out, root, splits, options));
}
inline Handle scatter_into_async(const Where& where, const std::optional<ConstTensorView>& in, TensorView out, int root,
                                 Splits splits = {}, const ScatterOptions& options = {}) {
  return start(where, Call::scatter_into(in, out, root, splits, options));
}
/// @}

/// @name alltoall
/// Every rank sends some of its rows (of the first dimension) to every rank. It receives the other ranks' rows in the
/// order of ranks. Rows go in order: the first to rank 0, and so on. A scalar has no rows (invalid_argument).
///
/// Without splits every rank gets the same number of rows: the shape is the same on all ranks, and its first dimension
/// is a multiple of the number of ranks. With splits, `splits[r]` rows go to rank r: one number for each rank, none
/// negative, whose sum is the first dimension (else: invalid_argument at the call). Splits, and with them the first
/// dimension, may differ by rank; dtype and the other dimensions agree, and so does whether there are splits. They are
/// copied by the call. `AlltoallResult::received_splits` has the number of rows that came from each rank. Without
/// splits one exchange suffices; with them the ranks first tell each other how much will come.
/// @{
inline AlltoallResult alltoall(ConstTensorView in, Splits splits = {}, const AlltoallOptions& options = {}) {
  return detail::alltoall_of(current_context(), Call::alltoall(in, splits, options));
}
inline AlltoallResult alltoall(const Where& where, ConstTensorView in, Splits splits = {},
                               const AlltoallOptions& options = {}) {
  return detail::alltoall_of(where, Call::alltoall(in, splits, options));
}
inline Future<AlltoallResult> alltoall_async(ConstTensorView in, Splits splits = {},
                                             const AlltoallOptions& options = {}) {
  return Future<AlltoallResult>(start(Call::alltoall(in, splits, options)));
}
inline Future<AlltoallResult> alltoall_async(const Where& where, ConstTensorView in, Splits splits = {},
                                             const AlltoallOptions& options = {}) {
  return Future<AlltoallResult>(start(where, Call::alltoall(in, splits, options)));
}
/// Into memory of the caller, which must have as many elements as the result. If it has not: without splits that is an
/// error at the call; with splits the operation fails on this rank (invalid_argument) and completes on the others.
inline void alltoall_into(ConstTensorView in, TensorView out, Splits splits = {}, const AlltoallOptions& options = {}) {
  run(Call::alltoall_into(in, out, splits, options));
}
inline void alltoall_into(const Where& where, ConstTensorView in, TensorView out, Splits splits = {},
                          const AlltoallOptions& options = {}) {
  run(where, Call::alltoall_into(in, out, splits, options));
}
inline Handle alltoall_into_async(ConstTensorView in, TensorView out, Splits splits = {},
                                  const AlltoallOptions& options = {}) {
  return start(Call::alltoall_into(in, out, splits, options));
}
inline Handle alltoall_into_async(const Where& where, ConstTensorView in, TensorView out, Splits splits = {},
                                  const AlltoallOptions& options = {}) {
  return start(where, Call::alltoall_into(in, out, splits, options));
}
/// As alltoall_into with splits, where this rank knows how many rows come from each rank: `received_splits[r]` is the
/// split for this rank on rank r (one for each rank, none negative; together they fill the output; else: `Error`
/// invalid_argument at the call). Tensors of GPUs are then exchanged without asking the ranks for their splits first,
/// and nobody checks that the ranks' lists agree: where they do not, ranks may wait for each other for ever. On CPUs
/// the operation then fails on the ranks whose lists are wrong (invalid_argument), and completes on the others.
inline void alltoall_known_into(ConstTensorView in, TensorView out, Splits splits, Splits received_splits,
                                const AlltoallOptions& options = {}) {
  run(Call::alltoall_known_into(in, out, splits, received_splits, options));
}
inline void alltoall_known_into(const Where& where, ConstTensorView in, TensorView out, Splits splits,
                                Splits received_splits, const AlltoallOptions& options = {}) {
  run(where, Call::alltoall_known_into(in, out, splits, received_splits, options));
}
inline Handle alltoall_known_into_async(ConstTensorView in, TensorView out, Splits splits, Splits received_splits,
                                        const AlltoallOptions& options = {}) {
  return start(Call::alltoall_known_into(in, out, splits, received_splits, options));
}
inline Handle alltoall_known_into_async(const Where& where, ConstTensorView in, TensorView out, Splits splits,
                                        Splits received_splits, const AlltoallOptions& options = {}) {
  return start(where, Call::alltoall_known_into(in, out, splits, received_splits, options));
}
/// @}

/// @name reduce_scatter
/// Element by element over all ranks, as allreduce, but each rank gets only its rows (of the first dimension) of the
/// result: with `rows` rows on n ranks every rank gets rows / n of them, in the order of ranks, and the first rows % n
/// ranks one more (so a rank may get none). The same shape everywhere; a scalar has no rows (invalid_argument).
/// @{
inline Tensor reduce_scatter(ConstTensorView in, const ReduceScatterOptions& options = {}) {
  return detail::result_of(Call::reduce_scatter(in, options)).output;
}
inline Tensor reduce_scatter(const Where& where, ConstTensorView in, const ReduceScatterOptions& options = {}) {
  return detail::result_of(where, Call::reduce_scatter(in, options)).output;
}
inline Future<Tensor> reduce_scatter_async(ConstTensorView in, const ReduceScatterOptions& options = {}) {
  return Future<Tensor>(start(Call::reduce_scatter(in, options)));
}
inline Future<Tensor> reduce_scatter_async(const Where& where, ConstTensorView in,
                                           const ReduceScatterOptions& options = {}) {
  return Future<Tensor>(start(where, Call::reduce_scatter(in, options)));
}
/// Into memory of the caller with as many elements as this rank's rows have (else: invalid_argument at the call). In
/// place: `out` may be exactly this rank's rows of `in`; the rest of `in` is not changed.
inline void reduce_scatter_into(ConstTensorView in, TensorView out, const ReduceScatterOptions& options = {}) {
  run(Call::reduce_scatter_into(in, out, options));
}
inline void reduce_scatter_into(const Where& where, ConstTensorView in, TensorView out,
                                const ReduceScatterOptions& options = {}) {
  run(where, Call::reduce_scatter_into(in, out, options));
}
inline Handle reduce_scatter_into_async(ConstTensorView in, TensorView out, const ReduceScatterOptions& options = {}) {
  return start(Call::reduce_scatter_into(in, out, options));
}
inline Handle reduce_scatter_into_async(const Where& where, ConstTensorView in, TensorView out,
                                        const ReduceScatterOptions& options = {}) {
  return start(where, Call::reduce_scatter_into(in, out, options));
}
/// @}

/// @name barrier
/// Completes when every rank has called it. It is no fence: asynchronous operations may still be open when it
/// completes, on this rank and on others; wait for their handles.
/// @{
inline void barrier(const BarrierOptions& options = {}) { run(Call::barrier(options)); }
inline void barrier(const Where& where, const BarrierOptions& options = {}) { run(where, Call::barrier(options)); }
inline Handle barrier_async(const BarrierOptions& options = {}) { return start(Call::barrier(options)); }
inline Handle barrier_async(const Where& where, const BarrierOptions& options = {}) {
  return start(where, Call::barrier(options));
}
/// @}

/// Tells Kolo that a training step ends here. If steps repeat, Kolo learns their batches and announces them more
/// cheaply (a "plan", docs/architecture.md). `DistributedOptimizer::step()` calls it. A program without that class may
/// call it once per step on every rank, or never.
KOLO_API void end_step(const Group& group = current_context());

}  // namespace kolo

#endif  // KOLO_COLLECTIVES_HPP
