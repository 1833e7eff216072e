// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kolo::base {

/// Tells the processor that this is a waiting loop.
inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace kolo::base
