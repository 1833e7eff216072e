// SPDX-License-Identifier: Apache-2.0
//
// Rounding for memory layouts.
#pragma once

#include <cstddef>

namespace kolo::base {

inline constexpr std::size_t kPageBytes = 4096;

/// The least multiple of `to` that is not below `value`.
constexpr std::size_t round_up(std::size_t value, std::size_t to) noexcept { return (value + to - 1) / to * to; }

}  // namespace kolo::base
