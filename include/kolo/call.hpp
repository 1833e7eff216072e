// SPDX-License-Identifier: Apache-2.0

/// @file
/// A collective as a value: its kind, its memory and its options. Every form of a collective takes one: `run` makes the
/// call and waits, `start` makes it and returns a handle, `prepare` makes a request that can be started often, and
/// `grouped` makes several of one kind as one operation. Each takes a `Where` first (where.hpp). The functions of
/// collectives.hpp are shorter ways to write `run` and `start`.
///
///     kolo::Prepared exchange = kolo::prepare("exchange", kolo::Call::alltoall_into(in, out));
///     exchange.start().wait();  // as often as wanted
///     kolo::grouped("tables", {kolo::Call::allgather_into(a, all_a), kolo::Call::allgather_into(b, all_b)});
#ifndef KOLO_CALL_HPP
#define KOLO_CALL_HPP

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/detail/call_parts.hpp>
#include <kolo/export.hpp>
#include <kolo/handle.hpp>
#include <kolo/options.hpp>
#include <kolo/types.hpp>
#include <kolo/where.hpp>

namespace kolo {

using AllreduceOptions = ReductionOptions<struct OfAllreduce>;  ///< of `allreduce`, plain, grouped and prepared
using ReduceOptions = ReductionOptions<struct OfReduce>;
using ReduceScatterOptions = ReductionOptions<struct OfReduceScatter>;
using BroadcastOptions = MoveOptions<struct OfBroadcast>;
using AllgatherOptions = MoveOptions<struct OfAllgather>;
using GatherOptions = MoveOptions<struct OfGather>;
using ScatterOptions = MoveOptions<struct OfScatter>;  ///< of `scatter_into`
using AlltoallOptions = MoveOptions<struct OfAlltoall>;

/// A collective that has not been made yet. The functions have the arguments of the calls of the same name
/// (collectives.hpp, with meaning, shapes and defaults) but for the `Where`. They check nothing: `run`, `start`,
/// `prepare` and `grouped` do, and throw what the functions of collectives.hpp throw. The memory stays the caller's.
/// Thread-safe: a call never changes.
class Call {
 public:
  static Call allreduce(TensorView inout, const AllreduceOptions& options = {}) {
    return in_place(Kind::allreduce, inout, 0, options);
  }
  static Call allreduce_into(ConstTensorView in, TensorView out, const AllreduceOptions& options = {}) {
    return into(Kind::allreduce, in, out, 0, options);
  }
  static Call reduce(TensorView inout, int root, const ReduceOptions& options = {}) {
    return in_place(Kind::reduce, inout, root, options);
  }
  static Call reduce_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                          const ReduceOptions& options = {}) {
    return into(Kind::reduce, in, out, root, options);
  }
  static Call broadcast(TensorView inout, int root, const BroadcastOptions& options = {}) {
    return in_place(Kind::broadcast, inout, root, options);
  }
  static Call broadcast_into(ConstTensorView in, TensorView out, int root, const BroadcastOptions& options = {}) {
    return into(Kind::broadcast, in, out, root, options);
  }
  static Call allgather_into(ConstTensorView in, TensorView out, const AllgatherOptions& options = {}) {
    return into(Kind::allgather, in, out, 0, options);
  }
  static Call allgather_equal_into(ConstTensorView in, TensorView out, const AllgatherOptions& options = {}) {
    return into(Kind::allgather_equal, in, out, 0, options);
  }
  static Call gather_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                          const GatherOptions& options = {}) {
    return into(Kind::gather, in, out, root, options);
  }
  /// Copies the splits.
  static Call scatter_into(const std::optional<ConstTensorView>& in, TensorView out, int root, Splits splits = {},
                           const ScatterOptions& options = {}) {
    return into(Kind::scatter, in, out, root, options, splits);
  }
  /// Copies the splits.
  static Call alltoall_into(ConstTensorView in, TensorView out, Splits splits = {},
                            const AlltoallOptions& options = {}) {
    return into(alltoall_by(splits), in, out, 0, options, splits);
  }
  /// Copies the splits.
  static Call alltoall_known_into(ConstTensorView in, TensorView out, Splits splits, Splits received_splits,
                                  const AlltoallOptions& options = {}) {
    Call call = into(Kind::alltoall_known, in, out, 0, options, splits);
    call.parts_.received_splits.assign(received_splits.begin(), received_splits.end());
    return call;
  }
  static Call reduce_scatter_into(ConstTensorView in, TensorView out, const ReduceScatterOptions& options = {}) {
    return into(Kind::reduce_scatter, in, out, 0, options);
  }
  static Call barrier(const BarrierOptions& options = {}) {
    Call call(Kind::barrier);
    call.parts_.timeout = options.timeout;
    return call;
  }

  /// @name calls that own their result
  /// The library allocates the result, in memory of the CPU. `run` returns it, and so does the future of the
  /// asynchronous call: `Future<Tensor>(start(...))`. Such calls can be neither prepared nor grouped (`Error`
  /// invalid_argument).
  /// @{
  static Call allgather(ConstTensorView in, const AllgatherOptions& options = {}) {
    return owning(Kind::allgather, in, 0, options);
  }
  static Call gather(ConstTensorView in, int root, const GatherOptions& options = {}) {
    return owning(Kind::gather, in, root, options);
  }
  /// Copies the splits. Its future is a `Future<AlltoallResult>`.
  static Call alltoall(ConstTensorView in, Splits splits = {}, const AlltoallOptions& options = {}) {
    return owning(alltoall_by(splits), in, 0, options, splits);
  }
  static Call reduce_scatter(ConstTensorView in, const ReduceScatterOptions& options = {}) {
    return owning(Kind::reduce_scatter, in, 0, options);
  }
  /// @}

  /// @name grouped calls
  /// Several calls as one operation; see `grouped_allreduce` and `grouped`. The list is not copied: it must live until
  /// the call has been run, started or prepared.
  /// @{
  static Call grouped_allreduce(Span<const NamedView> members, const AllreduceOptions& options = {}) {
    Call call(Kind::allreduce, options);
    call.parts_.members = members;
    return call;
  }
  static Call grouped(Span<const Call> calls) {
    Call call(Kind::barrier);
    call.parts_.calls = calls;
    return call;
  }
  /// @}

 private:
  friend struct detail::Access;
  using Kind = detail::CollectiveKind;

  explicit Call(Kind kind) noexcept { parts_.kind = kind; }
  template <class Options>
  Call(Kind kind, const Options& options) : Call(kind) {
    take(options);
  }

  static Kind alltoall_by(Splits splits) noexcept { return splits.empty() ? Kind::alltoall : Kind::alltoall_splits; }

  template <class Options>
  static Call in_place(Kind kind, const TensorView& inout, int root, const Options& options) {
    Call call(kind, options);
    call.parts_.in_place = true;
    call.parts_.output.emplace(inout);
    call.parts_.root = root;
    return call;
  }
  template <class In, class Out, class Options>
  static Call into(Kind kind, const In& in, const Out& out, int root, const Options& options, Splits splits = {}) {
    Call call(kind, options);
    call.parts_.input = in;
    call.parts_.output = out;
    call.parts_.root = root;
    call.parts_.splits.assign(splits.begin(), splits.end());
    return call;
  }
  template <class Options>
  static Call owning(Kind kind, const ConstTensorView& in, int root, const Options& options, Splits splits = {}) {
    Call call = into(kind, in, std::nullopt, root, options, splits);
    call.parts_.owns_result = true;
    return call;
  }

  template <class Of>
  void take(const ReductionOptions<Of>& options) {
    parts_.op = options.op;
    parts_.priority = options.priority;
    parts_.prescale = options.prescale;
    parts_.postscale = options.postscale;
    parts_.send_as = options.send_as;
    parts_.timeout = options.timeout;
  }
  template <class Of>
  void take(const MoveOptions<Of>& options) {
    parts_.priority = options.priority;
    parts_.timeout = options.timeout;
  }

  detail::CallParts parts_;
};

