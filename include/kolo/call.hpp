// SPDX-License-Identifier: Apache-2.0

/// @file
/// Collectives as values: what is to be done, with which memory and which options, before it is done. One such
/// description is prepared and started often, and several of one kind are made as one operation.
///
///     kolo::Prepared exchange = kolo::prepare("exchange", kolo::Call::alltoall_into(in, out));
///     exchange.start().wait();  // as often as wanted
///     kolo::grouped("tables", {kolo::Call::allgather_into(a, all_a), kolo::Call::allgather_into(b, all_b)});
#ifndef KOLO_CALL_HPP
#define KOLO_CALL_HPP

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <kolo/collectives.hpp>
#include <kolo/context.hpp>
#include <kolo/handle.hpp>
#include <kolo/options.hpp>
#include <kolo/types.hpp>

namespace kolo {

/// A collective that has not been made yet. The functions have the arguments of the calls of the same name
/// (collectives.hpp, with meaning, shapes and defaults) without group and name. They check nothing: whatever makes
/// something of them does, and throws what those calls throw. Copies share what is described; the memory stays the
/// caller's. `barrier`, and calls that own their result, are not among them. Thread-safe: a call never changes.
class KOLO_API Call {
 public:
  static Call allreduce(TensorView inout, const AllreduceOptions& options = {});
  static Call allreduce_into(ConstTensorView in, TensorView out, const AllreduceOptions& options = {});
  static Call reduce(TensorView inout, int root, const ReduceOptions& options = {});
  static Call reduce_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                          const ReduceOptions& options = {});
  static Call broadcast(TensorView inout, int root, const BroadcastOptions& options = {});
  static Call broadcast_into(ConstTensorView in, TensorView out, int root, const BroadcastOptions& options = {});
  static Call allgather_into(ConstTensorView in, TensorView out, const AllgatherOptions& options = {});
  static Call gather_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                          const GatherOptions& options = {});
  /// Copies the splits.
  static Call scatter_into(const std::optional<ConstTensorView>& in, TensorView out, int root,
                           Span<const std::int64_t> splits = {}, const ScatterOptions& options = {});
  /// Copies the splits.
  static Call alltoall_into(ConstTensorView in, TensorView out, Span<const std::int64_t> splits = {},
                            const AlltoallOptions& options = {});
  static Call reduce_scatter_into(ConstTensorView in, TensorView out, const ReduceScatterOptions& options = {});

  class Impl;
  explicit Call(std::shared_ptr<const Impl> impl) noexcept;
  [[nodiscard]] const Impl& impl() const noexcept { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Checks the call and claims the name, once, for a request that is started often. The name meets the same name on the
/// other ranks, whether they have prepared it or not. Local: waits for nobody. Throws `Error` as the call would
/// (invalid_argument, unsupported, duplicate_name: the name is in flight, or belongs to another prepared request).
/// From any thread.
[[nodiscard]] KOLO_API Prepared prepare(std::string_view name, const Call& call);
[[nodiscard]] KOLO_API Prepared prepare(const Group& group, std::string_view name, const Call& call);

/// @name grouped calls
/// Several calls of one kind as one operation, which runs on all ranks or on none. They differ in their memory, types
/// and shapes alone (else: invalid_argument): operation, scales, root and device are one. What one of them writes no
/// other may use. As many, in the same order, on every rank (else: mismatch, on every rank). When one fails on a rank
/// (an output of the wrong size), all do there, and what their outputs hold is undefined. The shortest of their
/// timeouts counts. At least one call, and a name (else: invalid_argument). The list is copied. From any thread.
/// @{

KOLO_API void grouped(std::string_view name, Span<const Call> calls);
[[nodiscard]] KOLO_API Handle grouped_async(std::string_view name, Span<const Call> calls);
[[nodiscard]] KOLO_API Prepared prepare_grouped(std::string_view name, Span<const Call> calls);
KOLO_API void grouped(const Group& group, std::string_view name, Span<const Call> calls);
[[nodiscard]] KOLO_API Handle grouped_async(const Group& group, std::string_view name, Span<const Call> calls);
[[nodiscard]] KOLO_API Prepared prepare_grouped(const Group& group, std::string_view name, Span<const Call> calls);

/// @}

}  // namespace kolo

#endif  // KOLO_CALL_HPP
