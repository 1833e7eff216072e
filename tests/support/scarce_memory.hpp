// SPDX-License-Identifier: Apache-2.0
//
// An allocation of this thread that fails. To be included by one file of a program: it replaces the program's `new`.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace kolo::testing {

/// The allocation of this thread, counted from 1, that fails; 0: none.
inline thread_local int failing_allocation = 0;

/// While it lives. One at a time on a thread.
class ScarceMemory {
 public:
  /// The n-th allocation fails, from 1 on.
  explicit ScarceMemory(int n) { failing_allocation = n; }
  ~ScarceMemory() { failing_allocation = 0; }
  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;
  [[nodiscard]] static bool has_failed() noexcept { return failing_allocation == 0; }
};

}  // namespace kolo::testing

// Not inlined: GCC takes what it sees of them for `malloc` freed by `delete` and the other way round.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  int& left = kolo::testing::failing_allocation;
  if (left > 0 && --left == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
// A sanitizer has one of its own for this, too, which would not fit the `delete` below.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (...) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