/// @name making a call
/// The rules for all collectives are in collectives.hpp. Without a name the order of the calls is the name; an empty
/// name is refused (`Error` invalid_argument). From any thread.
/// @{
/// Makes the call, and waits until it has completed. `result` gets the result of a call that owns its result; other
/// calls do not touch it.
KOLO_API void run(const Where& where, const Call& call, CallResult* result = nullptr);
inline void run(const Call& call, CallResult* result = nullptr) { run(current_context(), call, result); }
/// Starts the call.
KOLO_API Handle start(const Where& where, const Call& call);
inline Handle start(const Call& call) { return start(current_context(), call); }
/// @}

namespace detail {
/// Makes a call that owns its result.
inline CallResult result_of(const Where& where, const Call& call) {
  CallResult result;
  run(where, call, &result);
  return result;
}
inline CallResult result_of(const Call& call) { return result_of(current_context(), call); }
inline AlltoallResult alltoall_of(const Where& where, const Call& call) {
  CallResult result = result_of(where, call);
  return {std::move(result.output), std::move(result.received_splits)};
}
}  // namespace detail

/// A request that is checked and named once and can be started often, like a persistent collective of MPI 4. Move-only;
/// thread-compatible. It holds its name: another call of the same name is an error while it exists. The buffers must
/// outlive it, or at least its last operation.
class KOLO_RESULT Prepared {
 public:
  class Impl;
  Prepared() noexcept;
  explicit Prepared(std::unique_ptr<Impl> impl) noexcept;
  Prepared(Prepared&&) noexcept;
  Prepared& operator=(Prepared&&) noexcept;
  ~Prepared();

