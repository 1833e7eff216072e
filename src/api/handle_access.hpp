// SPDX-License-Identifier: Apache-2.0
//
// From a handle to what it points to.
#pragma once

#include <kolo/handle.hpp>

namespace kolo::detail {

struct HandleAccess {
  /// Throws Error (invalid_argument) for an empty handle.
  static HandleState& state(const Handle& handle) { return handle.state(); }
};

}  // namespace kolo::detail
