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
/// Each makes a `Call` and runs or starts it (call.hpp).
#ifndef KOLO_COLLECTIVES_HPP
#define KOLO_COLLECTIVES_HPP

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/handle.hpp>
#include <kolo/options.hpp>
#include <kolo/types.hpp>

namespace kolo {

namespace detail {
inline CallResult result_of(const Group& group, std::optional<std::string_view> name, const Call& call) {
  CallResult result;
  run(group, name, call, &result);
  return result;
}
}  // namespace detail

/// @name allreduce
/// Reduces element by element over all ranks; the same shape everywhere. In place, or from `in` to `out`.
/// @{

inline void allreduce(TensorView inout, const AllreduceOptions& options = {}) {
  run(current_context(), std::nullopt, Call::allreduce(inout, options));
}
inline void allreduce(std::string_view name, TensorView inout, const AllreduceOptions& options = {}) {
  run(current_context(), name, Call::allreduce(inout, options));
}
inline void allreduce_into(ConstTensorView in, TensorView out, const AllreduceOptions& options = {}) {
  run(current_context(), std::nullopt, Call::allreduce_into(in, out, options));
}
inline void allreduce_into(std::string_view name, ConstTensorView in, TensorView out,
                           const AllreduceOptions& options = {}) {
  run(current_context(), name, Call::allreduce_into(in, out, options));
}
[[nodiscard]] inline Handle allreduce_async(TensorView inout, const AllreduceOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::allreduce(inout, options));
}
[[nodiscard]] inline Handle allreduce_async(std::string_view name, TensorView inout,
                                            const AllreduceOptions& options = {}) {
  return start(current_context(), name, Call::allreduce(inout, options));
}
[[nodiscard]] inline Handle allreduce_into_async(ConstTensorView in, TensorView out,
                                                 const AllreduceOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::allreduce_into(in, out, options));
}
[[nodiscard]] inline Handle allreduce_into_async(std::string_view name, ConstTensorView in, TensorView out,
                                                 const AllreduceOptions& options = {}) {
  return start(current_context(), name, Call::allreduce_into(in, out, options));
}
inline void allreduce(const Group& group, TensorView inout, const AllreduceOptions& options = {}) {
  run(group, std::nullopt, Call::allreduce(inout, options));
}
inline void allreduce(const Group& group, std::string_view name, TensorView inout,
                      const AllreduceOptions& options = {}) {
  run(group, name, Call::allreduce(inout, options));
}
inline void allreduce_into(const Group& group, ConstTensorView in, TensorView out,
                           const AllreduceOptions& options = {}) {
  run(group, std::nullopt, Call::allreduce_into(in, out, options));
}
inline void allreduce_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                           const AllreduceOptions& options = {}) {
  run(group, name, Call::allreduce_into(in, out, options));
}
[[nodiscard]] inline Handle allreduce_async(const Group& group, TensorView inout,
                                            const AllreduceOptions& options = {}) {
  return start(group, std::nullopt, Call::allreduce(inout, options));
}
[[nodiscard]] inline Handle allreduce_async(const Group& group, std::string_view name, TensorView inout,
                                            const AllreduceOptions& options = {}) {
  return start(group, name, Call::allreduce(inout, options));
}
[[nodiscard]] inline Handle allreduce_into_async(const Group& group, ConstTensorView in, TensorView out,
                                                 const AllreduceOptions& options = {}) {
  return start(group, std::nullopt, Call::allreduce_into(in, out, options));
}
[[nodiscard]] inline Handle allreduce_into_async(const Group& group, std::string_view name, ConstTensorView in,
                                                 TensorView out, const AllreduceOptions& options = {}) {
  return start(group, name, Call::allreduce_into(in, out, options));
}

/// A scalar, by value. Sums and products of integers wrap around, as those of tensors do: of n bits, what is right
/// modulo 2^n. Give a wider type where that may happen.
template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
[[nodiscard]] T allreduce(const Group& group, T value, ReduceOp op = ReduceOp::sum) {
  allreduce(group, TensorView(&value, dtype_of<T>(), Shape{}), AllreduceOptions{}.with_op(op));
  return value;
}
template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
[[nodiscard]] T allreduce(T value, ReduceOp op = ReduceOp::sum) {
  return allreduce(current_context(), value, op);
}

/// @}

/// @name grouped allreduce
/// Several tensors as one request, ready as a whole and executed as a whole. All ranks give the same members in the
/// same order: names, dtypes and shapes are compared, and a difference is an error on every rank (mismatch). Names
/// differ within a grouped call (invalid_argument at the call); dtypes may. `grouped` (call.hpp) groups calls of any
/// kind.
/// @{