  /// Starts the operation. Looks up no name. Allocates nothing if the handle of the last start has been dropped. Throws
  /// `Error`: duplicate_name while the last one is still in flight; unsupported in a forked process.
  [[nodiscard]] Handle start();

 private:
  std::unique_ptr<Impl> impl_;
};

/// Checks the call and claims the name, once, for a request that is started often. A name must be given. The request
/// meets calls of the same name on the other ranks, prepared or not. Local: does not wait for other ranks. Throws
/// `Error` as the call would (invalid_argument, unsupported, duplicate_name: the name is in flight, or belongs to
/// another prepared request), and invalid_argument without a name, and for a call that owns its result. From any
/// thread.
KOLO_API Prepared prepare(const Where& where, const Call& call);

/// @name grouped calls
/// Several calls of one kind as one operation, which runs on all ranks or on none. The calls may differ in memory, type
/// and shape only; operation, scales, root and device must be the same (else: invalid_argument). Memory that one call
/// writes must not be used by another. Every rank gives the same number of calls, in the same order (else: mismatch, on
/// every rank). If one call fails on a rank (its output has a wrong size), all fail there, and their outputs are
/// undefined. The shortest timeout counts. A grouped call has at least one call; each call has tensors, and an output
/// of the caller's (else: invalid_argument). From any thread. `prepare(where, Call::grouped(calls))` prepares one.
///
/// `grouped_allreduce` reduces several tensors in place. All ranks give the same members in the same order: names,
/// dtypes and shapes are compared, and a difference is an error on every rank (mismatch). Names differ within a grouped
/// call (invalid_argument at the call); dtypes may.
/// @{
inline void grouped(Span<const Call> calls) { run(Call::grouped(calls)); }
inline Handle grouped_async(Span<const Call> calls) { return start(Call::grouped(calls)); }
inline void grouped(const Where& where, Span<const Call> calls) { run(where, Call::grouped(calls)); }
inline Handle grouped_async(const Where& where, Span<const Call> calls) { return start(where, Call::grouped(calls)); }

inline void grouped_allreduce(Span<const NamedView> members, const AllreduceOptions& options = {}) {
  run(Call::grouped_allreduce(members, options));
}
inline void grouped_allreduce(const Where& where, Span<const NamedView> members, const AllreduceOptions& options = {}) {
  run(where, Call::grouped_allreduce(members, options));
}
inline Handle grouped_allreduce_async(Span<const NamedView> members, const AllreduceOptions& options = {}) {
  return start(Call::grouped_allreduce(members, options));
}
inline Handle grouped_allreduce_async(const Where& where, Span<const NamedView> members,
                                      const AllreduceOptions& options = {}) {
  return start(where, Call::grouped_allreduce(members, options));
}
/// @}

}  // namespace kolo

#endif  // KOLO_CALL_HPP
