// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kolo::base {

/// Bytes of a cache line: 64 on x86-64; a constant of ours, because the standard's depends on compiler flags.
inline constexpr std::size_t kCacheLine = 64;

}  // namespace kolo::base
