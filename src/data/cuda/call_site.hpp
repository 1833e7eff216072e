// SPDX-License-Identifier: Apache-2.0
//
// Where a call is made. Calls that only order work on a device (waits, records, queries) carry it, so that a test can
// leave out each of them in turn and see that something notices.
#pragma once

namespace kolo::cuda {

/// (std::source_location is not there in every compiler that this library is built with.)
struct CallSite {
  const char* file = "";
  int line = 0;
  /// As a default argument: the place of the call that leaves the argument out.
  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

}  // namespace kolo::cuda
