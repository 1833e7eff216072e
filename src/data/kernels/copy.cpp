// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/kernels/copy.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "data/kernels/copy.hpp"
#include "data/kernels/stream.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Returns what has been copied, a multiple of a block, and leaves the last kClaimAhead bytes: lines beyond the end are
/// somebody else's.
std::size_t copy_ahead_on_target(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  constexpr std::size_t kBlock = 256;
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t at = 0;
  for (; at + kClaimAhead + kBlock <= bytes; at += kBlock) {
    base::fetch_lines(from + at + kClaimAhead, kBlock);
    base::claim_lines(to + at + kClaimAhead, kBlock);
    for (std::size_t in = at; in < at + kBlock; in += 2 * lanes) {
      const auto a = hn::LoadU(d, from + in);
      const auto b = hn::LoadU(d, from + in + lanes);
      hn::StoreU(a, d, to + in);
      hn::StoreU(b, d, to + in + lanes);
    }
  }
  return at;
}

/// `to` is aligned to a vector; returns what has been copied, a multiple of four vectors.
std::size_t stream_on_target(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t at = 0;
  for (; at + 4 * lanes <= bytes; at += 4 * lanes) {
    const auto a = hn::LoadU(d, from + at);
    const auto b = hn::LoadU(d, from + at + lanes);
    const auto c = hn::LoadU(d, from + at + 2 * lanes);
    const auto e = hn::LoadU(d, from + at + 3 * lanes);
    hn::Stream(a, d, to + at);
    hn::Stream(b, d, to + at + lanes);
    hn::Stream(c, d, to + at + 2 * lanes);
    hn::Stream(e, d, to + at + 3 * lanes);
  }
  hwy::FlushStream();
  return at;
}

}  // namespace
}  // namespace kolo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::kernels {

HWY_EXPORT(copy_ahead_on_target);
HWY_EXPORT(stream_on_target);

void copy(void* destination, const void* source, std::int64_t bytes) {
  HWY_ASSERT(bytes >= 0);
  if (bytes > 0) std::memcpy(destination, source, static_cast<std::size_t>(bytes));
}

void copy_ahead(void* destination, const void* source, std::int64_t bytes) {
  HWY_ASSERT(bytes >= 0);
  if (bytes == 0) return;
  auto* to = static_cast<std::uint8_t*>(destination);
  const auto* from = static_cast<const std::uint8_t*>(source);
  const auto whole = static_cast<std::size_t>(bytes);
  const std::size_t end = HWY_DYNAMIC_DISPATCH(copy_ahead_on_target)(to, from, whole);
  std::memcpy(to + end, from + end, whole - end);
}

void copy_past_cache(void* destination, const void* source, std::int64_t bytes) {
  // Longer than any vector; where a destination begins amid a line, its first line is written the usual way.
  constexpr std::size_t kLine = 64;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(destination) % kLine) % kLine;
  if (bytes < static_cast<std::int64_t>(16 * kLine)) return copy(destination, source, bytes);
  auto* to = static_cast<std::uint8_t*>(destination);
  const auto* from = static_cast<const std::uint8_t*>(source);
  const auto whole = static_cast<std::size_t>(bytes);
  std::memcpy(to, from, head);
  const std::size_t end = head + HWY_DYNAMIC_DISPATCH(stream_on_target)(to + head, from + head, whole - head);
  std::memcpy(to + end, from + end, whole - end);
}

void PeerCopy::operator()(void* to, const void* from, std::int64_t bytes) const {
  if (bytes < static_cast<std::int64_t>(kLeastBytes)) return copy(to, from, bytes);
  return stores_ == Stores::through_cache ? copy_ahead(to, from, bytes) : copy_past_cache(to, from, bytes);
}

}  // namespace kolo::kernels
#endif
