// SPDX-License-Identifier: Apache-2.0
#include "c10d/origin.hpp"

#include <atomic>

#include <pthread.h>

namespace kolo::c10d {

std::uint32_t Origin::forks() noexcept {
  static std::atomic<std::uint32_t> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });
  static_cast<void>(registered);
  return count.load(std::memory_order_relaxed);
}

}  // namespace kolo::c10d