inline void grouped_allreduce(std::string_view name, Span<const NamedView> members,
                              const AllreduceOptions& options = {}) {
  run(current_context(), name, Call::grouped_allreduce(members, options));
}
[[nodiscard]] inline Handle grouped_allreduce_async(Span<const NamedView> members,
                                                    const AllreduceOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::grouped_allreduce(members, options));
}
[[nodiscard]] inline Handle grouped_allreduce_async(std::string_view name, Span<const NamedView> members,
                                                    const AllreduceOptions& options = {}) {
  return start(current_context(), name, Call::grouped_allreduce(members, options));
}
inline void grouped_allreduce(const Group& group, std::string_view name, Span<const NamedView> members,
                              const AllreduceOptions& options = {}) {
  run(group, name, Call::grouped_allreduce(members, options));
}
[[nodiscard]] inline Handle grouped_allreduce_async(const Group& group, Span<const NamedView> members,
                                                    const AllreduceOptions& options = {}) {
  return start(group, std::nullopt, Call::grouped_allreduce(members, options));
}
[[nodiscard]] inline Handle grouped_allreduce_async(const Group& group, std::string_view name,
                                                    Span<const NamedView> members,
                                                    const AllreduceOptions& options = {}) {
  return start(group, name, Call::grouped_allreduce(members, options));
}

/// @}

/// @name reduce
/// Reduces element by element over all ranks; only rank `root` gets the result. It is allreduce's result, bit for bit
/// in memory of the CPU. The same shape everywhere. In place: the result replaces the root's tensor; the other ranks'
/// tensors are not changed.
/// @{

inline void reduce(TensorView inout, int root, const ReduceOptions& options = {}) {
  run(current_context(), std::nullopt, Call::reduce(inout, root, options));
}
inline void reduce(std::string_view name, TensorView inout, int root, const ReduceOptions& options = {}) {
  run(current_context(), name, Call::reduce(inout, root, options));
}
[[nodiscard]] inline Handle reduce_async(TensorView inout, int root, const ReduceOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::reduce(inout, root, options));
}
[[nodiscard]] inline Handle reduce_async(std::string_view name, TensorView inout, int root,
                                         const ReduceOptions& options = {}) {
  return start(current_context(), name, Call::reduce(inout, root, options));
}
/// From `in` to the root's `out`, which the root must give (else: invalid_argument at the call). Other ranks may give
/// `std::nullopt`; an output that they give is checked and not written.
inline void reduce_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const ReduceOptions& options = {}) {
  run(current_context(), std::nullopt, Call::reduce_into(in, out, root, options));
}
inline void reduce_into(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const ReduceOptions& options = {}) {
  run(current_context(), name, Call::reduce_into(in, out, root, options));
}
[[nodiscard]] inline Handle reduce_into_async(ConstTensorView in, const std::optional<TensorView>& out, int root,
                                              const ReduceOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::reduce_into(in, out, root, options));
}
[[nodiscard]] inline Handle reduce_into_async(std::string_view name, ConstTensorView in,
                                              const std::optional<TensorView>& out, int root,
                                              const ReduceOptions& options = {}) {
  return start(current_context(), name, Call::reduce_into(in, out, root, options));
}
inline void reduce(const Group& group, TensorView inout, int root, const ReduceOptions& options = {}) {
  run(group, std::nullopt, Call::reduce(inout, root, options));
}
inline void reduce(const Group& group, std::string_view name, TensorView inout, int root,
                   const ReduceOptions& options = {}) {
  run(group, name, Call::reduce(inout, root, options));
}
[[nodiscard]] inline Handle reduce_async(const Group& group, TensorView inout, int root,
                                         const ReduceOptions& options = {}) {
  return start(group, std::nullopt, Call::reduce(inout, root, options));
}
[[nodiscard]] inline Handle reduce_async(const Group& group, std::string_view name, TensorView inout, int root,
                                         const ReduceOptions& options = {}) {
  return start(group, name, Call::reduce(inout, root, options));
}
inline void reduce_into(const Group& group, ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const ReduceOptions& options = {}) {
  run(group, std::nullopt, Call::reduce_into(in, out, root, options));
}
inline void reduce_into(const Group& group, std::string_view name, ConstTensorView in,
                        const std::optional<TensorView>& out, int root, const ReduceOptions& options = {}) {
  run(group, name, Call::reduce_into(in, out, root, options));
}
[[nodiscard]] inline Handle reduce_into_async(const Group& group, ConstTensorView in,
                                              const std::optional<TensorView>& out, int root,
                                              const ReduceOptions& options = {}) {
  return start(group, std::nullopt, Call::reduce_into(in, out, root, options));
}
[[nodiscard]] inline Handle reduce_into_async(const Group& group, std::string_view name, ConstTensorView in,
                                              const std::optional<TensorView>& out, int root,
                                              const ReduceOptions& options = {}) {
  return start(group, name, Call::reduce_into(in, out, root, options));
}

