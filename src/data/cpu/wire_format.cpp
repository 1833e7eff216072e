// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/wire_format.hpp"

#include <utility>

#include "base/check.hpp"

namespace kolo::data::cpu {

namespace {

constexpr std::int64_t kLine = 64;

constexpr int bits_of(std::int64_t power_of_two) noexcept {
  int bits = 0;
  while (power_of_two > std::int64_t{1} << bits) ++bits;
  return bits;
}

/// Elements of a fixed size, which kernels can reduce: what both formats have in common.
class Elements : public WireFormat {
 public:
  Elements(DType memory, DType wire) noexcept
      : WireFormat({memory, kernels::accumulator_of(wire), memory == wire,
                    bits_of(kLine / static_cast<std::int64_t>(size_of(wire))), kLine}),
        memory_(memory), wire_(wire), memory_width_(static_cast<std::int64_t>(size_of(memory))) {}

  void reduce(const kernels::Reduction& reduction, const void* const* inputs, int n, void* const* outputs, int copies,
              std::int64_t count) const final {
    kernels::reduce_to_all(on_wire(reduction), inputs, n, outputs, copies, count);
  }
  void reduce_partial(const kernels::Reduction& reduction, const void* const* inputs, int n, void* sums,
                      std::int64_t count) const final {
    kernels::reduce_partial(on_wire(reduction), inputs, n, sums, count);
  }
  void finish(const kernels::Reduction& reduction, const void* sums, void* wire, std::int64_t count) const final {
    kernels::finish(on_wire(reduction), sums, wire, count);
  }

 protected:
  const DType memory_;
  const DType wire_;
  const std::int64_t memory_width_;  // bytes of an element

 private:
  [[nodiscard]] kernels::Reduction on_wire(const kernels::Reduction& reduction) const noexcept {
    kernels::Reduction result = reduction;
    result.dtype = wire_;
    if (memory_ != wire_) result.scaling.prescale = 1;  // done by encode
    return result;
  }
};

class Plain final : public Elements {
 public:
  explicit Plain(DType dtype) noexcept : Elements(dtype, dtype) {}
  void encode(const std::byte* elements, std::int64_t count, double /*prescale*/, std::byte* wire,
              kernels::PeerCopy copy) const override {
    copy(wire, elements, count * memory_width_);
  }
  void decode(const std::byte* wire, std::int64_t count, std::byte* elements, bool past_cache) const override {
    const auto copy = past_cache ? &kernels::copy_past_cache : &kernels::copy_ahead;
    copy(elements, wire, count * memory_width_);
  }
};

/// Floats as narrower floats.
class Cast final : public Elements {
 public:
  using Elements::Elements;
  void encode(const std::byte* elements, std::int64_t count, double prescale, std::byte* wire,
              kernels::PeerCopy /*copy*/) const override {
    kernels::scale_and_cast(memory_, elements, wire_, wire, count, prescale);
  }
  void decode(const std::byte* wire, std::int64_t count, std::byte* elements, bool /*past_cache*/) const override {
    kernels::cast(wire_, wire, memory_, elements, count);
  }
};

template <std::size_t... Types>
const WireFormat& plain(DType dtype, std::index_sequence<Types...> /*types*/) noexcept {
  static const Plain formats[] = {Plain(static_cast<DType>(Types))...};
  return formats[static_cast<std::size_t>(dtype)];
}

}  // namespace

const WireFormat& wire_format(DType memory, core::Wire wire) noexcept {
  if (wire == core::Wire::own) return plain(memory, std::make_index_sequence<kDTypeCount>());
  static const Cast casts[] = {{DType::float32, DType::float16},
                               {DType::float32, DType::bfloat16},
                               {DType::float64, DType::float16},
                               {DType::float64, DType::bfloat16}};
  KOLO_CHECK(core::wire_of(memory, wire) == wire) << to_string(memory) << " as " << core::to_string(wire);
  return casts[(memory == DType::float64 ? 2 : 0) + (wire == core::Wire::bfloat16 ? 1 : 0)];
}

}  // namespace kolo::data::cpu
