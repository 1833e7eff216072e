// SPDX-License-Identifier: Apache-2.0
#include "api/checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "core/element_types.hpp"

namespace kolo::api {
namespace {

constexpr std::size_t kLongestName = 64 << 10;
constexpr std::string_view kReserved = "kolo.";

bool overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && first < second + static_cast<std::uintptr_t>(b_bytes) &&
         second < first + static_cast<std::uintptr_t>(a_bytes);
}

void check_send_as(const Subject& subject, DType dtype, DType send_as) {
  check_known(subject, "send_as", send_as, core::kLastDType);
  const std::string type(to_string(dtype)), sent(to_string(send_as));
  if (core::wire_named(send_as) == core::Wire::own) {
    std::string known;
    for (const core::WireTraits& wire : core::kWires)
      if (wire.type) known += (known.empty() ? "" : " and ") + std::string(wire.name);
    refuse(subject, "send_as is " + sent + "; only " + known + " make sense");
  }
  if (!is_floating_point(dtype)) {
    refuse(subject, type + " cannot be sent as " + sent + "; send_as needs a floating-point type");
  }
}

/// The sum of one number of rows for each rank, none negative; empty: it is more than any tensor's rows.
std::optional<std::int64_t> sum_of_splits(const Subject& subject, const std::string& what,
                                          Span<const std::int64_t> splits, int size) {
  if (splits.size() != static_cast<std::size_t>(size)) {
    refuse(subject, std::to_string(splits.size()) + ' ' + what + "s were given for " + std::to_string(size) +
                        " ranks; give one for each");
  }
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) refuse(subject, "a " + what + " is " + std::to_string(split) + "; they must not be negative");
    if (__builtin_add_overflow(sum, split, &sum)) return std::nullopt;
  }
  return sum;
}

}  // namespace

std::string describe(const Subject& subject) {
  if (subject.kind == core::CollectiveKind::message) return std::string(subject.name);
  const std::string what(core::to_string(subject.kind));
  return subject.name.empty() ? "unnamed " + what : what + " of " + base::quoted(subject.name);
}

void refuse(const Subject& subject, const std::string& why, ErrorCode code) {
  throw Error(code, describe(subject) + ": " + why);
}

void refuse_number(const Subject& subject, const char* what, unsigned value, unsigned last) {
  refuse(subject, std::string("its ") + what + " is number " + std::to_string(value) +
                      ", which does not exist; the last one is " + std::to_string(last));
}

void refuse_null(const Subject& subject, const char* which, const Shape& shape) {
  refuse(subject, std::string("the ") + which + " is a null pointer, but its shape " + to_string(shape) + " has " +
                      std::to_string(shape.elements()) + " elements; give the address of the first");
}

bool is_inside(const ConstTensorView& in, const TensorView& out) {
  const auto* input = static_cast<const std::byte*>(in.data());
  const auto* output = static_cast<const std::byte*>(out.data());
  return in.bytes() > 0 && input >= output && input + in.bytes() <= output + out.bytes();
}

void check_types(const Subject& subject, const ConstTensorView& in, const TensorView& out) {
  check_view(subject, "input", in);
  check_view(subject, "output", out);
  if (in.dtype() != out.dtype()) {
    refuse(subject, "the input is " + std::string(to_string(in.dtype())) + ", but the output is " +
                        std::string(to_string(out.dtype())) + "; they must agree");
  }
}

void check_apart(const Subject& subject, const ConstTensorView& in, const TensorView& out, const char* remedy) {
  if (overlap(in.data(), in.bytes(), out.data(), out.bytes())) {
    refuse(subject, std::string("the input and the output overlap; ") + remedy);
  }
}

void check_pair(const Subject& subject, const ConstTensorView& in, const TensorView& out) {
  check_types(subject, in, out);
  if (in.shape() != out.shape()) {
    refuse(subject, "the input has shape " + to_string(in.shape()) + ", but the output has " + to_string(out.shape()) +
                        "; they must agree");
  }
  check_apart(subject, in, out, "use the call without _into to work in place, or give an output of its own");
}

