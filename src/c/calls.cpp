// SPDX-License-Identifier: Apache-2.0
//
// Collectives: each function of C makes a `kolo_call`, and each `kolo_call` a `kolo::Call`.
#include <kolo/call.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/join.hpp>
#include <kolo/kolo.h>

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"

namespace kolo::c {
namespace {

constexpr std::size_t kFirstCallSize = 64;
constexpr const char* kCallInit = "KOLO_CALL_INIT";

/// Whether two descriptions are of the same tensor: such a call is in place.
bool is_same(const kolo_tensor& a, const kolo_tensor& b) noexcept {
  if (&a == &b) return true;
  return a.data == b.data && a.dtype == b.dtype && a.dims == b.dims && std::equal(a.shape, a.shape + a.dims, b.shape) &&
         a.device == b.device && a.index == b.index && a.stream == b.stream;
}

/// Which fields of a `kolo_call` a collective uses.
struct Uses {
  bool tensors, root, splits, reduction;
};
/// By the number of the collective.
constexpr Uses kUses[] = {
    {true, false, false, true},   // KOLO_ALLREDUCE
    {true, true, false, true},    // KOLO_REDUCE
    {true, true, false, false},   // KOLO_BROADCAST
    {true, false, false, false},  // KOLO_ALLGATHER
    {true, true, false, false},   // KOLO_GATHER
    {true, true, true, false},    // KOLO_SCATTER
    {true, false, true, false},   // KOLO_ALLTOALL
    {true, false, false, true},   // KOLO_REDUCE_SCATTER
    {false, false, false, false}  // KOLO_BARRIER
};
static_assert(std::size(kUses) == KOLO_BARRIER + 1);

/// Throws if the call sets a field that its collective does not use.
void check_unused(const kolo_call& call) {
  if (call.collective < 0 || call.collective > KOLO_BARRIER) {
    refuse("there is no collective " + std::to_string(call.collective) +
           ": give one of kolo_collective, such as KOLO_ALLREDUCE");
  }
  const Uses& uses = kUses[call.collective];
  const auto check = [](bool is_used, bool is_default, const char* field, const char* its_default) {
    if (is_used || is_default) return;
    refuse(std::string("this collective has no `") + field + "`: leave it " + its_default);
  };
  check(uses.tensors, call.in == nullptr, "in", "NULL");
  check(uses.tensors, call.out == nullptr, "out", "NULL");
  check(uses.root, call.root == 0, "root", "0");
  check(uses.splits, call.splits == nullptr && call.split_count == 0, "splits", "NULL, and split_count 0");
  check(uses.reduction, call.reduction == nullptr, "reduction", "NULL, and use `options`");
  check(!uses.reduction, call.options == nullptr, "options", "NULL, and use `reduction`");
}

BarrierOptions barrier_options(const kolo_options* from) {
  const kolo_options checked = checked_options(from);
  if (checked.priority != 0) refuse("a barrier has no priority: leave it 0");
  BarrierOptions options;
  options.timeout = timeout_of(checked.timeout);
  return options;
}

/// A call whose result is new memory.
Call owning_call(const kolo_call& from) {
  if (from.out != nullptr) refuse("the call has both an output and a place for a result: give one of them");
  const TensorView in = given_view(from.in, "the input");
  const auto splits = given_list(from.splits, from.split_count, "the list of splits");
  switch (from.collective) {
  case KOLO_ALLGATHER:
    return Call::allgather(in, options_as<AllgatherOptions>(from.options));
  case KOLO_GATHER:
    return Call::gather(in, from.root, options_as<GatherOptions>(from.options));
  case KOLO_ALLTOALL:
    return Call::alltoall(in, splits, options_as<AlltoallOptions>(from.options));
  case KOLO_REDUCE_SCATTER:
    return Call::reduce_scatter(in, options_as<ReduceScatterOptions>(from.reduction));
  default:
    refuse("this collective has no result of its own: give an output, and NULL as the result");
  }
}

/// A call of an input and an output of the caller's; in place if both are the same.
Call call_into(const kolo_call& from) {
  const auto splits = given_list(from.splits, from.split_count, "the list of splits");
  const bool in_place = from.in != nullptr && from.out != nullptr && is_same(*from.in, *from.out);
  // If both are missing, the error names the input. (Compilers choose in which order they evaluate arguments.)
  if (from.collective != KOLO_SCATTER && from.collective != KOLO_BARRIER) given(from.in, "the input");
  const auto in = [&] { return given_view(from.in, "the input"); };
  const auto out = [&] { return given_view(from.out, "the output"); };
  switch (from.collective) {
  case KOLO_ALLREDUCE: {
    const auto options = options_as<AllreduceOptions>(from.reduction);
    return in_place ? Call::allreduce(out(), options) : Call::allreduce_into(in(), out(), options);
  }
  case KOLO_REDUCE: {
    const auto options = options_as<ReduceOptions>(from.reduction);
    return in_place ? Call::reduce(out(), from.root, options)
                    : Call::reduce_into(in(), optional_view(from.out), from.root, options);
  }
  case KOLO_BROADCAST: {
    const auto options = options_as<BroadcastOptions>(from.options);
    return in_place ? Call::broadcast(out(), from.root, options)
                    : Call::broadcast_into(in(), out(), from.root, options);
  }
  case KOLO_ALLGATHER:
    return Call::allgather_into(in(), out(), options_as<AllgatherOptions>(from.options));
  case KOLO_GATHER:
    return Call::gather_into(in(), optional_view(from.out), from.root, options_as<GatherOptions>(from.options));
  case KOLO_SCATTER: {
    std::optional<ConstTensorView> rows;
    if (from.in != nullptr) rows = in();
    return Call::scatter_into(rows, out(), from.root, splits, options_as<ScatterOptions>(from.options));
  }
  case KOLO_ALLTOALL:
    return Call::alltoall_into(in(), out(), splits, options_as<AlltoallOptions>(from.options));
  case KOLO_REDUCE_SCATTER:
    return Call::reduce_scatter_into(in(), out(), options_as<ReduceScatterOptions>(from.reduction));
  default:
    return Call::barrier(barrier_options(from.options));
  }
}

Call call_of(const kolo_call& given, bool owns_result) {
  const kolo_call call = copied(given, kolo_call KOLO_CALL_INIT, kFirstCallSize, kCallInit);
  check_unused(call);
  return owns_result ? owning_call(call) : call_into(call);
}

/// An array of calls, whose elements are as long as the caller's header says.
std::vector<Call> calls_of(const kolo_call* calls, std::size_t count) {
  const auto* at = reinterpret_cast<const char*>(given_list(calls, count, "the list of calls").data());
  std::vector<Call> list;
  for (std::size_t i = 0; i < count; ++i, at += calls->size) {
    const auto& one = *reinterpret_cast<const kolo_call*>(at);
    if (one.size != calls->size) refuse("the calls of the list differ in `size`: start each from KOLO_CALL_INIT");
    list.push_back(call_of(one, false));
  }
  return list;
}

/// Runs or starts a call without a result of its own.
kolo_status make(const Where& where, const Call& call, kolo_handle** handle) {
  if (handle != nullptr) return started(handle, {}, [&] { return start(where, call); });
  run(where, call);
  return KOLO_OK;
}

kolo_status make_owning(const Where& where, const Call& call, kolo_result** result, kolo_handle** handle) {
  if (handle == nullptr) {
    auto made = std::make_unique<kolo_result>();
    run(where, call, &made->call.emplace());
    *result = made.release();
    return KOLO_OK;
  }
  const auto write = [result](Handle& done) {
    auto made = std::make_unique<kolo_result>();
    AlltoallResult all = Future<AlltoallResult>(std::move(done)).get();  // of any other call it has no splits
    made->call = CallResult{std::move(all.output), std::move(all.received_splits)};
    *result = made.release();
  };
  return started(handle, write, [&] { return start(where, call); });
}

/// The call of a function that has `kolo_options`; of one that has `kolo_allreduce_options`.
kolo_call call_with(kolo_collective collective, const kolo_tensor* in, const kolo_tensor* out,
                    const kolo_options* options, std::int32_t root = 0, const std::int64_t* splits = nullptr,
                    std::size_t split_count = 0) {
  return {sizeof(kolo_call), collective, root, in, out, splits, split_count, nullptr, options};
}
kolo_call call_with(kolo_collective collective, const kolo_tensor* in, const kolo_tensor* out,
                    const kolo_allreduce_options* reduction, std::int32_t root = 0) {
  return {sizeof(kolo_call), collective, root, in, out, nullptr, 0, reduction, nullptr};
}

kolo_status run_into(const kolo_group* group, const char* name, const kolo_call& call, kolo_handle** handle) {
  return kolo_run(group, name, &call, nullptr, handle);
}

kolo_status run_owning(const kolo_group* group, const char* name, const kolo_call& call, kolo_result** result,
                       kolo_handle** handle) {
  if (result == nullptr) return fail(KOLO_INVALID_ARGUMENT, "the place for the result is NULL: give a pointer to one");
  return kolo_run(group, name, &call, result, handle);
}

kolo_status prepared(const kolo_group* group, const char* name, const Call& call, kolo_prepared** result) {
  kolo_prepared*& place = given(result, "the place for the prepared call");
  auto made = std::make_unique<kolo_prepared>();
  made->prepared = prepare({given_group(group), given_name(name, "the name")}, call);
  place = made.release();
  return KOLO_OK;
}

}  // namespace
}  // namespace kolo::c

