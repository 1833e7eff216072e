// SPDX-License-Identifier: Apache-2.0
//
// What slots and messages hold of elements: the elements themselves, or an encoding that takes fewer bytes.
//
// Encoded elements are reduced as they are; nobody decodes in between. The sum of several ranks is encoded again, which
// rounds it once; between nodes it travels as partial sums, which are not.
//
// An element need not take a fixed number of bytes. A format encodes a *granule* of elements at a time, and a granule
// is whole cache lines, so that no two ranks write the same line. An array of encoded elements can be entered at
// granules: element e, a multiple of the granule, lies at bytes(e). The casts and the plain format can be entered
// anywhere; one that cannot - a block of elements with a common scale, say - needs pieces that begin at a granule in
// the chunk.
#pragma once

#include <cstddef>
#include <cstdint>

#include <kolo/types.hpp>

#include "core/element_types.hpp"
#include "data/kernels/copy.hpp"
#include "data/kernels/reduction.hpp"

namespace kolo::data::cpu {

/// Of elements of one type, `memory`. Immutable; any thread. In every `Reduction` the dtype is `memory`; where the
/// format is not plain, encoding multiplies by prescale, and reducing does not. What is asked for each stretch of a
/// chunk is a number here; what works on elements is the format's own.
class WireFormat {
 public:
  virtual ~WireFormat() = default;

  [[nodiscard]] DType memory() const noexcept { return traits_.memory; }
  /// Elements are held as they are, so that they can as well be reduced where they lie.
  [[nodiscard]] bool is_plain() const noexcept { return traits_.plain; }
  /// The type of partial sums.
  [[nodiscard]] DType sums() const noexcept { return traits_.sums; }

  [[nodiscard]] std::size_t bytes(std::int64_t elements) const noexcept {
    const std::int64_t all_but_one = granule() - 1;
    return static_cast<std::size_t>((elements * traits_.granule_bytes + all_but_one) >> traits_.granule_bits);
  }
  /// The most elements that so many bytes hold.
  [[nodiscard]] std::int64_t elements_in(std::size_t bytes) const noexcept {
    return static_cast<std::int64_t>(bytes << traits_.granule_bits) / traits_.granule_bytes;
  }
  [[nodiscard]] std::int64_t granule() const noexcept { return std::int64_t{1} << traits_.granule_bits; }

  /// What is held as it is comes there by `copy`.
  virtual void encode(const std::byte* elements, std::int64_t count, double prescale, std::byte* wire,
                      kernels::PeerCopy copy) const = 0;
  /// `past_cache`: by stores that do not bring the elements into the cache first, where the format can.
  virtual void decode(const std::byte* wire, std::int64_t count, std::byte* elements, bool past_cache) const = 0;

  /// As kernels::reduce_to_all, from encoded elements to encoded elements.
  virtual void reduce(const kernels::Reduction& reduction, const void* const* inputs, int n, void* const* outputs,
                      int copies, std::int64_t count) const = 0;
  /// As kernels::reduce_partial, from encoded elements to partial sums.
  virtual void reduce_partial(const kernels::Reduction& reduction, const void* const* inputs, int n, void* sums,
                              std::int64_t count) const = 0;
  /// As kernels::finish, from partial sums to encoded elements.
  virtual void finish(const kernels::Reduction& reduction, const void* sums, void* wire, std::int64_t count) const = 0;

 protected:
  struct Traits {
    DType memory;
    DType sums;
    bool plain;
    int granule_bits;            ///< a granule is 2^granule_bits elements,
    std::int64_t granule_bytes;  ///< in so many bytes
  };
  explicit WireFormat(const Traits& traits) noexcept : traits_(traits) {}

 private:
  const Traits traits_;
};

/// For elements of a type that go as `wire` (see core::wire_of).
const WireFormat& wire_format(DType memory, core::Wire wire = core::Wire::own) noexcept;

/// Calls visit(format) for every format there is.
template <class Visit>
void for_each_wire_format(Visit&& visit) {
  for (int type = 0; type < kDTypeCount; ++type) {
    for (const core::WireTraits& traits : core::kWires) {
      const auto memory = static_cast<DType>(type);
      if (core::wire_of(memory, traits.wire) == traits.wire) visit(wire_format(memory, traits.wire));
    }
  }
}

}  // namespace kolo::data::cpu
