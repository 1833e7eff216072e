// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/wire_format.hpp"

#include <memory>

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

std::unique_ptr<const WireFormat> make(DType memory, core::Wire wire) {
  if (wire == core::Wire::own) return std::make_unique<Plain>(memory);
  return std::make_unique<Cast>(memory, *core::traits_of(wire).type);
}

/// By type and wire format; null where a tensor of that type is not sent so.
struct Formats {
  std::unique_ptr<const WireFormat> all[kDTypeCount][core::kWireCount];
  Formats() {
    for (int type = 0; type < kDTypeCount; ++type) {
      for (const core::WireTraits& traits : core::kWires) {
        const auto memory = static_cast<DType>(type);
        if (core::wire_of(memory, traits.wire) == traits.wire)
          all[type][static_cast<std::size_t>(traits.wire)] = make(memory, traits.wire);
      }
    }
  }
};

/// Never destroyed: a context may be shut down at exit, after statics have been.
const Formats& formats() {
  static const Formats& instance = *new Formats;
  return instance;
}

}  // namespace

const WireFormat& wire_format(DType memory, core::Wire wire) noexcept {
  const auto& format = formats().all[static_cast<std::size_t>(memory)][static_cast<std::size_t>(wire)];
  KOLO_CHECK(format != nullptr) << to_string(memory) << " as " << core::to_string(wire);
  return *format;
}

}  // namespace kolo::data::cpu
