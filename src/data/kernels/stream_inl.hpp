// SPDX-License-Identifier: Apache-2.0
//
// The one loop of this module. It knows four things by their types:
//   a format  how elements lie in memory and become lanes: load(), store(). The unit of loading and storing is a Pair
//             of vectors, so that 16-bit elements fill whole vectors of 32-bit lanes, in whatever order suits the
//             format;
//   an op     combines two vectors;
//   a scale   what happens to a vector after loading (on_load) and before storing (on_store).
// Every element takes the same instructions wherever it lies: the last, incomplete unit is copied to and from a buffer
// on the stack and computed like all others. A scalar loop for the tail would be simpler, but a second implementation
// of every rounding step.
//
// Compiled once for each instruction set, hence the unusual guard.
#if defined(KOLO_KERNELS_STREAM_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef KOLO_KERNELS_STREAM_INL_HPP
#undef KOLO_KERNELS_STREAM_INL_HPP
#else
#define KOLO_KERNELS_STREAM_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "data/kernels/stream.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class Lane>
using Tag = hn::ScalableTag<Lane>;
template <class Lane>
using Vector = hn::Vec<Tag<Lane>>;
template <class Lane>
constexpr std::size_t kLanes = hn::MaxLanes(Tag<Lane>());

template <class LaneType>
struct Pair {
  using Lane = LaneType;
  Vector<Lane> first;
  Vector<Lane> second;
};

/// Elements that are lanes as they lie. `kElement` is the size of an element where a lane holds several.
template <class LaneType, std::size_t kElement = sizeof(LaneType)>
struct Whole {
  using Lane = LaneType;
  static constexpr std::size_t kElementBytes = kElement;
  static constexpr std::size_t kUnitBytes = 2 * kLanes<Lane> * sizeof(Lane);

  static HWY_INLINE Pair<Lane> load(const std::uint8_t* memory) {
    const auto* lanes = reinterpret_cast<const Lane*>(memory);
    return {hn::LoadU(Tag<Lane>(), lanes), hn::LoadU(Tag<Lane>(), lanes + kLanes<Lane>)};
  }
  static HWY_INLINE void store(const Pair<Lane>& pair, std::uint8_t* memory) {
    auto* lanes = reinterpret_cast<Lane*>(memory);
    hn::StoreU(pair.first, Tag<Lane>(), lanes);
    hn::StoreU(pair.second, Tag<Lane>(), lanes + kLanes<Lane>);
  }
};

struct Sum {
  static HWY_INLINE auto apply(auto a, auto b) { return hn::Add(a, b); }
};

struct Product {
  static HWY_INLINE auto apply(auto a, auto b) { return hn::Mul(a, b); }
};

struct NoScale {
  HWY_INLINE auto on_load(auto v) const { return v; }
  HWY_INLINE auto on_store(auto v) const { return v; }
};

struct WholeUnit {
  template <class Format>
  HWY_INLINE Pair<typename Format::Lane> load(const std::uint8_t* memory) const {
    return Format::load(memory);
  }
  template <class Format>
  HWY_INLINE void store(const Pair<typename Format::Lane>& pair, std::uint8_t* memory) const {
    Format::store(pair, memory);
  }
};

/// The last unit, of fewer elements; the rest of it is zeros.
struct PartOfUnit {
  std::size_t elements;

  template <class Format>
  HWY_INLINE Pair<typename Format::Lane> load(const std::uint8_t* memory) const {
    alignas(64) std::uint8_t unit[Format::kUnitBytes] = {};
    std::memcpy(unit, memory, elements * Format::kElementBytes);
    return Format::load(unit);
  }
  template <class Format>
  HWY_INLINE void store(const Pair<typename Format::Lane>& pair, std::uint8_t* memory) const {
    alignas(64) std::uint8_t unit[Format::kUnitBytes];
    Format::store(pair, unit);
    std::memcpy(memory, unit, elements * Format::kElementBytes);
  }
};