/// @}

/// @name broadcast
/// Copies rank `root`'s contents to all ranks; the same shape everywhere.
/// @{

inline void broadcast(TensorView inout, int root, const BroadcastOptions& options = {}) {
  run(current_context(), std::nullopt, Call::broadcast(inout, root, options));
}
inline void broadcast(std::string_view name, TensorView inout, int root, const BroadcastOptions& options = {}) {
  run(current_context(), name, Call::broadcast(inout, root, options));
}
[[nodiscard]] inline Handle broadcast_async(TensorView inout, int root, const BroadcastOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::broadcast(inout, root, options));
}
[[nodiscard]] inline Handle broadcast_async(std::string_view name, TensorView inout, int root,
                                            const BroadcastOptions& options = {}) {
  return start(current_context(), name, Call::broadcast(inout, root, options));
}
/// The root reads `in`; every rank, including the root, gets the contents in `out`.
inline void broadcast_into(ConstTensorView in, TensorView out, int root, const BroadcastOptions& options = {}) {
  run(current_context(), std::nullopt, Call::broadcast_into(in, out, root, options));
}
inline void broadcast_into(std::string_view name, ConstTensorView in, TensorView out, int root,
                           const BroadcastOptions& options = {}) {
  run(current_context(), name, Call::broadcast_into(in, out, root, options));
}
[[nodiscard]] inline Handle broadcast_into_async(ConstTensorView in, TensorView out, int root,
                                                 const BroadcastOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::broadcast_into(in, out, root, options));
}
[[nodiscard]] inline Handle broadcast_into_async(std::string_view name, ConstTensorView in, TensorView out, int root,
                                                 const BroadcastOptions& options = {}) {
  return start(current_context(), name, Call::broadcast_into(in, out, root, options));
}
inline void broadcast(const Group& group, TensorView inout, int root, const BroadcastOptions& options = {}) {
  run(group, std::nullopt, Call::broadcast(inout, root, options));
}
inline void broadcast(const Group& group, std::string_view name, TensorView inout, int root,
                      const BroadcastOptions& options = {}) {
  run(group, name, Call::broadcast(inout, root, options));
}
[[nodiscard]] inline Handle broadcast_async(const Group& group, TensorView inout, int root,
                                            const BroadcastOptions& options = {}) {
  return start(group, std::nullopt, Call::broadcast(inout, root, options));
}
[[nodiscard]] inline Handle broadcast_async(const Group& group, std::string_view name, TensorView inout, int root,
                                            const BroadcastOptions& options = {}) {
  return start(group, name, Call::broadcast(inout, root, options));
}
inline void broadcast_into(const Group& group, ConstTensorView in, TensorView out, int root,
                           const BroadcastOptions& options = {}) {
  run(group, std::nullopt, Call::broadcast_into(in, out, root, options));
}
inline void broadcast_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out, int root,
                           const BroadcastOptions& options = {}) {
  run(group, name, Call::broadcast_into(in, out, root, options));
}
[[nodiscard]] inline Handle broadcast_into_async(const Group& group, ConstTensorView in, TensorView out, int root,
                                                 const BroadcastOptions& options = {}) {
  return start(group, std::nullopt, Call::broadcast_into(in, out, root, options));
}
[[nodiscard]] inline Handle broadcast_into_async(const Group& group, std::string_view name, ConstTensorView in,
                                                 TensorView out, int root, const BroadcastOptions& options = {}) {
  return start(group, name, Call::broadcast_into(in, out, root, options));
}

/// @}

/// @name allgather
/// Concatenates all ranks' tensors along the first dimension, in the order of ranks. The first dimension may differ by
/// rank (and be 0); the others agree. A scalar counts as one row. Where it agrees, too, `Call::allgather_equal_into` is
/// faster on GPUs.
/// @{

