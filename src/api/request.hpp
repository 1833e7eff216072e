// SPDX-License-Identifier: Apache-2.0
//
// From the arguments of a call to a `Request`: each collective has a function that checks its arguments (checks.hpp)
// and describes what is to be done.
//
// What is made here is submitted in submit.hpp.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/options.hpp>
#include <kolo/types.hpp>

#include "api/checks.hpp"
#include "core/signature.hpp"
#include "engine/engine.hpp"

namespace kolo::api {

/// A checked call: everything about it except its name.
struct Request {
  core::Signature signature;
  engine::Buffers buffers;
  Span<const NamedView> members;  ///< of a group: the caller's, for as long as the call lasts
  std::optional<std::chrono::nanoseconds> timeout;
  bool located = false;
  Device device = cpu();        ///< of all tensors; once located
  std::vector<Stream> streams;  ///< that have work to do on the tensors first; each once
  detail::ResultRoom room;      ///< for what the ranks find out together, and what is known at the call to be ours
  std::vector<detail::ResultRoom> more_rooms;  ///< of a group's other tensors
  engine::Splits splits;
  std::vector<std::int64_t> received_splits;
};

/// Which of the ranks that take part this one is, and how many there are.
struct RankAndSize {
  int rank = 0;
  int size = 1;
  explicit RankAndSize(const Group& group) : rank(kolo::rank(group)), size(kolo::size(group)) {}
};

// Each checks its arguments and throws Error (invalid_argument, unsupported). `name` is for the sentence; empty:
// unnamed.
/// Of any kind whose output has the shape of its input. Of what the kind makes no use of (core::CollectiveTraits) the
/// default is given.
Request tensor_request(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in,
                       const TensorView& out, bool in_place, const AllreduceOptions& options, const Root& root = {});
Request allreduce_request(std::string_view name, const ConstTensorView& in, const TensorView& out, bool in_place,
                          const AllreduceOptions& options);
Request grouped_allreduce_request(std::string_view group, Span<const NamedView> members,
                                  const AllreduceOptions& options);
Request broadcast_request(std::string_view name, const ConstTensorView& in, const TensorView& out, bool in_place,
                          int root, int size, const BroadcastOptions& options);
/// Of a kind in which everybody's rows come to lie one after another. `out`: the caller's memory, or empty for a result
/// of our own. Of a rooted kind the root alone gets a result; an output that another rank gives is left alone, and one
/// of our own has no rows. An input may lie at this rank's place of its output: whether it does is found out when all
/// lengths are known.
Request gather_request(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in,
                       const std::optional<TensorView>& out, std::optional<std::chrono::nanoseconds> timeout,
                       int priority, const Root& root = {});
Request allgather_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                          const Group& group, const AllgatherOptions& options);
/// Likewise. `splits` empty: the same number of rows to everyone.
Request alltoall_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                         Span<const std::int64_t> splits, const RankAndSize& self, const AlltoallOptions& options);
Request reduce_scatter_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                               const RankAndSize& self, const ReduceScatterOptions& options);
/// `in` and `splits`: of the root; `splits` as an alltoall's.
Request scatter_request(std::string_view name, const std::optional<ConstTensorView>& in, const TensorView& out,
                        Span<const std::int64_t> splits, const Root& root, const ScatterOptions& options);
Request barrier_request(const BarrierOptions& options);

/// Puts the names of a group's members into its signature, for the sentence about ranks that disagree. Whoever sees the
/// signature for the first time does it: a known one has them. Throws Error (invalid_argument) when two are equal.
void name_members(std::string_view group, Request& request);

/// What sums travel as. Of options that have been checked.
core::Wire wire_of(const AllreduceOptions& options) noexcept;
/// Of a reduction, without its tensors.
core::Signature reduction_signature(core::CollectiveKind kind, const AllreduceOptions& options);

template <class View>
engine::Buffer buffer_of(const View& in, void* out) {
  return {static_cast<const std::byte*>(in.data()), static_cast<std::byte*>(out), in.elements()};
}

}  // namespace kolo::api
