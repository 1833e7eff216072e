// SPDX-License-Identifier: Apache-2.0

/// @file
/// The collectives. What holds for all of them:
///
/// - Every rank makes the same calls on the same names, with the same dtype, shape, op, scales and root, in any order
///   and from any threads. Who disagrees is told on every rank (`Error` mismatch), and the job goes on.
/// - Asynchronous calls take a name, which is in flight once at a time: submitting it again before it has completed is
///   an error at the call (duplicate_name). Synchronous calls may leave the name out: then the order of the calls is
///   the name, so all ranks must make their unnamed calls in the same order (threads of one rank queue).
/// - Buffers stay valid, and untouched by the caller, until completion. Any alignment is accepted. The input and the
///   output of an `_into` call must not overlap (else: invalid_argument).
/// - Errors at the call: invalid_argument, duplicate_name, unsupported, not_initialized, or the world's fault if
///   there was one. Errors at `wait()`: mismatch, timeout, rank_lost, shut_down, transport. After those, buffers in
///   flight are undefined.
/// - A name must not begin with "kolo." (those are Kolo's own).
/// - Results are bitwise the same on every rank.
#ifndef KOLO_COLLECTIVES_HPP
#define KOLO_COLLECTIVES_HPP

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/handle.hpp>
#include <kolo/options.hpp>
#include <kolo/types.hpp>

