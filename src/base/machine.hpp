// SPDX-License-Identifier: Apache-2.0
//
// What C++ does not offer of the machine: cache lines, pages, pauses in waiting loops, order between processes.
#pragma once

#include <atomic>
#include <cstddef>

namespace kolo::base {

/// Bytes of a cache line: 64 on x86-64. Kolo's own constant, because the standard's depends on compiler flags.
inline constexpr std::size_t kCacheLine = 64;

/// Fetches the lines of [begin, begin + bytes) for reading. A hint, which may point anywhere.
inline void fetch_lines(const void* begin, std::size_t bytes) noexcept {
  const auto* const first = static_cast<const char*>(begin);
#if defined(__x86_64__)
  // Not __builtin_prefetch: GCC considers a function that does nothing else to have no effect, and removes the call.
  for (std::size_t at = 0; at < bytes; at += kCacheLine) asm volatile("prefetcht0 %0" : : "m"(first[at]));
#else
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(first + at);
#endif
}

/// Fetches the lines of [begin, begin + bytes) for writing, and takes them from other cores that have read them. A
/// hint, which may point anywhere.
inline void claim_lines(const void* begin, std::size_t bytes) noexcept {
  const auto* const first = static_cast<const char*>(begin);
#if defined(__x86_64__)
  // Not __builtin_prefetch: compilers turn it into a prefetch for reading unless they know that the processor has this
  // one.
  for (std::size_t at = 0; at < bytes; at += kCacheLine) asm volatile("prefetchw %0" : : "m"(first[at]));
#else
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(first + at, 1);
#endif
}

inline constexpr std::size_t kPageBytes = 4096;
/// The least multiple of `to` that is not below `value`.
constexpr std::size_t round_up(std::size_t value, std::size_t to) noexcept { return (value + to - 1) / to * to; }

/// Tells the processor that this is a waiting loop.
inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

/// std::atomic_thread_fence, for order between processes. GCC rejects it under the thread sanitizer, which does not
/// support fences. That build only looks for races between threads of one process, so a compiler barrier is enough
/// there.
inline void process_fence(std::memory_order order) noexcept {
#if defined(__SANITIZE_THREAD__)
  std::atomic_signal_fence(order);
#else
  std::atomic_thread_fence(order);
#endif
}

/// A memory barrier that one thread makes all others execute, also in other processes (membarrier(2)). The side that
/// runs often then needs no barrier of its own. This makes the process take part. False: the system does not support
/// it. Any thread, any number of times.
[[nodiscard]] bool join_process_barriers() noexcept;

/// Every thread of a process that takes part executes a full barrier between the beginning of this call and its end:
/// whatever it stored before is seen by this thread afterwards, and whatever it loads later sees what this thread had
/// stored before. Costs a few microseconds, and an interrupt for each CPU that runs such a thread. This process must
/// take part. False: it failed, because the kernel had no memory.
[[nodiscard]] bool process_barrier() noexcept;

}  // namespace kolo::base