using namespace kolo::c;

kolo_status kolo_run(const kolo_group* group, const char* name, const kolo_call* call, kolo_result** result,
                     kolo_handle** handle) {
  return guarded([&] {
    const kolo::Where where = where_of(group, name);
    const kolo::Call made = call_of(given(call, "the call"), result != nullptr);
    return result != nullptr ? make_owning(where, made, result, handle) : make(where, made, handle);
  });
}

kolo_status kolo_allreduce(const kolo_group* group, const char* name, const kolo_tensor* in, const kolo_tensor* out,
                           const kolo_allreduce_options* options, kolo_handle** handle) {
  return run_into(group, name, call_with(KOLO_ALLREDUCE, in, out, options), handle);
}

kolo_status kolo_reduce(const kolo_group* group, const char* name, const kolo_tensor* in, const kolo_tensor* out,
                        int32_t root, const kolo_allreduce_options* options, kolo_handle** handle) {
  return run_into(group, name, call_with(KOLO_REDUCE, in, out, options, root), handle);
}

kolo_status kolo_broadcast(const kolo_group* group, const char* name, const kolo_tensor* in, const kolo_tensor* out,
                           int32_t root, const kolo_options* options, kolo_handle** handle) {
  return run_into(group, name, call_with(KOLO_BROADCAST, in, out, options, root), handle);
}

