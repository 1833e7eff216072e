// SPDX-License-Identifier: Apache-2.0
//
// From the arguments of a call to an operation that the engine takes: what is checked at the call is checked here, and
// the sentences that a caller reads are written here.
//
// A call makes a `Request` (..._request), and goes one of these ways:
//
//   submit                   asynchronous, by name
//   run                      synchronous: by name, or in the order of the calls, then by the express where that is
//                            possible (control/express.hpp), else by the log
//   submit_allreduce, ..._into, run_unnamed_allreduce
//                            the same for one all-reduce of CPU memory, the call that training makes most: they compare
//                            it with what the name meant last time, and make a `Request` only when it differs
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
  std::vector<std::int64_t> splits;            ///< one tensor's behind another's
  std::vector<std::int64_t> received_splits;
};

/// Which of the ranks that take part this one is, and how many there are.
struct RankAndSize {
  int rank = 0;
  int size = 1;
  explicit RankAndSize(const Group& group) : rank(kolo::rank(group)), size(kolo::size(group)) {}
};

/// The root of a call, among so many ranks, of which this is one.
struct Root {
  int rank = 0;
  int ranks = 1;
  int self = 0;
  [[nodiscard]] bool is_here() const noexcept { return rank == self; }
};

// Each checks its arguments and throws Error (invalid_argument, unsupported). `name` is for the sentence; empty:
// unnamed.
/// Of any kind whose output has the shape of its input. Of what the kind makes no use of (core::CollectiveTraits) the
/// default is given.
Request tensor_request(core::CollectiveKind kind, std::string_view name, ConstTensorView in, TensorView out,
                       bool in_place, const AllreduceOptions& options, const Root& root = {});
Request allreduce_request(std::string_view name, ConstTensorView in, TensorView out, bool in_place,
                          const AllreduceOptions& options);
Request grouped_allreduce_request(std::string_view group, Span<const NamedView> members,
                                  const AllreduceOptions& options);
Request broadcast_request(std::string_view name, ConstTensorView in, TensorView out, bool in_place, int root, int size,
                          const BroadcastOptions& options);
/// Throws Error (invalid_argument) where this rank is the root, which gets the result, but gives no output.
void check_output_at_root(core::CollectiveKind kind, std::string_view name, const std::optional<TensorView>& out,
                          const Root& root);
/// Of a kind in which everybody's rows come to lie one after another. `out`: the caller's memory, or empty for a result
/// of our own. Of a rooted kind the root alone gets a result; an output that another rank gives is left alone, and one
/// of our own has no rows. An input may lie at this rank's place of its output: whether it does is found out when all
/// lengths are known.
Request gather_request(core::CollectiveKind kind, std::string_view name, ConstTensorView in,
                       const std::optional<TensorView>& out, std::optional<std::chrono::nanoseconds> timeout,
                       const Root& root = {});
Request allgather_request(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out,
                          const Group& group, const AllgatherOptions& options);
/// Likewise. `splits` empty: the same number of rows to everyone.
Request alltoall_request(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out,
                         Span<const std::int64_t> splits, const RankAndSize& self, const AlltoallOptions& options);
Request reduce_scatter_request(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out,
                               const RankAndSize& self, const ReduceScatterOptions& options);
/// `in` and `splits`: of the root; `splits` as an alltoall's.
Request scatter_request(std::string_view name, const std::optional<ConstTensorView>& in, TensorView out,
                        Span<const std::int64_t> splits, const Root& root, const ScatterOptions& options);
Request barrier_request(const BarrierOptions& options);

/// What a synchronous call leaves behind.
struct Result {
  Tensor tensor;
  std::vector<std::int64_t> received_splits;
};

/// A synchronous all-reduce without a name, as `run` of its request; without making one when it passes by the log.
void run_unnamed_allreduce(const Group& group, ConstTensorView in, TensorView out, bool in_place,
                           const AllreduceOptions& options);

/// Puts the names of a group's members into its signature, for the sentence about ranks that disagree. Whoever sees the
/// signature for the first time does it: a known one has them. Throws Error (invalid_argument) when two are equal.
void name_members(std::string_view group, Request& request);

/// Throws Error (invalid_argument) for a name that cannot be submitted: empty, reserved, or longer than 64 KiB.
void check_name(std::string_view name);

/// An all-reduce of one tensor, as `submit` of its request; without making one when the name is known.
std::shared_ptr<detail::HandleState> submit_allreduce(const Group& group, std::string_view name,
                                                      const TensorView& inout, const AllreduceOptions& options);
std::shared_ptr<detail::HandleState> submit_allreduce_into(const Group& group, std::string_view name,
                                                           const ConstTensorView& in, const TensorView& out,
                                                           const AllreduceOptions& options);
/// Throws Error (unsupported) when tensors of the request's device cannot be used with this engine. Notes which of them
/// lie in an arena of the device.
void settle_device(const Group& group, std::string_view name, Request& request);
/// Where the request's streams stand now: what its operation is held back behind. Throws Error (invalid_argument) when
/// one of them is being captured.
std::vector<data::DeviceEventPtr> record(engine::Engine& engine, Device device, const std::vector<Stream>& streams);

/// Submits without a name, as the next of the group's unnamed asynchronous calls.
std::shared_ptr<detail::HandleState> call(const Group& group, Request request);
/// An all-reduce of one tensor, as `call` of its request; without making one when an earlier call was alike.
std::shared_ptr<detail::HandleState> call_allreduce(const Group& group, const ConstTensorView& in,
                                                    const TensorView& out, bool in_place,
                                                    const AllreduceOptions& options);
/// Claims the name and submits.
std::shared_ptr<detail::HandleState> submit(const Group& group, std::string_view name, Request request);
/// Submits under the name - or, when it is empty, in the order of the calls, past the log where that is possible -,
/// waits, and throws what went wrong.
Result run(const Group& group, std::string_view name, Request request);

}  // namespace kolo::api
