// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace kolo::base {

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

}  // namespace kolo::base
