// SPDX-License-Identifier: Apache-2.0
#include "core/signature.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "core/device_place.hpp"

namespace kolo::core {
namespace {

// Scales are compared by their bits: a NaN equals itself, so that the same request is the same signature every time.
bool same_bits(double a, double b) noexcept {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

std::string spell_tensor(const TensorSignature& tensor) {
  return std::string(to_string(tensor.dtype)) + " " + to_string(tensor.shape);
}

std::string spell_list(const std::vector<std::int32_t>& numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return text + "]";
}

/// The shape as messages show it. Where the number of rows may differ by rank, the signature has only the shape of a
/// row: "[*, 4]".
std::string spell_shape(CollectiveKind kind, const TensorSignature& tensor) {
  std::string text = to_string(tensor.shape);
  if (!traits_of(kind).rows_differ) return text;
  return text.insert(1, tensor.shape.rank() == 0 ? "*" : "*, ");
}

std::string describe_place(std::uint64_t place) {
  if (place == 0) return "none";
  const DevicePlace where(place);
  const auto name = [](std::uint16_t region) { return region == 0 ? "none" : std::to_string(region); };
  if (!where.is_exact()) return "input in arena " + name(where.region) + ", output in " + name(where.output_region());
  return "byte " + std::to_string(where.offset) + " of arena " + std::to_string(where.region);
}

std::string describe_member(const Signature& signature, std::size_t tensor) {
  if (signature.members == 0) return "none (no grouped call)";
  return tensor < signature.names.size() ? base::quoted(signature.names[tensor]) : "another one";
}

/// The tensor whose name differs, in two groups of the same number of members.
std::size_t different_member(const Signature& a, const Signature& b) {
  std::size_t first = 0;
  while (first + 1 < a.tensors.size() && first < a.names.size() && first < b.names.size() &&
         a.names[first] == b.names[first]) {
    ++first;
  }
  return first;
}

using S = const Signature&;

/// In what signatures may differ: its name, whether two signatures differ in it, and its value in one of them. For
/// tensors, `i` is the tensor's number; other rows do not use it.
struct Row {
  std::string_view name;
  bool (*differs)(S a, S b, std::size_t i);
  std::string (*value)(S s, std::size_t i);
  bool is_of_tensors = false;
};

/// By `Aspect`.
constexpr std::array<Row, 14> kRows{{
    {"the kind of collective", [](S a, S b, std::size_t) { return a.kind != b.kind; },
     [](S s, std::size_t) { return std::string(to_string(s.kind)); }},
    {"op", [](S a, S b, std::size_t) { return a.op != b.op; },
     [](S s, std::size_t) { return std::string(to_string(s.op)); }},
    {"root", [](S a, S b, std::size_t) { return a.root != b.root; },
     [](S s, std::size_t) { return std::to_string(s.root); }},
    {"prescale", [](S a, S b, std::size_t) { return !same_bits(a.prescale, b.prescale); },
     [](S s, std::size_t) { return base::spell(s.prescale); }},
    {"postscale", [](S a, S b, std::size_t) { return !same_bits(a.postscale, b.postscale); },
     [](S s, std::size_t) { return base::spell(s.postscale); }},
    {"the type that is sent", [](S a, S b, std::size_t) { return a.wire != b.wire; },
     [](S s, std::size_t) { return std::string(to_string(s.wire)); }},
    {"device", [](S a, S b, std::size_t) { return a.device != b.device; },
     [](S s, std::size_t) { return std::string(s.device == DeviceKind::cpu ? "cpu" : "cuda"); }},
    {"the number of tensors", [](S a, S b, std::size_t) { return a.tensors.size() != b.tensors.size(); },
     [](S s, std::size_t) { return std::to_string(s.tensors.size()); }},
    {"the name", [](S a, S b, std::size_t) { return a.members != b.members; }, describe_member},
    {"dtype", [](S a, S b, std::size_t i) { return a.tensors[i].dtype != b.tensors[i].dtype; },
     [](S s, std::size_t i) { return std::string(to_string(s.tensors[i].dtype)); }, true},
    {"shape", [](S a, S b, std::size_t i) { return a.tensors[i].shape != b.tensors[i].shape; },
     [](S s, std::size_t i) { return spell_shape(s.kind, s.tensors[i]); }, true},
    {"place in a GradientArena of the device",
     [](S a, S b, std::size_t i) { return a.tensors[i].place != b.tensors[i].place; },
     [](S s, std::size_t i) { return describe_place(s.tensors[i].place); }, true},
    {"ranks", [](S a, S b, std::size_t) { return a.ranks != b.ranks; },
     [](S s, std::size_t) { return spell_list(s.ranks); }},
    {"priority", [](S a, S b, std::size_t) { return a.priority != b.priority; },
     [](S s, std::size_t) { return std::to_string(s.priority); }},
}};
static_assert(kRows.size() == static_cast<std::size_t>(Aspect::priority) + 1, "one row an aspect");

const Row& row_of(Aspect aspect) { return kRows[static_cast<std::size_t>(aspect)]; }

}  // namespace

std::int64_t Signature::bytes() const noexcept {
  // Saturates: one tensor's bytes fit into 63 bits, but a group's sum may not.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::int64_t sum = 0;
  for (const TensorSignature& tensor : tensors) {
    std::int64_t size = 0;
    if (__builtin_mul_overflow(tensor.shape.elements(), static_cast<std::int64_t>(size_of(tensor.dtype)), &size) ||
        __builtin_add_overflow(sum, size, &sum)) {
      return kMost;
    }
  }
  return sum;
}

bool operator==(const Signature& a, const Signature& b) noexcept {
  return a.kind == b.kind && a.op == b.op && a.device == b.device && a.root == b.root &&
         same_bits(a.prescale, b.prescale) && same_bits(a.postscale, b.postscale) && a.wire == b.wire &&
         a.tensors == b.tensors && a.members == b.members && a.ranks == b.ranks && a.priority == b.priority;
}

std::string describe(const Signature& signature) {
  std::string text{to_string(signature.kind)};
  if (signature.tensors.size() == 1) {
    text += " of " + spell_tensor(signature.tensors.front());
  } else if (!signature.tensors.empty()) {
    text += " of " + std::to_string(signature.tensors.size()) + " tensors, the first " +
            spell_tensor(signature.tensors.front());
  }
  if (traits_of(signature.kind).reduces) text += ", op " + std::string(to_string(signature.op));
  if (signature.wire != Wire::own) text += ", sent as " + std::string(to_string(signature.wire));
  if (traits_of(signature.kind).rooted) text += ", root " + std::to_string(signature.root);
  if (!signature.ranks.empty()) text += " " + spell_list(signature.ranks);
  return text;
}

std::optional<Difference> first_difference(const Signature& a, const Signature& b) {
  for (std::size_t row = 0; row < kRows.size(); ++row) {
    const auto aspect = static_cast<Aspect>(row);
    const std::size_t places = kRows[row].is_of_tensors ? a.tensors.size() : 1;
    for (std::size_t i = 0; i < places; ++i) {
      if (!kRows[row].differs(a, b, i)) continue;
      if (aspect == Aspect::member) return Difference{aspect, different_member(a, b), true};
      return Difference{aspect, i, kRows[row].is_of_tensors && a.tensors.size() > 1};
    }
  }
  return std::nullopt;
}

std::string describe(const Difference& difference) {
  std::string text(row_of(difference.aspect).name);
  if (difference.grouped) text += " of tensor " + std::to_string(difference.tensor);
  return text;
}

std::string describe_value(const Signature& signature, const Difference& difference) {
  const Row& row = row_of(difference.aspect);
  if (row.is_of_tensors && difference.tensor >= signature.tensors.size()) return "none";
  return row.value(signature, difference.tensor);
}

std::string describe_ranks(const std::vector<std::int32_t>& ascending) {
  if (ascending.empty()) return "no rank";
  std::string text = ascending.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;
    if (i > 0) text += end == ascending.size() ? " and " : ", ";
    text += std::to_string(ascending[i]);
    if (end - i >= 3) text += "-" + std::to_string(ascending[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace kolo::core