[[nodiscard]] inline Tensor allgather(ConstTensorView in, const AllgatherOptions& options = {}) {
  return detail::result_of(current_context(), std::nullopt, Call::allgather(in, options)).output;
}
[[nodiscard]] inline Tensor allgather(std::string_view name, ConstTensorView in, const AllgatherOptions& options = {}) {
  return detail::result_of(current_context(), name, Call::allgather(in, options)).output;
}
[[nodiscard]] inline Future<Tensor> allgather_async(ConstTensorView in, const AllgatherOptions& options = {}) {
  return Future<Tensor>(start(current_context(), std::nullopt, Call::allgather(in, options)));
}
[[nodiscard]] inline Future<Tensor> allgather_async(std::string_view name, ConstTensorView in,
                                                    const AllgatherOptions& options = {}) {
  return Future<Tensor>(start(current_context(), name, Call::allgather(in, options)));
}
/// Into memory of the caller, which must have as many elements as the result; else the operation fails on this rank
/// (invalid_argument) and completes on the others. In place: `in` may be exactly this rank's rows of `out`; if it lies
/// elsewhere in `out`, the operation fails in the same way.
inline void allgather_into(ConstTensorView in, TensorView out, const AllgatherOptions& options = {}) {
  run(current_context(), std::nullopt, Call::allgather_into(in, out, options));
}
inline void allgather_into(std::string_view name, ConstTensorView in, TensorView out,
                           const AllgatherOptions& options = {}) {
  run(current_context(), name, Call::allgather_into(in, out, options));
}
[[nodiscard]] inline Handle allgather_into_async(ConstTensorView in, TensorView out,
                                                 const AllgatherOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::allgather_into(in, out, options));
}
[[nodiscard]] inline Handle allgather_into_async(std::string_view name, ConstTensorView in, TensorView out,
                                                 const AllgatherOptions& options = {}) {
  return start(current_context(), name, Call::allgather_into(in, out, options));
}
[[nodiscard]] inline Tensor allgather(const Group& group, ConstTensorView in, const AllgatherOptions& options = {}) {
  return detail::result_of(group, std::nullopt, Call::allgather(in, options)).output;
}
[[nodiscard]] inline Tensor allgather(const Group& group, std::string_view name, ConstTensorView in,
                                      const AllgatherOptions& options = {}) {
  return detail::result_of(group, name, Call::allgather(in, options)).output;
}
[[nodiscard]] inline Future<Tensor> allgather_async(const Group& group, ConstTensorView in,
                                                    const AllgatherOptions& options = {}) {
  return Future<Tensor>(start(group, std::nullopt, Call::allgather(in, options)));
}
[[nodiscard]] inline Future<Tensor> allgather_async(const Group& group, std::string_view name, ConstTensorView in,
                                                    const AllgatherOptions& options = {}) {
  return Future<Tensor>(start(group, name, Call::allgather(in, options)));
}
inline void allgather_into(const Group& group, ConstTensorView in, TensorView out,
                           const AllgatherOptions& options = {}) {
  run(group, std::nullopt, Call::allgather_into(in, out, options));
}
inline void allgather_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                           const AllgatherOptions& options = {}) {
  run(group, name, Call::allgather_into(in, out, options));
}
[[nodiscard]] inline Handle allgather_into_async(const Group& group, ConstTensorView in, TensorView out,
                                                 const AllgatherOptions& options = {}) {
  return start(group, std::nullopt, Call::allgather_into(in, out, options));
}
[[nodiscard]] inline Handle allgather_into_async(const Group& group, std::string_view name, ConstTensorView in,
                                                 TensorView out, const AllgatherOptions& options = {}) {
  return start(group, name, Call::allgather_into(in, out, options));
}

/// @}

/// @name gather
/// As allgather, but only rank `root` gets the result: all ranks' tensors along the first dimension, in the order of
/// ranks. The first dimension may differ by rank (and be 0); the others agree. A scalar counts as one row. On the other
/// ranks the result has no rows.
/// @{

