// SPDX-License-Identifier: Apache-2.0
//
// The body of the pack and unpack kernels: what one thread of one block does. nvcc compiles it for devices
// (device/device.cu); the host's compiler compiles the same lines, called once for every block and thread, for the
// emulated device of the tests. Source for C++17 and both compilers: no library but the fixed-width types.
//
// Blocks take chunks in turns. Within a chunk neighbouring threads take neighbouring words of the widest power of two
// up to 16 bytes that the caller's pointer allows; kUnroll words a thread are loaded before the first is stored, so
// that enough loads are in flight to fill the memory's pipe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "data/cuda/move.hpp"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define KOLO_DEVICE __device__ __forceinline__
#else
#include "base/half.hpp"
#define KOLO_DEVICE inline
#endif

namespace kolo::cuda::kernels {

inline constexpr std::uint32_t kThreads = 256;
inline constexpr std::uint32_t kUnroll = 4;

/// Which thread of the launch this is.
struct Place {
  std::uint32_t block;
  std::uint32_t blocks;
  std::uint32_t thread;
};

struct alignas(16) Word16 {
  std::uint32_t parts[4];
};

// ---------------------------------------------------------------- numbers

#ifdef __CUDACC__
struct Half {
  static KOLO_DEVICE float widen(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  static KOLO_DEVICE std::uint16_t narrow(float value) { return __half_as_ushort(__float2half_rn(value)); }
};
struct BFloat {
  static KOLO_DEVICE float widen(std::uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
  static KOLO_DEVICE std::uint16_t narrow(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
};
#else
struct Half {
  static float widen(std::uint16_t bits) { return base::to_float(Float16{bits}); }
  static std::uint16_t narrow(float value) { return base::to_float16(value).bits; }
};
struct BFloat {
  static float widen(std::uint16_t bits) { return base::to_float(BFloat16{bits}); }
  static std::uint16_t narrow(float value) { return base::to_bfloat16(value).bits; }
};
#endif

/// What a 16-bit number is rounded from: to nearest by way of it is to nearest from the value itself. The CPU's kernels
/// do the same (data/kernels/cast.cpp, "round to odd").
KOLO_DEVICE float before_narrowing(float value) { return value; }
KOLO_DEVICE float before_narrowing(double value) {
  float single = static_cast<float>(value);
  const double back = single;
  if (!(back < value || back > value)) return single;  // exact, or no number
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &single, sizeof bits);
  if (value < 0 ? back < value : back > value) --bits;  // toward zero
  bits |= 1U;
  __builtin_memcpy(&single, &bits, sizeof single);
  return single;
}

struct Plain {
  template <class Word>
  KOLO_DEVICE Word operator()(Word word) const {
    return word;
  }
};

/// Elements of type T (as stored), each replaced by `Change`'s answer, in words of any width.
template <class T, class Change>
struct EachElement {
  Change change;
  template <class Word>
  KOLO_DEVICE Word operator()(Word word) const {
    // Neither is a pointer. NOLINTNEXTLINE(bugprone-sizeof-expression)
    constexpr int kElements = static_cast<int>(sizeof(Word) / sizeof(T));
    static_assert(kElements >= 1, "a word narrower than an element");
    T elements[kElements];
    // Copied byte by byte in the language, in registers by the compiler.
    __builtin_memcpy(elements, &word, sizeof word);
    for (int i = 0; i < kElements; ++i) elements[i] = change(elements[i]);
    __builtin_memcpy(&word, elements, sizeof word);
    return word;
  }
};

struct Truth {
  KOLO_DEVICE std::uint8_t operator()(std::uint8_t value) const { return value != 0 ? 1 : 0; }
};
/// Divided, then multiplied, each rounded: the CPU's kernels do the same, so that averages have the same bits.
struct Scale {
  double divisor;
  double factor;
};
template <class T>
struct ScaleNumber {
  T divisor;
  T factor;
  KOLO_DEVICE explicit ScaleNumber(const Scale& scale)
      : divisor(static_cast<T>(scale.divisor)), factor(static_cast<T>(scale.factor)) {}
  KOLO_DEVICE T operator()(T value) const { return value / divisor * factor; }
};
template <class Short>
struct ScaleShort {
  ScaleNumber<float> scale;
  KOLO_DEVICE std::uint16_t operator()(std::uint16_t bits) const { return Short::narrow(scale(Short::widen(bits))); }
};
KOLO_DEVICE bool is_one(const Scale& scale) { return scale.divisor == 1.0 && scale.factor == 1.0; }

// ---------------------------------------------------------------- from one type to another

/// Neighbouring elements, as one word.
template <class T, std::uint32_t kElements>
struct alignas(sizeof(T) * kElements) Few {
  T elements[kElements];
};

/// T to 16 bits: scaled as T, then rounded.
template <class T, class Short, class Scaled>
struct Narrow {
  Scaled scaled;
  template <std::uint32_t kElements>
  KOLO_DEVICE Few<std::uint16_t, kElements> operator()(const Few<T, kElements>& word) const {
    Few<std::uint16_t, kElements> result;
    for (std::uint32_t i = 0; i < kElements; ++i) {
      result.elements[i] = Short::narrow(before_narrowing(scaled(word.elements[i])));
    }
    return result;
  }
};
/// 16 bits to T: scaled and rounded as 16 bits, then widened.
template <class T, class Short, class Scaled>
struct Widen {
  Scaled scaled;
  template <std::uint32_t kElements>
  KOLO_DEVICE Few<T, kElements> operator()(const Few<std::uint16_t, kElements>& word) const {
    Few<T, kElements> result;
    for (std::uint32_t i = 0; i < kElements; ++i) {
      result.elements[i] = static_cast<T>(Short::widen(scaled(word.elements[i])));
    }
    return result;
  }
};

// ---------------------------------------------------------------- one chunk

template <class From, class To, class Change>
KOLO_DEVICE void move_words(const std::byte* from, std::byte* to, std::uint32_t words, std::uint32_t thread,
                            const Change& change) {
  const From* source = reinterpret_cast<const From*>(from);
  To* target = reinterpret_cast<To*>(to);
  std::uint32_t at = thread;
  for (; at + (kUnroll - 1) * kThreads < words; at += kUnroll * kThreads) {
    From loaded[kUnroll];
    for (std::uint32_t i = 0; i < kUnroll; ++i) loaded[i] = source[at + i * kThreads];
    for (std::uint32_t i = 0; i < kUnroll; ++i) target[at + i * kThreads] = change(loaded[i]);
  }
  for (; at < words; at += kThreads) target[at] = change(source[at]);
}

/// Whole words, then the rest element by element.
template <class Word, class Smallest, class Change>
KOLO_DEVICE void move_by(const std::byte* from, std::byte* to, std::uint32_t bytes, std::uint32_t thread,
                         const Change& change) {
  const std::uint32_t words = bytes / static_cast<std::uint32_t>(sizeof(Word));
  move_words<Word, Word>(from, to, words, thread, change);
  const std::uint32_t done = words * static_cast<std::uint32_t>(sizeof(Word));
  move_words<Smallest, Smallest>(from + done, to + done, (bytes - done) / static_cast<std::uint32_t>(sizeof(Smallest)),
                                 thread, change);
}

/// `Smallest` is the element, to which both addresses are aligned.
template <class Smallest, class Change>
KOLO_DEVICE void move_bytes(const std::byte* from, std::byte* to, std::uint32_t bytes, std::uint32_t thread,
                            const Change& change) {
  const auto both = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  if (both % 16 == 0) {
    move_by<Word16, Smallest>(from, to, bytes, thread, change);
    return;
  }
  if constexpr (sizeof(Smallest) < 4) {
    if (both % 4 == 0) {
      move_by<std::uint32_t, Smallest>(from, to, bytes, thread, change);
      return;
    }
  }
  if constexpr (sizeof(Smallest) < 2) {
    if (both % 2 == 0) {
      move_by<std::uint16_t, Smallest>(from, to, bytes, thread, change);
      return;
    }
  }
  move_by<Smallest, Smallest>(from, to, bytes, thread, change);
}

/// As many elements of one type as of the other, in words of 16 bytes of the wider where both addresses allow it.
template <class From, class To, class Change>
KOLO_DEVICE void cast_elements(const std::byte* from, std::byte* to, std::uint32_t elements, std::uint32_t thread,
                               const Change& change) {
  constexpr std::uint32_t kElements = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  std::uint32_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(from) % (sizeof(From) * kElements) == 0 &&
      reinterpret_cast<std::uintptr_t>(to) % (sizeof(To) * kElements) == 0) {
    move_words<Few<From, kElements>, Few<To, kElements>>(from, to, elements / kElements, thread, change);
    done = elements / kElements * kElements;
  }
  move_words<Few<From, 1>, Few<To, 1>>(from + done * sizeof(From), to + done * sizeof(To), elements - done, thread,
                                       change);
}

template <class T, class Short>
KOLO_DEVICE void cast_chunk_of(const Chunk& chunk, const std::byte* from, std::byte* to, const Scale& scale,
                               bool to_buffer, std::uint32_t thread) {
  const auto elements = static_cast<std::uint32_t>(chunk.bytes / sizeof(T));
  if (to_buffer && is_one(scale)) {
    cast_elements<T, std::uint16_t>(from, to, elements, thread, Narrow<T, Short, Plain>{{}});
  } else if (to_buffer) {
    cast_elements<T, std::uint16_t>(from, to, elements, thread,
                                    Narrow<T, Short, ScaleNumber<T>>{ScaleNumber<T>(scale)});
  } else if (is_one(scale)) {
    cast_elements<std::uint16_t, T>(from, to, elements, thread, Widen<T, Short, Plain>{{}});
  } else {
    cast_elements<std::uint16_t, T>(from, to, elements, thread,
                                    Widen<T, Short, ScaleShort<Short>>{{ScaleNumber<float>(scale)}});
  }
}

template <class T>
KOLO_DEVICE void cast_chunk(const Chunk& chunk, const std::byte* from, std::byte* to, const Scale& scale,
                            bool to_buffer, std::uint32_t thread) {
  if (chunk.in_buffer == Element::float16) {
    cast_chunk_of<T, Half>(chunk, from, to, scale, to_buffer, thread);
  } else {
    cast_chunk_of<T, BFloat>(chunk, from, to, scale, to_buffer, thread);
  }
}

KOLO_DEVICE void move_chunk(const Chunk& chunk, const std::byte* from, std::byte* to, const Scale& scale,
                            bool to_buffer, std::uint32_t thread) {
  if (chunk.in_buffer != chunk.element) {
    if (chunk.element == Element::float32) {
      cast_chunk<float>(chunk, from, to, scale, to_buffer, thread);
    } else {
      cast_chunk<double>(chunk, from, to, scale, to_buffer, thread);
    }
  } else if (chunk.element == Element::boolean) {
    move_bytes<std::uint8_t>(from, to, chunk.bytes, thread, EachElement<std::uint8_t, Truth>{{}});
  } else if (is_one(scale) || chunk.element == Element::plain) {
    if (from != to) move_bytes<std::uint8_t>(from, to, chunk.bytes, thread, Plain{});
  } else if (chunk.element == Element::float16) {
    move_bytes<std::uint16_t>(from, to, chunk.bytes, thread,
                              EachElement<std::uint16_t, ScaleShort<Half>>{{ScaleNumber<float>(scale)}});
  } else if (chunk.element == Element::bfloat16) {
    move_bytes<std::uint16_t>(from, to, chunk.bytes, thread,
                              EachElement<std::uint16_t, ScaleShort<BFloat>>{{ScaleNumber<float>(scale)}});
  } else if (chunk.element == Element::float32) {
    move_bytes<float>(from, to, chunk.bytes, thread, EachElement<float, ScaleNumber<float>>{ScaleNumber<float>(scale)});
  } else {
    move_bytes<double>(from, to, chunk.bytes, thread,
                       EachElement<double, ScaleNumber<double>>{ScaleNumber<double>(scale)});
  }
  if (!to_buffer || !chunk.ends) return;
  const std::uint32_t end = chunk.bytes_in_buffer;
  const auto rest = static_cast<std::uint32_t>((kBufferAlignment - end % kBufferAlignment) % kBufferAlignment);
  if (thread < rest) to[end + thread] = std::byte{0};
}

/// Up to where the next tensor may begin.
KOLO_DEVICE void fill_chunk(const Chunk& chunk, std::byte* to, std::uint32_t thread) {
  std::uint64_t* target = reinterpret_cast<std::uint64_t*>(to);
  const auto bytes =
      static_cast<std::uint32_t>((chunk.bytes_in_buffer + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment);
  for (std::uint32_t at = thread; at < bytes / sizeof chunk.neutral; at += kThreads) target[at] = chunk.neutral;
}

// ---------------------------------------------------------------- the launch

KOLO_DEVICE void move(const Move& move, const Place& place) {
  const bool packs = move.direction == Direction::pack;
  for (std::uint32_t at = place.block; at < move.count; at += place.blocks) {
    const Chunk& chunk = move.chunks[at];
    if (packs ? !chunk.takes_part_in_pack : !chunk.takes_part_in_unpack) continue;
    if (packs && chunk.input == nullptr) {
      fill_chunk(chunk, move.buffer + chunk.offset, place.thread);
    } else if (packs) {
      move_chunk(chunk, chunk.input, move.buffer + chunk.offset, {1.0, chunk.prescale}, true, place.thread);
    } else {
      const std::byte* from = chunk.offset == kNoOffset ? chunk.output : move.buffer + chunk.offset;
      move_chunk(chunk, from, chunk.output, {chunk.divisor, chunk.postscale}, false, place.thread);
    }
  }
}

/// How many blocks a launch of so many chunks should have: enough to keep every processor busy with several, no more
/// than there are chunks.
inline std::uint32_t blocks_for(std::uint32_t chunks, int processors) noexcept {
  const std::uint32_t most = static_cast<std::uint32_t>(processors) * 8;
  return chunks < most ? chunks : most;
}

}  // namespace kolo::cuda::kernels
