// SPDX-License-Identifier: Apache-2.0
#include "api/call.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/context_impl.hpp"
#include "api/rooted.hpp"
#include "api/submit.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"

namespace kolo {

namespace {

using Use = Call::Impl::Use;

Use reads(const ConstTensorView& view) { return {static_cast<const std::byte*>(view.data()), view.bytes(), false}; }
Use writes(const TensorView& view) { return {static_cast<const std::byte*>(view.data()), view.bytes(), true}; }
Call::Impl::Uses uses_of(const std::optional<ConstTensorView>& in, const std::optional<TensorView>& out) {
  return {in ? reads(*in) : Use{}, out ? writes(*out) : Use{}};
}

Call describe(const Call::Impl::Uses& uses, Call::Impl::Make make) {
  return Call(std::make_shared<const Call::Impl>(std::move(make), uses));
}

}  // namespace

Call::Call(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Call Call::allreduce(TensorView inout, const AllreduceOptions& options) {
  return describe(uses_of({}, inout), [=](std::string_view name, const Group&) {
    return api::allreduce_request(name, inout, inout, true, options);
  });
}
Call Call::allreduce_into(ConstTensorView in, TensorView out, const AllreduceOptions& options) {
  return describe(uses_of(in, out), [=](std::string_view name, const Group&) {
    return api::allreduce_request(name, in, out, false, options);
  });
}
Call Call::reduce(TensorView inout, int root, const ReduceOptions& options) {
  return describe(uses_of({}, inout), [=](std::string_view name, const Group& group) {
    return api::reduce_request(name, inout, inout, true, root, group, options);
  });
}
Call Call::reduce_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                       const ReduceOptions& options) {
  return describe(uses_of(in, out), [=](std::string_view name, const Group& group) {
    return api::reduce_request(name, in, out, false, root, group, options);
  });
}
Call Call::broadcast(TensorView inout, int root, const BroadcastOptions& options) {
  return describe(uses_of({}, inout), [=](std::string_view name, const Group& group) {
    return api::broadcast_request(name, inout, inout, true, root, size(group), options);
  });
}
Call Call::broadcast_into(ConstTensorView in, TensorView out, int root, const BroadcastOptions& options) {
  return describe(uses_of(in, out), [=](std::string_view name, const Group& group) {
    return api::broadcast_request(name, in, out, false, root, size(group), options);
  });
}
Call Call::allgather_into(ConstTensorView in, TensorView out, const AllgatherOptions& options) {
  return describe(uses_of(in, out), [=](std::string_view name, const Group& group) {
    return api::allgather_request(name, in, out, group, options);
  });
}
Call Call::gather_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                       const GatherOptions& options) {
  return describe(uses_of(in, out), [=](std::string_view name, const Group& group) {
    return api::gather_into_request(name, in, out, root, group, options);
  });
}
Call Call::scatter_into(const std::optional<ConstTensorView>& in, TensorView out, int root,
                        Span<const std::int64_t> splits, const ScatterOptions& options) {
  return describe(uses_of(in, out), [=, rows = std::vector<std::int64_t>(splits.begin(), splits.end())](
                                        std::string_view name, const Group& group) {
    return api::scatter_request(name, in, out, root, rows, group, options);
  });
}
Call Call::alltoall_into(ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                         const AlltoallOptions& options) {
  return describe(uses_of(in, out), [=, rows = std::vector<std::int64_t>(splits.begin(), splits.end())](
                                        std::string_view name, const Group& group) {
    return api::alltoall_request(name, in, out, rows, api::RankAndSize(group), options);
  });
}
Call Call::reduce_scatter_into(ConstTensorView in, TensorView out, const ReduceScatterOptions& options) {
  return describe(uses_of(in, out), [=](std::string_view name, const Group& group) {
    return api::reduce_scatter_request(name, in, out, api::RankAndSize(group), options);
  });
}

// ---------------------------------------------------------------- groups

