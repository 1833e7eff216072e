// SPDX-License-Identifier: Apache-2.0
//
// Which instruction sets the kernels are compiled for. Each costs compile time and code, so only those that differ in
// speed: AVX-512, AVX2, SSE4, and Highway's portable fallback. Scalable vectors (SVE, RVV) are left out because the
// kernels hold vectors in structs; those machines run NEON or the fallback. Included before any header of Highway's.
#ifndef KOLO_KERNELS_TARGETS_HPP
#define KOLO_KERNELS_TARGETS_HPP

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#endif  // KOLO_KERNELS_TARGETS_HPP
