// SPDX-License-Identifier: Apache-2.0
//
// Access to the operation behind a handle.
#pragma once

#include <kolo/handle.hpp>

namespace kolo::detail {

struct HandleAccess {
  /// Throws Error (invalid_argument) for an empty handle.
  static HandleState& state(const Handle& handle) { return handle.state(); }
};

}  // namespace kolo::detail