kolo_status kolo_allgather(const kolo_group* group, const char* name, const kolo_tensor* in,
                           const kolo_options* options, kolo_result** result, kolo_handle** handle) {
  return run_owning(group, name, call_with(KOLO_ALLGATHER, in, nullptr, options), result, handle);
}

kolo_status kolo_allgather_into(const kolo_group* group, const char* name, const kolo_tensor* in,
                                const kolo_tensor* out, const kolo_options* options, kolo_handle** handle) {
  return run_into(group, name, call_with(KOLO_ALLGATHER, in, out, options), handle);
}

kolo_status kolo_gather(const kolo_group* group, const char* name, const kolo_tensor* in, int32_t root,
                        const kolo_options* options, kolo_result** result, kolo_handle** handle) {
  return run_owning(group, name, call_with(KOLO_GATHER, in, nullptr, options, root), result, handle);
}

kolo_status kolo_gather_into(const kolo_group* group, const char* name, const kolo_tensor* in, const kolo_tensor* out,
                             int32_t root, const kolo_options* options, kolo_handle** handle) {
  return run_into(group, name, call_with(KOLO_GATHER, in, out, options, root), handle);
}

kolo_status kolo_scatter(const kolo_group* group, const char* name, const kolo_tensor* in, const kolo_tensor* out,
                         int32_t root, const int64_t* splits, size_t split_count, const kolo_options* options,
                         kolo_handle** handle) {
  return run_into(group, name, call_with(KOLO_SCATTER, in, out, options, root, splits, split_count), handle);
}

kolo_status kolo_alltoall(const kolo_group* group, const char* name, const kolo_tensor* in, const int64_t* splits,
                          size_t split_count, const kolo_options* options, kolo_result** result, kolo_handle** handle) {
  return run_owning(group, name, call_with(KOLO_ALLTOALL, in, nullptr, options, 0, splits, split_count), result,
                    handle);
}

kolo_status kolo_alltoall_into(const kolo_group* group, const char* name, const kolo_tensor* in, const kolo_tensor* out,
                               const int64_t* splits, size_t split_count, const kolo_options* options,
                               kolo_handle** handle) {
  return run_into(group, name, call_with(KOLO_ALLTOALL, in, out, options, 0, splits, split_count), handle);
}

