// SPDX-License-Identifier: Apache-2.0
//
// Checks of a call's arguments, and the sentences of their errors.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <kolo/call.hpp>
#include <kolo/error.hpp>
#include <kolo/types.hpp>

#include "core/collectives.hpp"
#include "core/element_types.hpp"

namespace kolo::api {

/// The root of a call, the number of ranks, and this rank.
struct Root {
  int rank = 0;
  int ranks = 1;
  int self = 0;
  [[nodiscard]] bool is_here() const noexcept { return rank == self; }
};

/// The subject of an error: a collective, with its name if it has one, or the thing that the words name.
struct Subject {
  Subject(core::CollectiveKind its_kind, std::string_view its_name) noexcept : kind(its_kind), name(its_name) {}
  Subject(const char* words) noexcept : kind(core::CollectiveKind::message), name(words) {}

  core::CollectiveKind kind;
  std::string_view name;
};

// Each check throws Error (invalid_argument, unless its comment says otherwise).

/// "allreduce of \"w\"", "unnamed allreduce", "send".
std::string describe(const Subject& subject);
/// Throws Error with a sentence about that call.
[[noreturn]] void refuse(const Subject& subject, const std::string& why, ErrorCode code = ErrorCode::invalid_argument);

// Every call makes the next checks, so they are inline. Their error messages are not.

[[noreturn, gnu::noinline]] void refuse_number(const Subject& subject, const char* what, unsigned value, unsigned last);
[[noreturn, gnu::noinline]] void refuse_null(const Subject& subject, const char* which, const Shape& shape);

/// A caller's cast may give an enum any value.
template <class Enum>
inline void check_known(const Subject& subject, const char* what, Enum value, Enum last) {
  if (value > last) refuse_number(subject, what, static_cast<unsigned>(value), static_cast<unsigned>(last));
}

inline void check_view(const Subject& subject, const char* which, const ConstTensorView& view) {
  check_known(subject, "dtype", view.dtype(), core::kLastDType);
  check_known(subject, "device kind", view.device().kind, DeviceKind::cuda);
  if (view.data() == nullptr && view.elements() > 0) refuse_null(subject, which, view.shape());
}

/// Whether the input is a part of the output.
bool is_inside(const ConstTensorView& in, const TensorView& out);
/// Checks the views of an `_into` call, which may differ in shape.
void check_types(const Subject& subject, const ConstTensorView& in, const TensorView& out);
void check_apart(const Subject& subject, const ConstTensorView& in, const TensorView& out, const char* remedy);
void check_pair(const Subject& subject, const ConstTensorView& in, const TensorView& out);
void check_reduction(const Subject& subject, DType dtype, const detail::CallParts& call);
/// A deadline of its own, or none.
void check_timeout(const Subject& subject, const std::optional<std::chrono::nanoseconds>& timeout);
/// Members of a grouped call are written independently, so none may overlap.
void check_members(const Subject& group, Span<const NamedView> members);

/// Checks a call whose output has the shape of its input.
inline void check_tensors(const Subject& subject, const ConstTensorView& in, const detail::CallParts& call) {
  if (call.in_place || !call.output) {
    check_view(subject, "tensor", in);
  } else {
    check_pair(subject, in, *call.output);
  }
  const bool is_usual = in.dtype() == DType::float32 && call.op <= ReduceOp::average && call.prescale == 1.0 &&
                        call.postscale == 1.0 && !call.send_as;  // true for most calls, which then need no function
                                                                 // call
  if (core::traits_of(subject.kind).reduces && !is_usual) check_reduction(subject, in.dtype(), call);
}

void check_root(const Subject& subject, const Root& root);
/// Throws if this rank is the root, which gets the result, and gives no output.
void check_output_at_root(const Subject& subject, const std::optional<TensorView>& out, const Root& root);
/// Checks the numbers of rows that the ranks have for this one, against the output of an alltoall.
void check_received_splits(const Subject& subject, const Shape& row, const TensorView& out,
                           Span<const std::int64_t> splits, int size);
/// Checks the splits of an alltoall.
void check_splits(const Subject& subject, const Shape& shape, Span<const std::int64_t> splits, int size);
/// Throws Error (invalid_argument) for a name that cannot be submitted: empty, reserved, or longer than 64 KiB.
void check_name(std::string_view name);

}  // namespace kolo::api
