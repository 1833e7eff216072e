// SPDX-License-Identifier: Apache-2.0
//
// What the library asks of element types beyond the public header.
#pragma once

#include <kolo/types.hpp>

namespace kolo::core {

/// What a caller or another rank gives as an element type is compared with this one: any number may come.
inline constexpr DType kLastDType = static_cast<DType>(kDTypeCount - 1);

}  // namespace kolo::core
