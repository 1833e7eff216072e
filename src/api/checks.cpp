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

void check_send_as(core::CollectiveKind kind, std::string_view name, DType dtype, DType send_as) {
  check_known(kind, name, "send_as", send_as, core::kLastDType);
  const std::string type(to_string(dtype)), sent(to_string(send_as));
  if (core::wire_named(send_as) == core::Wire::own) {
    std::string known;
    for (const core::WireTraits& wire : core::kWires)
      if (wire.type) known += (known.empty() ? "" : " and ") + std::string(wire.name);
    refuse(kind, name, "send_as is " + sent + "; only " + known + " make sense");
  }
  if (!is_floating_point(dtype)) {
    refuse(kind, name, type + " cannot be sent as " + sent + "; send_as needs a floating-point type");
  }
}

}  // namespace

std::string subject(core::CollectiveKind kind, std::string_view name) {
  const std::string what(core::to_string(kind));
  return name.empty() ? "unnamed " + what : what + " of " + base::quoted(name);
}

void refuse(core::CollectiveKind kind, std::string_view name, const std::string& why, ErrorCode code) {
  throw Error(code, subject(kind, name) + ": " + why);
}

void refuse_number(core::CollectiveKind kind, std::string_view name, const char* what, unsigned value, unsigned last) {
  refuse(kind, name,
         std::string("its ") + what + " is number " + std::to_string(value) +
             ", which does not exist; the last one is " + std::to_string(last));
}

void refuse_null(core::CollectiveKind kind, std::string_view name, const char* which, const Shape& shape) {
  refuse(kind, name,
         std::string("the ") + which + " is a null pointer, but its shape " + to_string(shape) + " has " +
             std::to_string(shape.elements()) + " elements; give the address of the first");
}

bool is_inside(const ConstTensorView& in, const TensorView& out) {
  const auto* input = static_cast<const std::byte*>(in.data());
  const auto* output = static_cast<const std::byte*>(out.data());
  return in.bytes() > 0 && input >= output && input + in.bytes() <= output + out.bytes();
}

void check_types(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in, const TensorView& out) {
  check_view(kind, name, "input", in);
  check_view(kind, name, "output", out);
  if (in.dtype() != out.dtype()) {
    refuse(kind, name,
           "the input is " + std::string(to_string(in.dtype())) + ", but the output is " +
               std::string(to_string(out.dtype())) + "; they must agree");
  }
}

void check_apart(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in, const TensorView& out,
                 const char* remedy) {
  if (overlap(in.data(), in.bytes(), out.data(), out.bytes())) {
    refuse(kind, name, std::string("the input and the output overlap; ") + remedy);
  }
}

void check_pair(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in, const TensorView& out) {
  check_types(kind, name, in, out);
  if (in.shape() != out.shape()) {
    refuse(kind, name,
           "the input has shape " + to_string(in.shape()) + ", but the output has " + to_string(out.shape()) +
               "; they must agree");
  }
  check_apart(kind, name, in, out, "use the call without _into to work in place, or give an output of its own");
}

void check_reduction(core::CollectiveKind kind, std::string_view name, DType dtype, const detail::CallParts& call) {
  check_known(kind, name, "op", call.op, core::kLastReduceOp);
  if (!is_floating_point(dtype)) {
    const std::string type(to_string(dtype));
    if (call.op == ReduceOp::average) {
      refuse(kind, name,
             "the average of " + type + " is not defined; use ReduceOp::sum and divide, or a floating-point type");
    }
    if (call.prescale != 1.0 || call.postscale != 1.0) {
      refuse(kind, name,
             type + " cannot be scaled by " + base::spell(call.prescale) + " and " + base::spell(call.postscale) +
                 "; prescale and postscale need a floating-point type");
    }
  }
  if (is_floating_point(dtype) && core::is_bitwise(call.op)) {
    refuse(kind, name,
           std::string(to_string(call.op)) + " of " + std::string(to_string(dtype)) +
               " is not defined; use it with integers or booleans");
  }
  if (!std::isfinite(call.prescale) || !std::isfinite(call.postscale)) {
    refuse(kind, name, "prescale and postscale must be finite numbers");
  }
  if (call.send_as) check_send_as(kind, name, dtype, *call.send_as);
}