void check_reduction(const Subject& subject, DType dtype, const detail::CallParts& call) {
  check_known(subject, "op", call.op, core::kLastReduceOp);
  if (!is_floating_point(dtype)) {
    const std::string type(to_string(dtype));
    if (call.op == ReduceOp::average) {
      refuse(subject,
             "the average of " + type + " is not defined; use ReduceOp::sum and divide, or a floating-point type");
    }
    if (call.prescale != 1.0 || call.postscale != 1.0) {
      refuse(subject, type + " cannot be scaled by " + base::spell(call.prescale) + " and " +
                          base::spell(call.postscale) + "; prescale and postscale need a floating-point type");
    }
  }
  if (is_floating_point(dtype) && core::is_bitwise(call.op)) {
    refuse(subject, std::string(to_string(call.op)) + " of " + std::string(to_string(dtype)) +
                        " is not defined; use it with integers or booleans");
  }
  if (!std::isfinite(call.prescale) || !std::isfinite(call.postscale)) {
    refuse(subject, "prescale and postscale must be finite numbers");
  }
  if (call.send_as) check_send_as(subject, dtype, *call.send_as);
}

void check_timeout(const Subject& subject, const std::optional<std::chrono::nanoseconds>& timeout) {
  if (!timeout || *timeout > std::chrono::nanoseconds::zero()) return;
  refuse(subject, "its timeout is " + std::to_string(timeout->count()) +
                      " ns; give a time greater than zero, or none for KOLO_TIMEOUT_S");
}

void check_members(const Subject& group, Span<const NamedView> members) {
  const auto before = [](const NamedView* a, const NamedView* b) { return a->view.data() < b->view.data(); };
  std::vector<const NamedView*> sorted;
  sorted.reserve(members.size());
  for (const NamedView& member : members) sorted.push_back(&member);
  if (!std::is_sorted(sorted.begin(), sorted.end(), before)) std::sort(sorted.begin(), sorted.end(), before);
  const NamedView* last = nullptr;
  for (const NamedView* member : sorted) {
    if (member->view.elements() == 0) continue;
    if (last != nullptr && overlap(last->view.data(), last->view.bytes(), member->view.data(), member->view.bytes())) {
      refuse(group, "its members " + base::quoted(last->name) + " and " + base::quoted(member->name) +
                        " overlap; give each memory of its own");
    }
    last = member;
  }
}

void check_root(const Subject& subject, const Root& root) {
  if (root.rank >= 0 && root.rank < root.ranks) return;
  refuse(subject, "there is no root rank " + std::to_string(root.rank) + "; a root is a rank of the group, 0 to " +
                      std::to_string(root.ranks - 1));
}

void check_output_at_root(const Subject& subject, const std::optional<TensorView>& out, const Root& root) {
  if (out || !root.is_here()) return;
  refuse(subject, "rank " + std::to_string(root.rank) + " is the root, and gets the result; give an output");
}

void check_received_splits(const Subject& subject, const Shape& row, const TensorView& out,
                           Span<const std::int64_t> splits, int size) {
  const std::optional<std::int64_t> sum = sum_of_splits(subject, "received split", splits, size);
  if (!sum) refuse(subject, "the received splits are more than any tensor's");
  std::int64_t elements = 0;
  if (!__builtin_mul_overflow(*sum, row.elements(), &elements) && elements == out.elements()) return;
  refuse(subject, "the received splits sum up to " + std::to_string(*sum) + " rows of shape " + to_string(row) +
                      ", but the output has " + std::to_string(out.elements()) + " elements; the rows must fill it");
}

void check_splits(const Subject& subject, const Shape& shape, Span<const std::int64_t> splits, int size) {
  if (shape.rank() == 0) refuse(subject, "a scalar has no rows to send; give a tensor of at least one dimension");
  const std::int64_t rows = shape[0];
  if (splits.empty()) {
    if (rows % size == 0) return;
    refuse(subject, "its " + std::to_string(rows) + " rows cannot be divided evenly among " + std::to_string(size) +
                        " ranks; give splits");
  }
  const std::optional<std::int64_t> sum = sum_of_splits(subject, "split", splits, size);
  if (sum == rows) return;
  refuse(subject, "the splits sum up to " + (sum ? std::to_string(*sum) : "more than any tensor's rows") +
                      ", but the input has " + std::to_string(rows) + " rows; all of them must go somewhere");
}

void check_name(std::string_view name) {
  if (name.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "this call needs a name: give every tensor one of its own, the same on all ranks");
  }
  if (name.substr(0, kReserved.size()) == kReserved) {
    throw Error(ErrorCode::invalid_argument,
                "the name " + base::quoted(name) + " is reserved: names that begin with \"kolo.\" are Kolo's own");
  }
  if (name.size() > kLongestName) {
    throw Error(ErrorCode::invalid_argument, "a name of " + std::to_string(name.size()) +
                                                 " bytes is too long; the longest has " + std::to_string(kLongestName));
  }
}

}  // namespace kolo::api
