// SPDX-License-Identifier: Apache-2.0

/// @file
/// Options of calls. New fields are only appended. The setters `with_...` can be chained, because C++17
/// has no designated initialisers.
#ifndef KOLO_OPTIONS_HPP
#define KOLO_OPTIONS_HPP

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <kolo/log.hpp>
#include <kolo/store.hpp>
#include <kolo/types.hpp>

#include <kolo/detail/setters.hpp>  // behind all others

namespace kolo {

/// How a context is made. A value given here wins over the environment.
struct Options {
  /// Settings by the names of their environment variables: {"KOLO_TIMEOUT_S", "30"}. See docs/variables.md.
  std::map<std::string, std::string> settings;
  /// Where log records go; empty: lines on standard error.
  LogSink log_sink;
  /// Which GPUs CUDA is to show this process, and in which order, as in CUDA_VISIBLE_DEVICES: numbers ("2,0"), UUIDs or
  /// beginnings of them ("GPU-8932f937"); "" for none. It replaces that variable by UUIDs, so nothing in the process
  /// may have called CUDA before (kolo::devices() does not). All ranks that are threads of one process give the same
  /// value. The start throws `Error`: invalid_setting if a name is wrong (CUDA would ignore the rest of the list), or
  /// if CUDA has started and sees other devices; unsupported if there is no GPU, or no CUDA part in this build.
  std::optional<std::string> visible_devices;
  /// Where the ranks of the job meet, this process's rank, and the number of ranks; without it the environment says
  /// (docs/start.md).
  std::optional<MeetingPlace> store;
  int rank = 0;
  int size = 1;

  Options& with_setting(std::string name, std::string value) & {
    settings.insert_or_assign(std::move(name), std::move(value));
    return *this;
  }
  [[nodiscard]] Options with_setting(std::string name, std::string value) && {
    return std::move(with_setting(std::move(name), std::move(value)));
  }
  KOLO_SETTER(Options, LogSink, log_sink)
  KOLO_SETTER(Options, std::string, visible_devices)
  /// `kolo::Session session(kolo::Options{}.with_store(kolo::store::tcp("10.0.0.1", 29500), rank, size));`
  Options& with_store(const MeetingPlace& place, int its_rank, int its_size) & {
    store = place;
    rank = its_rank;
    size = its_size;
    return *this;
  }
  [[nodiscard]] Options with_store(const MeetingPlace& place, int its_rank, int its_size) && {
    return std::move(with_store(place, its_rank, its_size));
  }
};

/// Options of `Group::of` and `Group::split`; the same on every rank. A name converts: `Group::of({0, 4}, "pair")`.
struct GroupOptions {
  /// Tells groups apart that several threads make of the same ranks at once, and says in errors which one is meant.
  std::string name;
  /// How long to wait for the other ranks before that becomes a fatal error; `KOLO_TIMEOUT_S` when empty. More than
  /// zero (`Error` invalid_argument).
  std::optional<std::chrono::nanoseconds> timeout;
  /// That time ends only this call, on every rank that makes it, and the job goes on. `Error` (expired) names the ranks
  /// that did not come. A rank that comes later gets the same error at once. The same on every rank.
  bool fails_alone = false;

  GroupOptions() = default;
  template <class Name, class = std::enable_if_t<std::is_convertible_v<const Name&, std::string_view> &&
                                                 !std::is_null_pointer_v<Name>>>
  GroupOptions(const Name& its_name) : name(std::string_view(its_name)) {}

  KOLO_SETTER(GroupOptions, std::string, name)
  KOLO_SETTER_TIMEOUT(GroupOptions)
  KOLO_SETTER(GroupOptions, bool, fails_alone)
};

/// Options of a collective that reduces. A `ReduceOp` converts: `allreduce(view, ReduceOp::average)`. All options but
/// the timeout must be the same on every rank. Each collective has a type of its own (kolo/call.hpp), told from the
/// others by `Of`: none converts to another.
template <class Of>
struct ReductionOptions {
  /// How inputs are combined.
  ReduceOp op = ReduceOp::sum;
  /// Every rank's input is multiplied by this first, in the accumulator's type (NCCL: the tensor's). 1 for integers.
  double prescale = 1.0;
  /// The result (of an average: after the division) is multiplied by this. 1 unless floating-point.
  double postscale = 1.0;
  /// How long this operation may take before it becomes a fatal error; `KOLO_TIMEOUT_S` when empty. More than zero
  /// (`Error` invalid_argument at the call).
  std::optional<std::chrono::nanoseconds> timeout;
  /// `DType::float16` or `DType::bfloat16`: float32 and float64 tensors travel as that type. Every input is rounded to
  /// it after prescale, in the copy that sends it; the sum is computed in float32 (so between nodes partial sums travel
  /// as float32; by NCCL it is computed in the type that is sent, see kolo/cuda.hpp), and the result rounded to it once
  /// more, so that all ranks hold the same. Values beyond its range become infinite. Tensors of 16 bits are sent as
  /// they are; for other types it is an error (invalid_argument). A world of one sends and rounds nothing. Tensors in a
  /// `GradientArena` are copied then, as any others.
  std::optional<DType> send_as;
  /// Among the waiting operations of a group, those with the highest priority run first; among equals, those that all
  /// ranks submitted first. May be negative. Running operations are not interrupted. Only calls with a name have a
  /// priority; calls without a name run in the order in which they are made, and count as of priority zero. A few
  /// different priorities are enough (docs/tuning.md).
  int priority = 0;

