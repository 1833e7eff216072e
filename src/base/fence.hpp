// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace kolo::base {

/// std::atomic_thread_fence, for order between processes. The thread sanitizer, which does not know fences, sees one
/// process: what it is built for needs the compiler's order alone.
inline void process_fence(std::memory_order order) noexcept {
#if defined(__SANITIZE_THREAD__)
  std::atomic_signal_fence(order);
#else
  std::atomic_thread_fence(order);
#endif
}

}  // namespace kolo::base
