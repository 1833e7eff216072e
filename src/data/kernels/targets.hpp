// SPDX-License-Identifier: Apache-2.0
//
// Which instruction sets the kernels are compiled for. Each costs compile time and code, so only AVX-512, AVX2 and the
// baseline of the build (for x86-64 in general Highway's portable fallback). Scalable vectors (SVE, RVV) are left out
// because the kernels hold vectors in structs; those machines run NEON or the fallback. Included before any header of
// Highway's.
#ifndef KOLO_KERNELS_TARGETS_HPP
#define KOLO_KERNELS_TARGETS_HPP

// Under sanitizers AVX2 and the baseline are enough: the source is one, and checked code compiles slowly.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KOLO_TARGETS_LEFT_OUT HWY_AVX3
#else
#define KOLO_TARGETS_LEFT_OUT 0
#endif

#define HWY_DISABLED_TARGETS                                                                                           \
  (KOLO_TARGETS_LEFT_OUT | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 |      \
   HWY_RVV)

#endif  // KOLO_KERNELS_TARGETS_HPP