/// A whole unit that is written past the cache, to memory aligned to a vector: by way of the stack, so that formats
/// need not know two ways of storing.
struct UnitPastCache {
  template <class Format>
  HWY_INLINE Pair<typename Format::Lane> load(const std::uint8_t* memory) const {
    return Format::load(memory);
  }
  template <class Format>
  HWY_INLINE void store(const Pair<typename Format::Lane>& pair, std::uint8_t* memory) const {
    const Tag<std::uint8_t> d;
    static_assert(Format::kUnitBytes % kLanes<std::uint8_t> == 0);
    alignas(64) std::uint8_t unit[Format::kUnitBytes];
    Format::store(pair, unit);
    for (std::size_t at = 0; at < Format::kUnitBytes; at += kLanes<std::uint8_t>)
      hn::Stream(hn::Load(d, unit + at), d, memory + at);
  }
};

template <class Op, class Scale, class Lane>
HWY_INLINE void accumulate(const Scale& scale, Pair<Lane>& sum, const Pair<Lane>& next) {
  sum.first = Op::apply(sum.first, scale.on_load(next.first));
  sum.second = Op::apply(sum.second, scale.on_load(next.second));
}

template <class Scale, class Lane>
HWY_INLINE Pair<Lane> loaded(const Scale& scale, const Pair<Lane>& pair) {
  return {scale.on_load(pair.first), scale.on_load(pair.second)};
}

template <class Scale, class Lane>
HWY_INLINE Pair<Lane> stored(const Scale& scale, const Pair<Lane>& pair) {
  return {scale.on_store(pair.first), scale.on_store(pair.second)};
}

/// Where results go: to every output.
struct OutputPointers {
  std::uint8_t* const* arrays;
  int n;

  template <class Format, class Unit>
  HWY_INLINE void store(const Unit& unit, const Pair<typename Format::Lane>& pair, std::size_t element) const {
    for (int o = 0; o < n; ++o) unit.template store<Format>(pair, arrays[o] + element * Format::kElementBytes);
  }
};

template <class In, class Out, class Op, class Scale, class Unit>
HWY_INLINE void reduce_unit(const Scale& scale, const Unit& unit, const std::uint8_t* const* inputs, int n,
                            const OutputPointers& outputs, std::size_t element) {
  const std::size_t at = element * In::kElementBytes;
  auto sum = loaded(scale, unit.template load<In>(inputs[0] + at));
  for (int r = 1; r < n; ++r) accumulate<Op>(scale, sum, unit.template load<In>(inputs[r] + at));
  outputs.store<Out>(unit, stored(scale, sum), element);
}

/// Two units at once: enough independent work to hide the latency of an addition, few enough for the registers.
template <class In, class Out, class Op, class Scale, class Unit>
HWY_INLINE void reduce_two_units(const Scale& scale, const Unit& unit, const std::uint8_t* const* inputs, int n,
                                 const OutputPointers& outputs, std::size_t element) {
  constexpr std::size_t kUnit = In::kUnitBytes / In::kElementBytes;
  const std::size_t at = element * In::kElementBytes;
  auto a = loaded(scale, In::load(inputs[0] + at));
  auto b = loaded(scale, In::load(inputs[0] + at + In::kUnitBytes));
  for (int r = 1; r < n; ++r) {
    const std::uint8_t* input = inputs[r] + at;
    accumulate<Op>(scale, a, In::load(input));
    accumulate<Op>(scale, b, In::load(input + In::kUnitBytes));
  }
  const Pair<typename Out::Lane> first = stored(scale, a);
  const Pair<typename Out::Lane> second = stored(scale, b);
  for (int o = 0; o < outputs.n; ++o) {
    unit.template store<Out>(first, outputs.arrays[o] + element * Out::kElementBytes);
    unit.template store<Out>(second, outputs.arrays[o] + (element + kUnit) * Out::kElementBytes);
  }
}

/// Whether one of two inputs is this core's own, and the other one another core's.
inline bool is_pair(const Stream& stream) { return stream.n == 2 && stream.copies == 1 && stream.own != kNoneIsOwn; }

