// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/wire_format.hpp"

#include "base/check.hpp"
#include "data/cpu/chunk.hpp"

namespace kolo::data::cpu {

WireFormat::WireFormat(DType memory, core::Wire wire) noexcept
    : memory_(memory), wire_(core::traits_of(wire).type.value_or(memory)), sums_(kernels::accumulator_of(wire_)),
      width_(static_cast<std::int64_t>(size_of(wire_))), granule_(line_of(size_of(wire_))) {
  KOLO_CHECK(core::wire_of(memory, wire) == wire) << to_string(memory) << " as " << core::to_string(wire);
}

void WireFormat::encode(const std::byte* elements, std::int64_t count, double prescale, std::byte* wire,
                        kernels::PeerCopy copy) const {
  if (is_plain()) return copy(wire, elements, count * width_);
  kernels::scale_and_cast(memory_, elements, wire_, wire, count, prescale);
}

void WireFormat::decode(const std::byte* wire, std::int64_t count, std::byte* elements, bool past_cache) const {
  if (!is_plain()) return kernels::cast(wire_, wire, memory_, elements, count);
  const auto copy = past_cache ? &kernels::copy_past_cache : &kernels::copy_ahead;
  copy(elements, wire, count * width_);
}

void WireFormat::reduce(const kernels::Reduction& reduction, const void* const* inputs, int n, void* const* outputs,
                        int copies, std::int64_t count) const {
  kernels::reduce_to_all(on_wire(reduction), inputs, n, outputs, copies, count);
}

void WireFormat::reduce_partial(const kernels::Reduction& reduction, const void* const* inputs, int n, void* sums,
                                std::int64_t count) const {
  kernels::reduce_partial(on_wire(reduction), inputs, n, sums, count);
}

void WireFormat::finish(const kernels::Reduction& reduction, const void* sums, void* wire, std::int64_t count) const {
  kernels::finish(on_wire(reduction), sums, wire, count);
}

kernels::Reduction WireFormat::on_wire(const kernels::Reduction& reduction) const noexcept {
  kernels::Reduction result = reduction;
  result.dtype = wire_;
  if (!is_plain()) result.scaling.prescale = 1;  // done by encode
  return result;
}

}  // namespace kolo::data::cpu
