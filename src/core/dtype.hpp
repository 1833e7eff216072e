// SPDX-License-Identifier: Apache-2.0
//
// Element types: what only the library itself needs.
#pragma once

#include <kolo/types.hpp>

namespace kolo::core {

/// A caller or another rank may give any number as an element type; it is checked against this one.
inline constexpr DType kLastDType = static_cast<DType>(kDTypeCount - 1);

}  // namespace kolo::core
