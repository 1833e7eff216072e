// SPDX-License-Identifier: Apache-2.0
#include "api/nan_check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "api/access.hpp"
#include "api/request.hpp"
#include "core/collectives.hpp"

namespace kolo::api {
namespace {

/// Elements that are looked at together, without a branch for each.
constexpr std::int64_t kStretch = 4096;

/// The first element for which `is_nan` holds, of those at any alignment; -1: none.
template <class Word, class IsNan>
std::int64_t first_nan(const void* data, std::int64_t elements, IsNan is_nan) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  const auto word_at = [bytes](std::int64_t i) {
    Word word{};
    std::memcpy(&word, bytes + i * static_cast<std::int64_t>(sizeof word), sizeof word);
    return word;
  };
  for (std::int64_t begin = 0; begin < elements; begin += kStretch) {
    const std::int64_t end = std::min(elements, begin + kStretch);
    bool any = false;
    for (std::int64_t i = begin; i < end; ++i) any |= is_nan(word_at(i));
    for (std::int64_t i = begin; any && i < end; ++i) {
      if (is_nan(word_at(i))) return i;
    }
  }
  return -1;
}

/// In the host's memory.
std::int64_t first_nan(DType dtype, const void* data, std::int64_t elements) {
  switch (dtype) {
  case DType::float32:
    return first_nan<float>(data, elements, [](float x) { return std::isnan(x); });
  case DType::float64:
    return first_nan<double>(data, elements, [](double x) { return std::isnan(x); });
  case DType::float16:
    return first_nan<std::uint16_t>(data, elements, [](std::uint16_t bits) { return (bits & 0x7fffU) > 0x7c00U; });
  case DType::bfloat16:
    return first_nan<std::uint16_t>(data, elements, [](std::uint16_t bits) { return (bits & 0x7fffU) > 0x7f80U; });
  default:
    return -1;
  }
}

std::int64_t first_nan_on_device(data::DeviceBackend& device, const ConstTensorView& input,
                                 Span<const Stream> streams) {
  const std::size_t size = size_of(input.dtype());
  std::int64_t before = 0;
  std::int64_t first = -1;
  device.read(input.device(), streams, static_cast<const std::byte*>(input.data()),
              static_cast<std::size_t>(input.bytes()), [&](const std::byte* data, std::size_t bytes) {
                const auto elements = static_cast<std::int64_t>(bytes / size);
                first = first_nan(input.dtype(), data, elements);
                if (first >= 0) first += before;
                before += elements;
                return first < 0;
              });
  return first;
}

}  // namespace

void refuse_nan(const engine::Engine& engine, const Subject& subject, const ConstTensorView& input,
                Span<const Stream> streams) {
  if (!core::traits_of(subject.kind).reduces || !is_floating_point(input.dtype())) return;
  const std::int64_t first = input.device().kind == DeviceKind::cpu
                                 ? first_nan(input.dtype(), input.data(), input.elements())
                                 : first_nan_on_device(*engine.device(), input, streams);
  if (first < 0) return;
  refuse(subject, "element " + std::to_string(first) + " of " + std::to_string(input.elements()) + " is NaN on rank " +
                      std::to_string(engine.topology().rank) + " in step " + std::to_string(engine.steps() + 1) +
                      " (KOLO_CHECK_NAN); it was not submitted");
}

void refuse_nan(const engine::Engine& engine, const Subject& subject, const ConstTensorView& input) {
  const std::optional<Stream> stream = input.stream();
  refuse_nan(engine, subject, input, stream ? Span<const Stream>(&*stream, 1) : Span<const Stream>());
}

void refuse_nan(const engine::Engine& engine, std::string_view name, const detail::CallParts& call) {
  if (call.calls) {
    for (const Call& one : *call.calls) refuse_nan(engine, name, parts_of(one));
  } else if (call.members) {
    for (const NamedView& member : *call.members) refuse_nan(engine, {call.kind, member.name}, member.view);
  } else if (core::traits_of(call.kind).reduces) {
    refuse_nan(engine, {call.kind, name}, input_of(call));
  }
}

}  // namespace kolo::api
