// SPDX-License-Identifier: Apache-2.0
//
// What slots and messages hold of elements: the elements themselves, or an encoding that takes fewer bytes.
//
// Encoded elements are reduced as they are; nobody decodes in between. The sum of several ranks is encoded again, which
// rounds it once; between nodes it travels as partial sums, which are not.
//
// A *granule* of encoded elements is a cache line. Ranks share an array at granules, so that no two of them write the
// same line.
#pragma once

#include <cstddef>
#include <cstdint>

#include <kolo/types.hpp>

#include "core/element_types.hpp"
#include "data/kernels/copy.hpp"
#include "data/kernels/reduction.hpp"

namespace kolo::data::cpu {

/// Of elements of one type, `memory`, that go as they are or as narrower floats. In every `Reduction` the dtype is
/// `memory`; where the format is not plain, encoding multiplies by prescale, and reducing does not.
class WireFormat {
 public:
  WireFormat() noexcept : WireFormat(DType::float32) {}
  /// `wire`: one as which this type goes (core::wire_of).
  explicit WireFormat(DType memory, core::Wire wire = core::Wire::own) noexcept;

  [[nodiscard]] DType memory() const noexcept { return memory_; }
  /// Elements are held as they are, so that they can as well be reduced where they lie.
  [[nodiscard]] bool is_plain() const noexcept { return memory_ == wire_; }
  /// The type of partial sums.
  [[nodiscard]] DType sums() const noexcept { return sums_; }

  [[nodiscard]] std::size_t bytes(std::int64_t elements) const noexcept {
    return static_cast<std::size_t>(elements * width_);
  }
  /// The most elements that so many bytes hold.
  [[nodiscard]] std::int64_t elements_in(std::size_t bytes) const noexcept {
    return static_cast<std::int64_t>(bytes) / width_;
  }
  [[nodiscard]] std::int64_t granule() const noexcept { return granule_; }

  /// What is held as it is comes there by `copy`.
  void encode(const std::byte* elements, std::int64_t count, double prescale, std::byte* wire,
              kernels::PeerCopy copy) const;
  /// `past_cache`: by stores that do not bring the elements into the cache first, where the format can.
  void decode(const std::byte* wire, std::int64_t count, std::byte* elements, bool past_cache) const;

  /// As kernels::reduce_to_all, from encoded elements to encoded elements.
  void reduce(const kernels::Reduction& reduction, const void* const* inputs, int n, void* const* outputs, int copies,
              std::int64_t count) const;
  /// As kernels::reduce_partial, from encoded elements to partial sums.
  void reduce_partial(const kernels::Reduction& reduction, const void* const* inputs, int n, void* sums,
                      std::int64_t count) const;
  /// As kernels::finish, from partial sums to encoded elements.
  void finish(const kernels::Reduction& reduction, const void* sums, void* wire, std::int64_t count) const;

 private:
  [[nodiscard]] kernels::Reduction on_wire(const kernels::Reduction& reduction) const noexcept;

  DType memory_;
  DType wire_;
  DType sums_;
  std::int64_t width_;    // of an encoded element, in bytes
  std::int64_t granule_;  // in elements
};

/// Calls visit(format) for every format there is.
template <class Visit>
void for_each_wire_format(Visit&& visit) {
  for (int type = 0; type < kDTypeCount; ++type) {
    for (const core::WireTraits& traits : core::kWires) {
      const auto memory = static_cast<DType>(type);
      if (core::wire_of(memory, traits.wire) == traits.wire) visit(WireFormat(memory, traits.wire));
    }
  }
}

}  // namespace kolo::data::cpu