[[nodiscard]] inline Tensor gather(ConstTensorView in, int root, const GatherOptions& options = {}) {
  return detail::result_of(current_context(), std::nullopt, Call::gather(in, root, options)).output;
}
[[nodiscard]] inline Tensor gather(std::string_view name, ConstTensorView in, int root,
                                   const GatherOptions& options = {}) {
  return detail::result_of(current_context(), name, Call::gather(in, root, options)).output;
}
[[nodiscard]] inline Future<Tensor> gather_async(ConstTensorView in, int root, const GatherOptions& options = {}) {
  return Future<Tensor>(start(current_context(), std::nullopt, Call::gather(in, root, options)));
}
[[nodiscard]] inline Future<Tensor> gather_async(std::string_view name, ConstTensorView in, int root,
                                                 const GatherOptions& options = {}) {
  return Future<Tensor>(start(current_context(), name, Call::gather(in, root, options)));
}
/// Into memory of the root, which the root must give (else: invalid_argument at the call). It must have as many
/// elements as the result; else the operation fails on the root (invalid_argument) and completes on the others (memory
/// of a device: fails everywhere). Other ranks may give `std::nullopt`; an output that they give is not written. In
/// place: the root's `in` may be exactly its rows of `out`; if it lies elsewhere in `out`, the operation fails in the
/// same way.
inline void gather_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const GatherOptions& options = {}) {
  run(current_context(), std::nullopt, Call::gather_into(in, out, root, options));
}
inline void gather_into(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const GatherOptions& options = {}) {
  run(current_context(), name, Call::gather_into(in, out, root, options));
}
[[nodiscard]] inline Handle gather_into_async(ConstTensorView in, const std::optional<TensorView>& out, int root,
                                              const GatherOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::gather_into(in, out, root, options));
}
[[nodiscard]] inline Handle gather_into_async(std::string_view name, ConstTensorView in,
                                              const std::optional<TensorView>& out, int root,
                                              const GatherOptions& options = {}) {
  return start(current_context(), name, Call::gather_into(in, out, root, options));
}
[[nodiscard]] inline Tensor gather(const Group& group, ConstTensorView in, int root,
                                   const GatherOptions& options = {}) {
  return detail::result_of(group, std::nullopt, Call::gather(in, root, options)).output;
}
[[nodiscard]] inline Tensor gather(const Group& group, std::string_view name, ConstTensorView in, int root,
                                   const GatherOptions& options = {}) {
  return detail::result_of(group, name, Call::gather(in, root, options)).output;
}
[[nodiscard]] inline Future<Tensor> gather_async(const Group& group, ConstTensorView in, int root,
                                                 const GatherOptions& options = {}) {
  return Future<Tensor>(start(group, std::nullopt, Call::gather(in, root, options)));
}
[[nodiscard]] inline Future<Tensor> gather_async(const Group& group, std::string_view name, ConstTensorView in,
                                                 int root, const GatherOptions& options = {}) {
  return Future<Tensor>(start(group, name, Call::gather(in, root, options)));
}
inline void gather_into(const Group& group, ConstTensorView in, const std::optional<TensorView>& out, int root,
                        const GatherOptions& options = {}) {
  run(group, std::nullopt, Call::gather_into(in, out, root, options));
}
inline void gather_into(const Group& group, std::string_view name, ConstTensorView in,
                        const std::optional<TensorView>& out, int root, const GatherOptions& options = {}) {
  run(group, name, Call::gather_into(in, out, root, options));
}
[[nodiscard]] inline Handle gather_into_async(const Group& group, ConstTensorView in,
                                              const std::optional<TensorView>& out, int root,
                                              const GatherOptions& options = {}) {
  return start(group, std::nullopt, Call::gather_into(in, out, root, options));
}
[[nodiscard]] inline Handle gather_into_async(const Group& group, std::string_view name, ConstTensorView in,
                                              const std::optional<TensorView>& out, int root,
                                              const GatherOptions& options = {}) {
  return start(group, name, Call::gather_into(in, out, root, options));
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

inline void scatter_into(const std::optional<ConstTensorView>& in, TensorView out, int root,
                         Span<const std::int64_t> splits = {}, const ScatterOptions& options = {}) {
  run(current_context(), std::nullopt, Call::scatter_into(in, out, root, splits, options));
}
inline void scatter_into(std::string_view name, const std::optional<ConstTensorView>& in, TensorView out, int root,
                         Span<const std::int64_t> splits = {}, const ScatterOptions& options = {}) {
  run(current_context(), name, Call::scatter_into(in, out, root, splits, options));
}
[[nodiscard]] inline Handle scatter_into_async(const std::optional<ConstTensorView>& in, TensorView out, int root,
                                               Span<const std::int64_t> splits = {},
                                               const ScatterOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::scatter_into(in, out, root, splits, options));
}
[[nodiscard]] inline Handle scatter_into_async(std::string_view name, const std::optional<ConstTensorView>& in,
                                               TensorView out, int root, Span<const std::int64_t> splits = {},
                                               const ScatterOptions& options = {}) {
  return start(current_context(), name, Call::scatter_into(in, out, root, splits, options));
}
inline void scatter_into(const Group& group, const std::optional<ConstTensorView>& in, TensorView out, int root,
                         Span<const std::int64_t> splits = {}, const ScatterOptions& options = {}) {
  run(group, std::nullopt, Call::scatter_into(in, out, root, splits, options));
}
inline void scatter_into(const Group& group, std::string_view name, const std::optional<ConstTensorView>& in,
                         TensorView out, int root, Span<const std::int64_t> splits = {},
                         const ScatterOptions& options = {}) {
  run(group, name, Call::scatter_into(in, out, root, splits, options));
}
[[nodiscard]] inline Handle scatter_into_async(const Group& group, const std::optional<ConstTensorView>& in,
                                               TensorView out, int root, Span<const std::int64_t> splits = {},
                                               const ScatterOptions& options = {}) {
  return start(group, std::nullopt, Call::scatter_into(in, out, root, splits, options));
}
[[nodiscard]] inline Handle scatter_into_async(const Group& group, std::string_view name,
                                               const std::optional<ConstTensorView>& in, TensorView out, int root,
                                               Span<const std::int64_t> splits = {},
                                               const ScatterOptions& options = {}) {
  return start(group, name, Call::scatter_into(in, out, root, splits, options));
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

[[nodiscard]] inline AlltoallResult alltoall(ConstTensorView in, Span<const std::int64_t> splits = {},
                                             const AlltoallOptions& options = {}) {
  return detail::result_of(current_context(), std::nullopt, Call::alltoall(in, splits, options));
}
[[nodiscard]] inline AlltoallResult alltoall(std::string_view name, ConstTensorView in,
                                             Span<const std::int64_t> splits = {},
                                             const AlltoallOptions& options = {}) {
  return detail::result_of(current_context(), name, Call::alltoall(in, splits, options));
}
[[nodiscard]] inline Future<AlltoallResult> alltoall_async(ConstTensorView in, Span<const std::int64_t> splits = {},
                                                           const AlltoallOptions& options = {}) {
  return Future<AlltoallResult>(start(current_context(), std::nullopt, Call::alltoall(in, splits, options)));
}
[[nodiscard]] inline Future<AlltoallResult> alltoall_async(std::string_view name, ConstTensorView in,
                                                           Span<const std::int64_t> splits = {},
                                                           const AlltoallOptions& options = {}) {
  return Future<AlltoallResult>(start(current_context(), name, Call::alltoall(in, splits, options)));
}
/// Into memory of the caller, which must have as many elements as the result. If it has not: without splits that is an
/// error at the call; with splits the operation fails on this rank (invalid_argument) and completes on the others.
inline void alltoall_into(ConstTensorView in, TensorView out, Span<const std::int64_t> splits = {},
                          const AlltoallOptions& options = {}) {
  run(current_context(), std::nullopt, Call::alltoall_into(in, out, splits, options));
}
inline void alltoall_into(std::string_view name, ConstTensorView in, TensorView out,
                          Span<const std::int64_t> splits = {}, const AlltoallOptions& options = {}) {
  run(current_context(), name, Call::alltoall_into(in, out, splits, options));
}
[[nodiscard]] inline Handle alltoall_into_async(ConstTensorView in, TensorView out,
                                                Span<const std::int64_t> splits = {},
                                                const AlltoallOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::alltoall_into(in, out, splits, options));
}
[[nodiscard]] inline Handle alltoall_into_async(std::string_view name, ConstTensorView in, TensorView out,
                                                Span<const std::int64_t> splits = {},
                                                const AlltoallOptions& options = {}) {
  return start(current_context(), name, Call::alltoall_into(in, out, splits, options));
}
[[nodiscard]] inline AlltoallResult alltoall(const Group& group, ConstTensorView in,
                                             Span<const std::int64_t> splits = {},
                                             const AlltoallOptions& options = {}) {
  return detail::result_of(group, std::nullopt, Call::alltoall(in, splits, options));
}
[[nodiscard]] inline AlltoallResult alltoall(const Group& group, std::string_view name, ConstTensorView in,
                                             Span<const std::int64_t> splits = {},
                                             const AlltoallOptions& options = {}) {
  return detail::result_of(group, name, Call::alltoall(in, splits, options));
}
[[nodiscard]] inline Future<AlltoallResult> alltoall_async(const Group& group, ConstTensorView in,
                                                           Span<const std::int64_t> splits = {},
                                                           const AlltoallOptions& options = {}) {
  return Future<AlltoallResult>(start(group, std::nullopt, Call::alltoall(in, splits, options)));
}
[[nodiscard]] inline Future<AlltoallResult> alltoall_async(const Group& group, std::string_view name,
                                                           ConstTensorView in, Span<const std::int64_t> splits = {},
                                                           const AlltoallOptions& options = {}) {
  return Future<AlltoallResult>(start(group, name, Call::alltoall(in, splits, options)));
}
inline void alltoall_into(const Group& group, ConstTensorView in, TensorView out, Span<const std::int64_t> splits = {},
                          const AlltoallOptions& options = {}) {
  run(group, std::nullopt, Call::alltoall_into(in, out, splits, options));
}
inline void alltoall_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                          Span<const std::int64_t> splits = {}, const AlltoallOptions& options = {}) {
  run(group, name, Call::alltoall_into(in, out, splits, options));
}
[[nodiscard]] inline Handle alltoall_into_async(const Group& group, ConstTensorView in, TensorView out,
                                                Span<const std::int64_t> splits = {},
                                                const AlltoallOptions& options = {}) {
  return start(group, std::nullopt, Call::alltoall_into(in, out, splits, options));
}
[[nodiscard]] inline Handle alltoall_into_async(const Group& group, std::string_view name, ConstTensorView in,
                                                TensorView out, Span<const std::int64_t> splits = {},
                                                const AlltoallOptions& options = {}) {
  return start(group, name, Call::alltoall_into(in, out, splits, options));
}

