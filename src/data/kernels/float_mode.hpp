// SPDX-License-Identifier: Apache-2.0
//
// How a thread's floating-point unit rounds is the program's to choose, thread by thread: flush-to-zero, subnormal
// inputs as zeros, a direction of rounding, traps. Sums must not depend on who adds: ranks would get different bits.
#ifndef KOLO_KERNELS_FLOAT_MODE_HPP
#define KOLO_KERNELS_FLOAT_MODE_HPP

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace kolo::kernels {

/// While it lives its thread computes as IEEE 754 has it by default: rounding to nearest, subnormal numbers as they
/// are, no traps. Afterwards its control register is what it was, to the bit. Costs a few nanoseconds. The register is
/// written only where it must be: before where the modes differ, afterwards where anything does. On machines other than
/// x86-64 and AArch64 it does nothing.
class FloatMode {
 public:
  FloatMode() noexcept : before_(read()) {
    if ((before_ & kControl) != kDefault) write(kDefault);
  }
  ~FloatMode() {
    if (read() != before_) write(before_);
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)
  using Register = std::uint32_t;                // MXCSR
  static constexpr Register kDefault = 0x1f80U;  // all exceptions masked, none noted
  // Without what exceptions have been noted, which changes no result: most programs have rounded something before.
  static constexpr Register kControl = ~Register{0x3f};
  static Register read() noexcept { return _mm_getcsr(); }
  static void write(Register value) noexcept { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = std::uint64_t;  // FPCR
  static constexpr Register kDefault = 0;
  static constexpr Register kControl = ~Register{0};
  static Register read() noexcept {
    Register value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value)::"memory");
    return value;
  }
  static void write(Register value) noexcept { asm volatile("msr fpcr, %0" ::"r"(value) : "memory"); }
#else
  using Register = int;
  static constexpr Register kDefault = 0;
  static constexpr Register kControl = 0;
  static Register read() noexcept { return kDefault; }
  static void write(Register) noexcept {}
#endif

  const Register before_;
};

}  // namespace kolo::kernels

#endif  // KOLO_KERNELS_FLOAT_MODE_HPP
