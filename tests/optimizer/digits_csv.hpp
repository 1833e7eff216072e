// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace kolo::test {

/// The example's data, found from where this file is.
inline std::string digits_csv() {
  return (std::filesystem::path(__FILE__).parent_path() / "../../examples/data/digits.csv").lexically_normal().string();
}

}  // namespace kolo::test