/// @}

/// @name reduce_scatter
/// Element by element over all ranks, as allreduce, but each rank gets only its rows (of the first dimension) of the
/// result: with `rows` rows on n ranks every rank gets rows / n of them, in the order of ranks, and the first rows % n
/// ranks one more (so a rank may get none). The same shape everywhere; a scalar has no rows (invalid_argument).
/// @{

[[nodiscard]] inline Tensor reduce_scatter(ConstTensorView in, const ReduceScatterOptions& options = {}) {
  return detail::result_of(current_context(), std::nullopt, Call::reduce_scatter(in, options)).output;
}
[[nodiscard]] inline Tensor reduce_scatter(std::string_view name, ConstTensorView in,
                                           const ReduceScatterOptions& options = {}) {
  return detail::result_of(current_context(), name, Call::reduce_scatter(in, options)).output;
}
[[nodiscard]] inline Future<Tensor> reduce_scatter_async(ConstTensorView in, const ReduceScatterOptions& options = {}) {
  return Future<Tensor>(start(current_context(), std::nullopt, Call::reduce_scatter(in, options)));
}
[[nodiscard]] inline Future<Tensor> reduce_scatter_async(std::string_view name, ConstTensorView in,
                                                         const ReduceScatterOptions& options = {}) {
  return Future<Tensor>(start(current_context(), name, Call::reduce_scatter(in, options)));
}
/// Into memory of the caller with as many elements as this rank's rows have (else: invalid_argument at the call). In
/// place: `out` may be exactly this rank's rows of `in`; the rest of `in` is not changed.
inline void reduce_scatter_into(ConstTensorView in, TensorView out, const ReduceScatterOptions& options = {}) {
  run(current_context(), std::nullopt, Call::reduce_scatter_into(in, out, options));
}
inline void reduce_scatter_into(std::string_view name, ConstTensorView in, TensorView out,
                                const ReduceScatterOptions& options = {}) {
  run(current_context(), name, Call::reduce_scatter_into(in, out, options));
}
[[nodiscard]] inline Handle reduce_scatter_into_async(ConstTensorView in, TensorView out,
                                                      const ReduceScatterOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::reduce_scatter_into(in, out, options));
}
[[nodiscard]] inline Handle reduce_scatter_into_async(std::string_view name, ConstTensorView in, TensorView out,
                                                      const ReduceScatterOptions& options = {}) {
  return start(current_context(), name, Call::reduce_scatter_into(in, out, options));
}
[[nodiscard]] inline Tensor reduce_scatter(const Group& group, ConstTensorView in,
                                           const ReduceScatterOptions& options = {}) {
  return detail::result_of(group, std::nullopt, Call::reduce_scatter(in, options)).output;
}
[[nodiscard]] inline Tensor reduce_scatter(const Group& group, std::string_view name, ConstTensorView in,
                                           const ReduceScatterOptions& options = {}) {
  return detail::result_of(group, name, Call::reduce_scatter(in, options)).output;
}
[[nodiscard]] inline Future<Tensor> reduce_scatter_async(const Group& group, ConstTensorView in,
                                                         const ReduceScatterOptions& options = {}) {
  return Future<Tensor>(start(group, std::nullopt, Call::reduce_scatter(in, options)));
}
[[nodiscard]] inline Future<Tensor> reduce_scatter_async(const Group& group, std::string_view name, ConstTensorView in,
                                                         const ReduceScatterOptions& options = {}) {
  return Future<Tensor>(start(group, name, Call::reduce_scatter(in, options)));
}
inline void reduce_scatter_into(const Group& group, ConstTensorView in, TensorView out,
                                const ReduceScatterOptions& options = {}) {
  run(group, std::nullopt, Call::reduce_scatter_into(in, out, options));
}
inline void reduce_scatter_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                                const ReduceScatterOptions& options = {}) {
  run(group, name, Call::reduce_scatter_into(in, out, options));
}
[[nodiscard]] inline Handle reduce_scatter_into_async(const Group& group, ConstTensorView in, TensorView out,
                                                      const ReduceScatterOptions& options = {}) {
  return start(group, std::nullopt, Call::reduce_scatter_into(in, out, options));
}
[[nodiscard]] inline Handle reduce_scatter_into_async(const Group& group, std::string_view name, ConstTensorView in,
                                                      TensorView out, const ReduceScatterOptions& options = {}) {
  return start(group, name, Call::reduce_scatter_into(in, out, options));
}