namespace kolo {

/// @name allreduce
/// Element by element over all ranks; the same shape everywhere. In place, or from `in` to `out`.
/// @{

KOLO_API void allreduce(TensorView inout, const AllreduceOptions& options = {});
KOLO_API void allreduce(std::string_view name, TensorView inout, const AllreduceOptions& options = {});
KOLO_API void allreduce_into(ConstTensorView in, TensorView out, const AllreduceOptions& options = {});
KOLO_API void allreduce_into(std::string_view name, ConstTensorView in, TensorView out,
                             const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Handle allreduce_async(std::string_view name, TensorView inout,
                                              const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Handle allreduce_into_async(std::string_view name, ConstTensorView in, TensorView out,
                                                   const AllreduceOptions& options = {});
KOLO_API void allreduce(Context& context, TensorView inout, const AllreduceOptions& options = {});
KOLO_API void allreduce(Context& context, std::string_view name, TensorView inout,
                        const AllreduceOptions& options = {});
KOLO_API void allreduce_into(Context& context, ConstTensorView in, TensorView out,
                             const AllreduceOptions& options = {});
KOLO_API void allreduce_into(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                             const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Handle allreduce_async(Context& context, std::string_view name, TensorView inout,
                                              const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Handle allreduce_into_async(Context& context, std::string_view name, ConstTensorView in,
                                                   TensorView out, const AllreduceOptions& options = {});

/// A scalar, by value.
template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
[[nodiscard]] T allreduce(Context& context, T value, ReduceOp op) {
  allreduce(context, TensorView(&value, dtype_of<T>(), Shape{}), AllreduceOptions{}.with_op(op));
  return value;
}
template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
[[nodiscard]] T allreduce(T value, ReduceOp op) {
  return allreduce(current_context(), value, op);
}

/// @}

/// @name grouped allreduce
/// Several tensors as one request, ready as a whole and executed as a whole. All ranks give the same members in the
/// same order; dtypes may differ within the group.
/// @{

KOLO_API void grouped_allreduce(std::string_view group, Span<const NamedView> members,
                                const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Handle grouped_allreduce_async(std::string_view group, Span<const NamedView> members,
                                                      const AllreduceOptions& options = {});
KOLO_API void grouped_allreduce(Context& context, std::string_view group, Span<const NamedView> members,
                                const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Handle grouped_allreduce_async(Context& context, std::string_view group,
                                                      Span<const NamedView> members,
                                                      const AllreduceOptions& options = {});

/// @}

/// @name broadcast
/// Rank `root`'s contents to all; the same shape everywhere.
/// @{

KOLO_API void broadcast(TensorView inout, int root, const CallOptions& options = {});
KOLO_API void broadcast(std::string_view name, TensorView inout, int root, const CallOptions& options = {});
[[nodiscard]] KOLO_API Handle broadcast_async(std::string_view name, TensorView inout, int root,
                                              const CallOptions& options = {});
/// The root reads `in`; every rank, the root too, gets the contents in `out`.
[[nodiscard]] KOLO_API Handle broadcast_into_async(std::string_view name, ConstTensorView in, TensorView out, int root,
                                                   const CallOptions& options = {});
KOLO_API void broadcast(Context& context, TensorView inout, int root, const CallOptions& options = {});
KOLO_API void broadcast(Context& context, std::string_view name, TensorView inout, int root,
                        const CallOptions& options = {});
[[nodiscard]] KOLO_API Handle broadcast_async(Context& context, std::string_view name, TensorView inout, int root,
                                              const CallOptions& options = {});
[[nodiscard]] KOLO_API Handle broadcast_into_async(Context& context, std::string_view name, ConstTensorView in,
                                                   TensorView out, int root, const CallOptions& options = {});

/// @}

/// @name allgather
/// Everyone's tensor one after another along the first dimension, in the order of ranks. The first dimension may differ
/// by rank (and be 0); the others agree. A scalar counts as one row.
/// @{

[[nodiscard]] KOLO_API Tensor allgather(ConstTensorView in, const CallOptions& options = {});
[[nodiscard]] KOLO_API Tensor allgather(std::string_view name, ConstTensorView in, const CallOptions& options = {});
[[nodiscard]] KOLO_API Future<Tensor> allgather_async(std::string_view name, ConstTensorView in,
                                                      const CallOptions& options = {});
/// Into memory of the caller, whose number of elements must be that of the result: else the operation fails on this
/// rank (invalid_argument) and completes on the others.
[[nodiscard]] KOLO_API Handle allgather_into_async(std::string_view name, ConstTensorView in, TensorView out,
                                                   const CallOptions& options = {});
[[nodiscard]] KOLO_API Tensor allgather(Context& context, ConstTensorView in, const CallOptions& options = {});
[[nodiscard]] KOLO_API Tensor allgather(Context& context, std::string_view name, ConstTensorView in,
                                        const CallOptions& options = {});
[[nodiscard]] KOLO_API Future<Tensor> allgather_async(Context& context, std::string_view name, ConstTensorView in,
                                                      const CallOptions& options = {});
[[nodiscard]] KOLO_API Handle allgather_into_async(Context& context, std::string_view name, ConstTensorView in,
                                                   TensorView out, const CallOptions& options = {});

/// @}

/// @name barrier
/// Completes when every rank has come.
/// @{

KOLO_API void barrier(const CallOptions& options = {});
[[nodiscard]] KOLO_API Handle barrier_async(std::string_view name, const CallOptions& options = {});
KOLO_API void barrier(Context& context, const CallOptions& options = {});
[[nodiscard]] KOLO_API Handle barrier_async(Context& context, std::string_view name, const CallOptions& options = {});

/// @}

/// Says that a training step ends here: what repeats from step to step is learned and frozen (docs/architecture.md,
/// "plans"). `DistributedOptimizer::step()` calls it; programs without it may, once per step on every rank, or never.
KOLO_API void end_step();
KOLO_API void end_step(Context& context);

/// A request that is checked and named once and started often, as MPI 4's persistent collectives. Move-only;
/// thread-compatible. It holds its name: submitting the same name by another way while it exists is an error. The
/// buffers must outlive it, or at least its last operation.
class KOLO_API Prepared {
 public:
  class Impl;
  Prepared() noexcept;
  explicit Prepared(std::unique_ptr<Impl> impl) noexcept;
  Prepared(Prepared&&) noexcept;
  Prepared& operator=(Prepared&&) noexcept;
  ~Prepared();

  /// Starts the operation. Looks up no name and, once the last handle has been dropped, allocates nothing. Throws
  /// `Error` (duplicate_name) while the last one is still in flight.
  [[nodiscard]] Handle start();

 private:
  std::unique_ptr<Impl> impl_;
};

/// @name prepared requests
/// As the calls of the same name. Errors at the call are thrown here, once.
/// @{

[[nodiscard]] KOLO_API Prepared prepare_allreduce(std::string_view name, TensorView inout,
                                                  const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Prepared prepare_grouped_allreduce(std::string_view group, Span<const NamedView> members,
                                                          const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Prepared prepare_broadcast(std::string_view name, TensorView inout, int root,
                                                  const CallOptions& options = {});
[[nodiscard]] KOLO_API Prepared prepare_allreduce(Context& context, std::string_view name, TensorView inout,
                                                  const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Prepared prepare_grouped_allreduce(Context& context, std::string_view group,
                                                          Span<const NamedView> members,
                                                          const AllreduceOptions& options = {});
[[nodiscard]] KOLO_API Prepared prepare_broadcast(Context& context, std::string_view name, TensorView inout, int root,
                                                  const CallOptions& options = {});

/// @}

}  // namespace kolo

#endif  // KOLO_COLLECTIVES_HPP