namespace {

[[noreturn]] void refuse_group(std::string_view name, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "grouped call " + base::quoted(name) + ": " + why);
}

/// What one call writes no other may use.
void check_memory(std::string_view name, Span<const Call> calls) {
  struct Of {
    Use use;
    std::size_t call;
  };
  std::vector<Of> all;
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (const Use& use : calls[i].impl().uses())
      if (use.bytes > 0) all.push_back({use, i});
  const std::less<> before;
  std::sort(all.begin(), all.end(), [&](const Of& a, const Of& b) { return before(a.use.begin, b.use.begin); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size() && before(all[j].use.begin, all[i].use.begin + all[i].use.bytes); ++j) {
      if (all[i].call == all[j].call || !(all[i].use.written || all[j].use.written)) continue;
      refuse_group(name, "calls " + std::to_string(std::min(all[i].call, all[j].call)) + " and " +
                             std::to_string(std::max(all[i].call, all[j].call)) +
                             " use the same memory, and one of them writes it; give each its own");
    }
  }
}

/// What calls of a group have in common.
core::Signature without_tensors(core::Signature signature) {
  signature.tensors.clear();
  return signature;
}

void check_alike(std::string_view name, const api::Request& first, const api::Request& other, std::size_t number) {
  const core::Signature a = without_tensors(first.signature), b = without_tensors(other.signature);
  std::string what, of_first, of_other;
  if (const auto difference = core::first_difference(a, b)) {
    what = core::describe(*difference);
    of_first = core::describe_value(a, *difference);
    of_other = core::describe_value(b, *difference);
  } else if (first.device != other.device) {
    what = "device";
    of_first = to_string(first.device);
    of_other = to_string(other.device);
  } else {
    return;
  }
  refuse_group(name, "its calls differ in " + what + ": " + of_first + " in call 0, " + of_other + " in call " +
                         std::to_string(number) + "; they may differ in their tensors alone");
}

/// Makes them one: the tensors of `other` come last.
void append(api::Request& group, api::Request other) {
  core::Signature& signature = group.signature;
  signature.tensors.insert(signature.tensors.end(), other.signature.tensors.begin(), other.signature.tensors.end());
  group.buffers.insert(group.buffers.end(), other.buffers.begin(), other.buffers.end());
  group.more_rooms.push_back(std::move(other.room));
  group.splits.insert(group.splits.end(), other.splits.begin(), other.splits.end());
  if (other.timeout) group.timeout = std::min(*other.timeout, group.timeout.value_or(*other.timeout));
  for (const Stream& stream : other.streams) {
    const auto same = [&](const Stream& one) { return one.native == stream.native; };
    if (std::none_of(group.streams.begin(), group.streams.end(), same)) group.streams.push_back(stream);
  }
}

}  // namespace

api::Request api::grouped_request(std::string_view name, Span<const Call> calls, const Group& group) {
  if (calls.empty()) refuse_group(name, "it has no calls; give at least one");
  check_memory(name, calls);
  Request whole = calls[0].impl().request(name, group);
  for (std::size_t i = 1; i < calls.size(); ++i) {
    Request next = calls[i].impl().request(name, group);
    check_alike(name, whole, next, i);
    append(whole, std::move(next));
  }
  whole.signature.members = base::kHashSeed;
  return whole;
}

void grouped(const Group& group, std::string_view name, Span<const Call> calls) {
  api::check_name(name);
  api::run(group, name, api::grouped_request(name, calls, group));
}
Handle grouped_async(const Group& group, std::string_view name, Span<const Call> calls) {
  return Handle(api::submit(group, name, api::grouped_request(name, calls, group)));
}
void grouped(std::string_view name, Span<const Call> calls) { grouped(current_context(), name, calls); }
Handle grouped_async(std::string_view name, Span<const Call> calls) {
  return grouped_async(current_context(), name, calls);
}

}  // namespace kolo
