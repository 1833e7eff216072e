// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace kolo::test {

/// The example's data. Its user is compiled with KOLO_SOURCE_DIR: __FILE__ may be relative to a folder of the build.
inline std::string digits_csv() { return KOLO_SOURCE_DIR "/examples/data/digits.csv"; }

}  // namespace kolo::test