kolo_status kolo_reduce_scatter(const kolo_group* group, const char* name, const kolo_tensor* in,
                                const kolo_allreduce_options* options, kolo_result** result, kolo_handle** handle) {
  return run_owning(group, name, call_with(KOLO_REDUCE_SCATTER, in, nullptr, options), result, handle);
}

kolo_status kolo_reduce_scatter_into(const kolo_group* group, const char* name, const kolo_tensor* in,
                                     const kolo_tensor* out, const kolo_allreduce_options* options,
                                     kolo_handle** handle) {
  return run_into(group, name, call_with(KOLO_REDUCE_SCATTER, in, out, options), handle);
}

kolo_status kolo_barrier(const kolo_group* group, const char* name, const kolo_options* options, kolo_handle** handle) {
  return run_into(group, name, call_with(KOLO_BARRIER, nullptr, nullptr, options), handle);
}

kolo_status kolo_grouped(const kolo_group* group, const char* name, const kolo_call* calls, size_t count,
                         kolo_handle** handle) {
  return guarded([&] {
    const kolo::Where where = where_of(group, name);
    const std::vector<kolo::Call> list = calls_of(calls, count);
    return make(where, kolo::Call::grouped(list), handle);
  });
}

kolo_status kolo_grouped_allreduce(const kolo_group* group, const char* name, const kolo_named_tensor* tensors,
                                   size_t count, const kolo_allreduce_options* options, kolo_handle** handle) {
  return guarded([&] {
    const kolo::Where where = where_of(group, name);
    const std::vector<kolo::NamedView> members = views_of(tensors, count);
    const auto its_options = options_as<kolo::AllreduceOptions>(options);
    return make(where, kolo::Call::grouped_allreduce(members, its_options), handle);
  });
}

kolo_status kolo_prepare(const kolo_group* group, const char* name, const kolo_call* call, kolo_prepared** result) {
  return guarded([&] { return prepared(group, name, call_of(given(call, "the call"), false), result); });
}

kolo_status kolo_prepare_grouped(const kolo_group* group, const char* name, const kolo_call* calls, size_t count,
                                 kolo_prepared** result) {
  return guarded([&] {
    const std::vector<kolo::Call> list = calls_of(calls, count);
    return prepared(group, name, kolo::Call::grouped(list), result);
  });
}

kolo_status kolo_prepare_grouped_allreduce(const kolo_group* group, const char* name, const kolo_named_tensor* tensors,
                                           size_t count, const kolo_allreduce_options* options,
                                           kolo_prepared** result) {
  return guarded([&] {
    const std::vector<kolo::NamedView> members = views_of(tensors, count);
    const auto its_options = options_as<kolo::AllreduceOptions>(options);
    return prepared(group, name, kolo::Call::grouped_allreduce(members, its_options), result);
  });
}

kolo_status kolo_start(kolo_prepared* prepared, kolo_handle** handle) {
  kolo::Handle waits;  // outlives the exceptions of a wait, which must not destroy it
  return guarded([&] {
    kolo::Prepared& its = given(prepared, "the prepared call").prepared;
    if (handle != nullptr) return started(handle, {}, [&] { return its.start(); });
    waits = its.start();
    waits.wait();
    return KOLO_OK;
  });
}

kolo_status kolo_prepared_release(kolo_prepared* prepared) {
  delete prepared;
  return KOLO_OK;
}

kolo_status kolo_join(const kolo_group* group, const kolo_join_options* options, int32_t* last, kolo_handle** handle) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    const auto from = options_of(options, kolo_join_options KOLO_JOIN_OPTIONS_INIT, 24, "KOLO_JOIN_OPTIONS_INIT");
    if ((from.counts_in_averages != 0 && from.counts_in_averages != 1) || from.reserved != 0) {
      refuse("the options of a join: counts_in_averages is 0 or 1, and reserved 0; start from KOLO_JOIN_OPTIONS_INIT");
    }
    kolo::JoinOptions to;
    to.timeout = timeout_of(from.timeout);
    to.counts_in_averages = from.counts_in_averages == 1;
    if (handle == nullptr) {
      const int joined_last = kolo::join(its, to);
      if (last != nullptr) *last = joined_last;
      return KOLO_OK;
    }
    const auto write = [last](kolo::Handle& done) {
      if (last != nullptr) *last = kolo::Future<int>(std::move(done)).get();
    };
    return started(handle, write, [&] { return kolo::join_async(its, to); });
  });
}

kolo_status kolo_end_step(const kolo_group* group) {
  return guarded([&] { kolo::end_step(given_group(group)); });
}
