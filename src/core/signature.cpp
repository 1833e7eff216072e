// SPDX-License-Identifier: Apache-2.0
#include "core/signature.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include <kolo/names.hpp>

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

/// The difference of two signatures that have the same number of members, with different names.
Difference member_difference(const Signature& a, const Signature& b) {
  std::size_t first = 0;
  while (first + 1 < a.tensors.size() && first < a.names.size() && first < b.names.size() &&
         a.names[first] == b.names[first]) {
    ++first;
  }
  return {Aspect::member, first, true};
}

std::optional<Difference> tensor_difference(const Signature& a, const Signature& b) {
  const bool grouped = a.tensors.size() > 1;
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].dtype != b.tensors[i].dtype) return Difference{Aspect::dtype, i, grouped};
  }
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].shape != b.tensors[i].shape) return Difference{Aspect::shape, i, grouped};
  }
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].place != b.tensors[i].place) return Difference{Aspect::place, i, grouped};
  }
  return std::nullopt;
}

constexpr std::array<std::string_view, 14> kAspects{"the kind of collective",
                                                    "op",
                                                    "root",
                                                    "prescale",
                                                    "postscale",
                                                    "the type that is sent",
                                                    "device",
                                                    "the number of tensors",
                                                    "the name",
                                                    "dtype",
                                                    "shape",
                                                    "place in a GradientArena of the device",
                                                    "ranks",
                                                    "priority"};
static_assert(kAspects.size() == static_cast<std::size_t>(Aspect::priority) + 1, "one name an aspect");

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
  if (a.kind != b.kind) return Difference{Aspect::kind};
  if (a.op != b.op) return Difference{Aspect::op};
  if (a.root != b.root) return Difference{Aspect::root};
  if (!same_bits(a.prescale, b.prescale)) return Difference{Aspect::prescale};
  if (!same_bits(a.postscale, b.postscale)) return Difference{Aspect::postscale};
  if (a.wire != b.wire) return Difference{Aspect::wire};
  if (a.device != b.device) return Difference{Aspect::device};
  if (a.tensors.size() != b.tensors.size()) return Difference{Aspect::tensor_count};
  if (a.members != b.members) return member_difference(a, b);
  if (const auto difference = tensor_difference(a, b)) return difference;
  if (a.ranks != b.ranks) return Difference{Aspect::ranks};
  if (a.priority != b.priority) return Difference{Aspect::priority};
  return std::nullopt;
}

std::string describe(const Difference& difference) {
  std::string text(kolo::detail::name_of(kAspects, difference.aspect));
  if (difference.grouped) text += " of tensor " + std::to_string(difference.tensor);
  return text;
}

std::string describe_value(const Signature& signature, const Difference& difference) {
  switch (difference.aspect) {
  case Aspect::kind:
    return std::string(to_string(signature.kind));
  case Aspect::op:
    return std::string(to_string(signature.op));
  case Aspect::root:
    return std::to_string(signature.root);
  case Aspect::prescale:
    return base::spell(signature.prescale);
  case Aspect::postscale:
    return base::spell(signature.postscale);
  case Aspect::wire:
    return std::string(to_string(signature.wire));
  case Aspect::device:
    return signature.device == DeviceKind::cpu ? "cpu" : "cuda";
  case Aspect::tensor_count:
    return std::to_string(signature.tensors.size());
  case Aspect::member:
    if (signature.members == 0) return "none (no grouped call)";
    return difference.tensor < signature.names.size() ? base::quoted(signature.names[difference.tensor])
                                                      : "another one";
  case Aspect::dtype:
  case Aspect::shape:
  case Aspect::place:
    break;
  case Aspect::ranks:
    return spell_list(signature.ranks);
  case Aspect::priority:
    return std::to_string(signature.priority);
  }
  if (difference.tensor >= signature.tensors.size()) return "none";
  const TensorSignature& tensor = signature.tensors[difference.tensor];
  if (difference.aspect == Aspect::place) return describe_place(tensor.place);
  return difference.aspect == Aspect::dtype ? std::string(to_string(tensor.dtype))
                                            : spell_shape(signature.kind, tensor);
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