  ReductionOptions() = default;
  ReductionOptions(ReduceOp what) : op(what) {}

  KOLO_SETTER(ReductionOptions, ReduceOp, op)
  KOLO_SETTER(ReductionOptions, double, prescale)
  KOLO_SETTER(ReductionOptions, double, postscale)
  KOLO_SETTER_TIMEOUT(ReductionOptions)
  KOLO_SETTER(ReductionOptions, DType, send_as)
  KOLO_SETTER(ReductionOptions, int, priority)
};

/// Options of a collective that moves data without reducing it. `Of`: as that of `ReductionOptions`.
template <class Of>
struct MoveOptions {
  /// How long this operation may take before it becomes a fatal error; `KOLO_TIMEOUT_S` when empty. More than zero
  /// (`Error` invalid_argument at the call).
  std::optional<std::chrono::nanoseconds> timeout;
  /// As that of `ReductionOptions`; the same on every rank.
  int priority = 0;
  KOLO_SETTER_TIMEOUT(MoveOptions)
  KOLO_SETTER(MoveOptions, int, priority)
};

/// Options of `barrier`.
struct BarrierOptions {
  /// How long this operation may take before it becomes a fatal error; `KOLO_TIMEOUT_S` when empty. More than zero
  /// (`Error` invalid_argument at the call).
  std::optional<std::chrono::nanoseconds> timeout;
  KOLO_SETTER_TIMEOUT(BarrierOptions)
};

/// Options of `join`. Each rank may give others.
struct JoinOptions {
  /// How long the ranks that go on may run nothing in the group before waiting for them becomes a fatal error;
  /// `KOLO_TIMEOUT_S` when empty. More than zero (`Error` invalid_argument at the call).
  std::optional<std::chrono::nanoseconds> timeout;
  /// Whether averages count this rank while it is absent, as if it gave zeros; else they are over the ranks that are
  /// present. (Not for a `DistributedOptimizer` with samples, whose mean is over samples.)
  bool counts_in_averages = false;

  KOLO_SETTER_TIMEOUT(JoinOptions)
  KOLO_SETTER(JoinOptions, bool, counts_in_averages)
};

/// Options of `send`.
struct SendOptions {
  /// How long this message may take; `KOLO_TIMEOUT_S` when empty. Then the send fails (`Error` expired), and the job
  /// goes on. More than zero (`Error` invalid_argument at the call).
  std::optional<std::chrono::nanoseconds> timeout;

  KOLO_SETTER_TIMEOUT(SendOptions)
};

/// Options of `recv`.
struct RecvOptions {
  /// As that of `SendOptions`: how long to wait for a message.
  std::optional<std::chrono::nanoseconds> timeout;

  KOLO_SETTER_TIMEOUT(RecvOptions)
};

/// Options of `sendrecv`.
struct SendRecvOptions {
  int send_tag = 0;   ///< the tag of the message that is sent; not negative
  int recv_tag = -1;  ///< the tag of the message that is received; the default is `any_tag`
  /// As that of `SendOptions`: how long each of the two messages may take.
  std::optional<std::chrono::nanoseconds> timeout;

  KOLO_SETTER(SendRecvOptions, int, send_tag)
  KOLO_SETTER(SendRecvOptions, int, recv_tag)
  KOLO_SETTER_TIMEOUT(SendRecvOptions)
};

}  // namespace kolo

#undef KOLO_SETTER
#undef KOLO_SETTER_TIMEOUT

#endif  // KOLO_OPTIONS_HPP