/// Reduces two inputs to one output, from element `i` on, for as long as two units are left; returns how far. It asks
/// ahead for the lines of the other core's input, and keeps all pointers in registers. Where those lines come from
/// memory 1 MiB took 42 us so, and 57 by the loop for any number of inputs (Zen 5).
template <class In, class Out, class Op, class Scale, class Unit>
HWY_INLINE std::size_t reduce_pair(const Scale& scale, const Unit& unit, const Stream& stream, std::size_t i) {
  constexpr std::size_t kTwoUnits = 2 * In::kUnitBytes / In::kElementBytes;
  const auto* const arrays = reinterpret_cast<const std::uint8_t* const*>(stream.inputs);
  const std::uint8_t* const inputs[] = {arrays[0], arrays[1]};
  const std::uint8_t* const theirs = inputs[1 - stream.own] + kFetchAhead;
  std::uint8_t* const output[] = {static_cast<std::uint8_t*>(stream.outputs[0])};
  const auto count = static_cast<std::size_t>(stream.count);
  for (; i + kTwoUnits <= count; i += kTwoUnits) {
    base::fetch_lines(theirs + i * In::kElementBytes, 2 * In::kUnitBytes);
    reduce_two_units<In, Out, Op>(scale, unit, inputs, 2, OutputPointers{output, 1}, i);
  }
  return i;
}

/// Whole units of one output past the cache; returns how many elements, from the first on, have been reduced. None
/// where no element of the output begins at a multiple of a vector.
template <class In, class Out, class Op, class Scale>
HWY_INLINE std::size_t reduce_past_cache(const Scale& scale, const Stream& stream, const std::uint8_t* const* inputs,
                                         const OutputPointers& outputs, std::size_t count) {
  constexpr std::size_t kUnit = In::kUnitBytes / In::kElementBytes;
  constexpr std::size_t kVector = kLanes<std::uint8_t>;
  const std::size_t before = (kVector - reinterpret_cast<std::uintptr_t>(outputs.arrays[0]) % kVector) % kVector;
  if (before % Out::kElementBytes != 0 || count < 3 * kUnit) return 0;
  std::size_t i = before / Out::kElementBytes;
  if (i > 0) reduce_unit<In, Out, Op>(scale, PartOfUnit{i}, inputs, stream.n, outputs, 0);
  if (is_pair(stream)) i = reduce_pair<In, Out, Op>(scale, UnitPastCache{}, stream, i);
  for (; i + 2 * kUnit <= count; i += 2 * kUnit)
    reduce_two_units<In, Out, Op>(scale, UnitPastCache{}, inputs, stream.n, outputs, i);
  hwy::FlushStream();
  return i;
}

/// A loop for a known number of inputs is no faster where these are in a cache (measured for 2): the pointers, read
/// anew for each unit, are in L1.
template <class In, class Out, class Op, class Scale>
HWY_NOINLINE void run(const Scale& scale, const Stream& stream) {
  constexpr std::size_t kUnit = In::kUnitBytes / In::kElementBytes;
  static_assert(kUnit == Out::kUnitBytes / Out::kElementBytes);
  const auto* inputs = reinterpret_cast<const std::uint8_t* const*>(stream.inputs);
  const OutputPointers outputs{reinterpret_cast<std::uint8_t* const*>(stream.outputs), stream.copies};
  const auto count = static_cast<std::size_t>(stream.count);

  std::size_t i = 0;
  if (stream.past_cache) {
    i = reduce_past_cache<In, Out, Op>(scale, stream, inputs, outputs, count);
  } else if (is_pair(stream)) {
    i = reduce_pair<In, Out, Op>(scale, WholeUnit{}, stream, i);
  } else if (stream.copies == 2) {
    // A pair of ranks that each have a core: the peer's line is read and written here. (With more ranks the lines are
    // too many to be kept.)
    constexpr std::size_t kAhead = kClaimAhead / Out::kElementBytes;
    for (; i + kAhead + 2 * kUnit <= count; i += 2 * kUnit) {
      for (int o = 0; o < 2; ++o)
        base::claim_lines(outputs.arrays[o] + (i + kAhead) * Out::kElementBytes, 2 * Out::kUnitBytes);
      reduce_two_units<In, Out, Op>(scale, WholeUnit{}, inputs, stream.n, outputs, i);
    }
  }
  for (; i + 2 * kUnit <= count; i += 2 * kUnit)
    reduce_two_units<In, Out, Op>(scale, WholeUnit{}, inputs, stream.n, outputs, i);
  if (i + kUnit <= count) {
    reduce_unit<In, Out, Op>(scale, WholeUnit{}, inputs, stream.n, outputs, i);
    i += kUnit;
  }
  if (i < count) reduce_unit<In, Out, Op>(scale, PartOfUnit{count - i}, inputs, stream.n, outputs, i);
}

}  // namespace kolo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // guard of this instruction set