void check_timeout(std::string_view subject, const std::optional<std::chrono::nanoseconds>& timeout) {
  if (!timeout || *timeout > std::chrono::nanoseconds::zero()) return;
  throw Error(ErrorCode::invalid_argument, std::string(subject) + ": its timeout is " +
                                               std::to_string(timeout->count()) +
                                               " ns; give a time greater than zero, or none for KOLO_TIMEOUT_S");
}

std::optional<std::chrono::nanoseconds> checked_timeout(core::CollectiveKind kind, std::string_view name,
                                                        std::optional<std::chrono::nanoseconds> timeout) {
  // The subject is a text that most calls need not make.
  if (timeout && *timeout <= std::chrono::nanoseconds::zero()) check_timeout(subject(kind, name), timeout);
  return timeout;
}

void check_members(std::string_view group, Span<const NamedView> members) {
  const auto kind = core::CollectiveKind::allreduce;
  const auto before = [](const NamedView* a, const NamedView* b) { return a->view.data() < b->view.data(); };
  std::vector<const NamedView*> sorted;
  sorted.reserve(members.size());
  for (const NamedView& member : members) sorted.push_back(&member);
  if (!std::is_sorted(sorted.begin(), sorted.end(), before)) std::sort(sorted.begin(), sorted.end(), before);
  const NamedView* last = nullptr;
  for (const NamedView* member : sorted) {
    if (member->view.elements() == 0) continue;
    if (last != nullptr && overlap(last->view.data(), last->view.bytes(), member->view.data(), member->view.bytes())) {
      refuse(kind, group,
             "its members " + base::quoted(last->name) + " and " + base::quoted(member->name) +
                 " overlap; give each memory of its own");
    }
    last = member;
  }
}

void check_root(core::CollectiveKind kind, std::string_view name, const Root& root) {
  if (root.rank >= 0 && root.rank < root.ranks) return;
  refuse(kind, name,
         "there is no root rank " + std::to_string(root.rank) + "; a root is a rank of the group, 0 to " +
             std::to_string(root.ranks - 1));
}

void check_output_at_root(core::CollectiveKind kind, std::string_view name, const std::optional<TensorView>& out,
                          const Root& root) {
  if (out || !root.is_here()) return;
  refuse(kind, name, "rank " + std::to_string(root.rank) + " is the root, and gets the result; give an output");
}

void check_received_splits(core::CollectiveKind kind, std::string_view name, const Shape& row, const TensorView& out,
                           Span<const std::int64_t> splits, int size) {
  if (splits.size() != static_cast<std::size_t>(size)) {
    refuse(kind, name,
           std::to_string(splits.size()) + " received splits were given for " + std::to_string(size) +
               " ranks; give one for each");
  }
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) refuse(kind, name, "a received split is " + std::to_string(split) + "; they must not be negative");
    if (__builtin_add_overflow(sum, split, &sum)) refuse(kind, name, "the received splits are more than any tensor's");
  }
  std::int64_t elements = 0;
  if (!__builtin_mul_overflow(sum, row.elements(), &elements) && elements == out.elements()) return;
  refuse(kind, name,
         "the received splits sum up to " + std::to_string(sum) + " rows of shape " + to_string(row) +
             ", but the output has " + std::to_string(out.elements()) + " elements; the rows must fill it");
}

void check_splits(core::CollectiveKind kind, std::string_view name, const Shape& shape, Span<const std::int64_t> splits,
                  int size) {
  if (shape.rank() == 0) refuse(kind, name, "a scalar has no rows to send; give a tensor of at least one dimension");
  const std::int64_t rows = shape[0];
  if (splits.empty()) {
    if (rows % size == 0) return;
    refuse(kind, name,
           "its " + std::to_string(rows) + " rows cannot be divided evenly among " + std::to_string(size) +
               " ranks; give splits");
  }
  if (splits.size() != static_cast<std::size_t>(size)) {
    refuse(kind, name,
           std::to_string(splits.size()) + " splits were given for " + std::to_string(size) +
               " ranks; give one for each");
  }
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) refuse(kind, name, "a split is " + std::to_string(split) + "; they must not be negative");
    if (__builtin_add_overflow(sum, split, &sum)) sum = -1;
    if (sum < 0) break;
  }
  if (sum != rows) {
    refuse(kind, name,
           "the splits sum up to " + (sum < 0 ? "more than any tensor's rows" : std::to_string(sum)) +
               ", but the input has " + std::to_string(rows) + " rows; all of them must go somewhere");
  }
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