/// @}

/// @name barrier
/// Completes when every rank has called it. It is no fence: asynchronous operations may still be open when it
/// completes, on this rank and on others; wait for their handles.
/// @{

inline void barrier(const BarrierOptions& options = {}) {
  run(current_context(), std::nullopt, Call::barrier(options));
}
[[nodiscard]] inline Handle barrier_async(const BarrierOptions& options = {}) {
  return start(current_context(), std::nullopt, Call::barrier(options));
}
[[nodiscard]] inline Handle barrier_async(std::string_view name, const BarrierOptions& options = {}) {
  return start(current_context(), name, Call::barrier(options));
}
inline void barrier(const Group& group, const BarrierOptions& options = {}) {
  run(group, std::nullopt, Call::barrier(options));
}
[[nodiscard]] inline Handle barrier_async(const Group& group, const BarrierOptions& options = {}) {
  return start(group, std::nullopt, Call::barrier(options));
}
[[nodiscard]] inline Handle barrier_async(const Group& group, std::string_view name,
                                          const BarrierOptions& options = {}) {
  return start(group, name, Call::barrier(options));
}

/// @}

/// @name join
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
/// @{

KOLO_API int join(const Group& group, const JoinOptions& options = {});
[[nodiscard]] KOLO_API Future<int> join_async(const Group& group, const JoinOptions& options = {});
inline int join(const JoinOptions& options = {}) { return join(current_context(), options); }
[[nodiscard]] inline Future<int> join_async(const JoinOptions& options = {}) {
  return join_async(current_context(), options);
}

