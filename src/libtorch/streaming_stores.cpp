// SPDX-License-Identifier: Apache-2.0
#include "libtorch/streaming_stores.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <ATen/Parallel.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

/// More than most caches have room for beside a backward pass, with what peers' gradients take of a shared one.
constexpr std::size_t kCached = 32U << 20;
/// Smaller tensors are not worth the care at their ends.
constexpr std::size_t kSmall = 16U << 10;

#ifdef __SSE2__
constexpr std::size_t kLine = 64;

// What lies before the first whole line, and what behind the last, is for an ordinary store.
template <class Whole, class Rest>
void by_lines(std::byte* to, std::size_t bytes, const Whole& whole, const Rest& rest) {
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  const std::size_t end = head + (bytes - head) / kLine * kLine;
  rest(0, head);
  for (std::size_t at = head; at < end; at += kLine) {
    whole(at);
  }
  rest(end, bytes - end);
  _mm_sfence();  // before a peer hears that it is there
}

// `bytes` is more than a line.
void stream_zeros(std::byte* to, std::size_t bytes) {
  const auto whole = [to](std::size_t at) {
    auto* line = reinterpret_cast<__m128i*>(to + at);
    const __m128i zero = _mm_setzero_si128();
    _mm_stream_si128(line, zero);
    _mm_stream_si128(line + 1, zero);
    _mm_stream_si128(line + 2, zero);
    _mm_stream_si128(line + 3, zero);
  };
  by_lines(to, bytes, whole, [to](std::size_t at, std::size_t count) { std::memset(to + at, 0, count); });
}

void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto whole = [to, from](std::size_t at) {
    auto* line = reinterpret_cast<__m128i*>(to + at);
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  };
  by_lines(to, bytes, whole, [to, from](std::size_t at, std::size_t count) { std::memcpy(to + at, from + at, count); });
}
#else
void stream_zeros(std::byte* to, std::size_t bytes) { std::memset(to, 0, bytes); }
void stream(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

// Where LibTorch has several threads it divides the pass among them, which is worth more.
bool is_for_one_thread(const at::Tensor& to) { return to.nbytes() >= kSmall && at::get_num_threads() == 1; }

// Whether both have the same elements at the same places.
bool is_plain_copy(const at::Tensor& to, const at::Tensor& from) {
  return from.is_cpu() && from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() &&
         from.strides() == to.strides() && !from.is_neg() && !from.is_conj();
}

std::byte* memory_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

}  // namespace

bool exceeds_cache(std::size_t bytes) noexcept { return bytes > kCached; }

void zero_past_cache(const at::Tensor& to) {
  if (!is_for_one_thread(to)) {
    to.zero_();
    return;
  }
  stream_zeros(memory_of(to), to.nbytes());
  mark_changed(to);
}

void copy_past_cache(const at::Tensor& to, const at::Tensor& from) {
  if (!is_for_one_thread(to) || !is_plain_copy(to, from)) {
    to.copy_(from);
    return;
  }
  stream(memory_of(to), memory_of(from), to.nbytes());
  mark_changed(to);
}

}  // namespace kolo::libtorch
