// SPDX-License-Identifier: Apache-2.0
//
// Makes a `Request` from a `Call`: checks the call (checks.hpp), and makes a signature, which ranks compare, and
// buffers. submit.hpp submits requests.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/types.hpp>

#include "api/checks.hpp"
#include "core/signature.hpp"
#include "engine/operation.hpp"
#include "engine/sets.hpp"

namespace kolo::api {

/// A checked call: everything about it except its name.
struct Request {
  core::Signature signature;
  engine::Buffers buffers;
  Span<const NamedView> members;  ///< of a grouped all-reduce: the caller's list, valid during the call
  std::optional<std::chrono::nanoseconds> timeout;
  bool located = false;
  Device device = cpu();        ///< the device of all tensors, once it is known
  std::vector<Stream> streams;  ///< streams whose work on the tensors comes first, each once
  detail::Outputs outputs;      ///< outputs whose size depends on all ranks, and outputs that the library allocates
};

/// Checks the call. `name`: empty for an unnamed call. Throws Error (invalid_argument, unsupported).
Request make_request(const engine::SetState& set, std::string_view name, const Call& call);
/// Makes one request of several calls (grouped.cpp). Throws Error (invalid_argument, unsupported).
Request make_grouped_request(const engine::SetState& set, std::string_view name, Span<const Call> calls);

/// Puts the names of a grouped all-reduce's members into its signature, for the sentence about ranks that disagree.
/// Call it for a new signature; a known one has the names already. Throws Error (invalid_argument) if two are equal.
void name_members(std::string_view group, Request& request);

/// The root that a call names; rank 0 for a kind without a root.
inline Root root_of(const engine::SetState& set, const detail::CallParts& call) noexcept {
  return {call.root, set.topology.size, set.topology.rank};
}
/// How elements are sent. The call must have been checked.
inline core::Wire wire_of(const detail::CallParts& call) noexcept {
  return call.send_as ? core::wire_named(*call.send_as) : core::Wire::own;
}
/// 0 for calls without a name, which run in their order.
inline int priority_of(std::string_view name, const detail::CallParts& call) noexcept {
  return name.empty() ? 0 : call.priority;
}
/// The signature without its tensors. The call must have been checked.
core::Signature signature_of(std::string_view name, const detail::CallParts& call);

/// The view that the call reads. There must be one.
inline const ConstTensorView& input_of(const detail::CallParts& call) noexcept {
  return call.in_place ? static_cast<const ConstTensorView&>(*call.output) : *call.input;
}
/// The buffer of a call whose output, if this rank gets one, has the shape of its input.
inline engine::Buffer buffer_of(const detail::CallParts& call, const Root& root) noexcept {
  const ConstTensorView& in = input_of(call);
  const bool gets = call.output && (!core::traits_of(call.kind).result_at_root || root.is_here());
  return {static_cast<const std::byte*>(in.data()), gets ? static_cast<std::byte*>(call.output->data()) : nullptr,
          in.elements()};
}

}  // namespace kolo::api
