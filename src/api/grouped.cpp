// SPDX-License-Identifier: Apache-2.0
//
// Several calls as one operation.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/call.hpp>

#include "api/access.hpp"
#include "api/request.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"

namespace kolo::api {
namespace {

[[noreturn]] void refuse_group(std::string_view name, const std::string& why) {
  const std::string which = name.empty() ? "this grouped call" : "grouped call " + base::quoted(name);
  throw Error(ErrorCode::invalid_argument, which + ": " + why);
}

/// Checks that a call has tensors, and is of a kind that can be grouped.
void check_kind(std::string_view name, const detail::CallParts& call, std::size_t number) {
  const std::string which = "call " + std::to_string(number);
  if (call.owns_result) refuse_group(name, which + " owns its result; use the call with _into, and give the output");
  if (core::traits_of(call.kind).shapes == core::Shapes::none || call.members)
    refuse_group(name,
                 which + " is a barrier or a grouped call itself; only calls with tensors of their own are grouped");
}

/// Memory that a call reads or writes.
struct Use {
  const std::byte* begin = nullptr;
  std::int64_t bytes = 0;
  bool written = false;
  std::size_t call = 0;
};

/// Throws if one call writes memory that another one uses.
void check_memory(std::string_view name, Span<const Call> calls) {
  std::vector<Use> uses;
  const auto add = [&](const auto& view, bool written, std::size_t call) {
    if (view && view->bytes() > 0)
      uses.push_back({static_cast<const std::byte*>(view->data()), view->bytes(), written, call});
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    add(parts_of(calls[i]).input, false, i);
    add(parts_of(calls[i]).output, true, i);
  }
  const std::less<> before;
  std::sort(uses.begin(), uses.end(), [&](const Use& a, const Use& b) { return before(a.begin, b.begin); });
  for (std::size_t i = 0; i < uses.size(); ++i) {
    for (std::size_t j = i + 1; j < uses.size() && before(uses[j].begin, uses[i].begin + uses[i].bytes); ++j) {
      if (uses[i].call == uses[j].call || !(uses[i].written || uses[j].written)) continue;
      const auto [first, second] = std::minmax(uses[i].call, uses[j].call);
      refuse_group(name, "calls " + std::to_string(first) + " and " + std::to_string(second) +
                             " use the same memory, and one of them writes it; give each its own");
    }
  }
}

/// The part of a signature that all calls of a group have in common.
core::Signature without_tensors(core::Signature signature) {
  signature.tensors.clear();
  return signature;
}

/// `a`: what all calls have in common, as the first one has it, on `device`.
void check_alike(std::string_view name, const core::Signature& a, Device device, const Request& other,
                 std::size_t number) {
  const core::Signature b = without_tensors(other.signature);
  std::string what, of_first, of_other;
  if (const auto difference = core::first_difference(a, b)) {
    what = core::describe(*difference);
    of_first = core::describe_value(a, *difference);
    of_other = core::describe_value(b, *difference);
  } else if (device != other.device) {
    what = "device";
    of_first = to_string(device);
    of_other = to_string(other.device);
  } else {
    return;
  }
  refuse_group(name, "its calls differ in " + what + ": " + of_first + " in call 0, " + of_other + " in call " +
                         std::to_string(number) + "; they may differ in their tensors alone");
}

/// Appends the tensors of `other`.
void append(Request& group, Request other) {
  core::Signature& signature = group.signature;
  signature.tensors.insert(signature.tensors.end(), other.signature.tensors.begin(), other.signature.tensors.end());
  group.buffers.insert(group.buffers.end(), other.buffers.begin(), other.buffers.end());
  group.outputs.others.push_back(std::move(other.outputs.first));
  group.outputs.splits.insert(group.outputs.splits.end(), other.outputs.splits.begin(), other.outputs.splits.end());
  if (other.timeout) group.timeout = std::min(*other.timeout, group.timeout.value_or(*other.timeout));
  for (const Stream& stream : other.streams) {
    const auto same = [&](const Stream& one) { return one.native == stream.native; };
    if (std::none_of(group.streams.begin(), group.streams.end(), same)) group.streams.push_back(stream);
  }
}

}  // namespace

Request make_grouped_request(const engine::SetState& set, std::string_view name, Span<const Call> calls) {
  if (calls.empty()) refuse_group(name, "it has no calls; give at least one");
  for (std::size_t i = 0; i < calls.size(); ++i) check_kind(name, parts_of(calls[i]), i);
  check_memory(name, calls);
  Request whole = make_request(set, name, calls[0]);
  const core::Signature common = without_tensors(whole.signature);
  for (std::size_t i = 1; i < calls.size(); ++i) {
    Request next = make_request(set, name, calls[i]);
    check_alike(name, common, whole.device, next, i);
    append(whole, std::move(next));
  }
  whole.signature.members = base::kHashSeed;
  return whole;
}

}  // namespace kolo::api