/// @}

/// Tells Kolo that a training step ends here. If steps repeat, Kolo learns their batches and announces them more
/// cheaply (a "plan", docs/architecture.md). `DistributedOptimizer::step()` calls it. A program without that class may
/// call it once per step on every rank, or never.
KOLO_API void end_step(const Group& group);
inline void end_step() { end_step(current_context()); }

/// @name prepared requests
/// As the calls of the same name. Errors at the call are thrown here, once. `prepare` (call.hpp) prepares any
/// collective.
/// @{

[[nodiscard]] inline Prepared prepare_allreduce(std::string_view name, TensorView inout,
                                                const AllreduceOptions& options = {}) {
  return prepare(current_context(), name, Call::allreduce(inout, options));
}
[[nodiscard]] inline Prepared prepare_grouped_allreduce(std::string_view name, Span<const NamedView> members,
                                                        const AllreduceOptions& options = {}) {
  return prepare(current_context(), name, Call::grouped_allreduce(members, options));
}
[[nodiscard]] inline Prepared prepare_broadcast(std::string_view name, TensorView inout, int root,
                                                const BroadcastOptions& options = {}) {
  return prepare(current_context(), name, Call::broadcast(inout, root, options));
}
[[nodiscard]] inline Prepared prepare_allreduce(const Group& group, std::string_view name, TensorView inout,
                                                const AllreduceOptions& options = {}) {
  return prepare(group, name, Call::allreduce(inout, options));
}
[[nodiscard]] inline Prepared prepare_grouped_allreduce(const Group& group, std::string_view name,
                                                        Span<const NamedView> members,
                                                        const AllreduceOptions& options = {}) {
  return prepare(group, name, Call::grouped_allreduce(members, options));
}
[[nodiscard]] inline Prepared prepare_broadcast(const Group& group, std::string_view name, TensorView inout, int root,
                                                const BroadcastOptions& options = {}) {
  return prepare(group, name, Call::broadcast(inout, root, options));
}

/// @}

}  // namespace kolo

#endif  // KOLO_COLLECTIVES_HPP
