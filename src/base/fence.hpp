// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace kolo::base {

/// std::atomic_thread_fence, for order between processes. GCC refuses that under the thread sanitizer, which does not
/// know fences. A program is built so to look for races between its own threads: there the compiler's order will do.
inline void process_fence(std::memory_order order) noexcept {
#if defined(__SANITIZE_THREAD__)
  std::atomic_signal_fence(order);
#else
  std::atomic_thread_fence(order);
#endif
}

}  // namespace kolo::base
