// SPDX-License-Identifier: Apache-2.0
//
// The gradients of a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace kolo::cuda::test {

/// The elements of ResNet-50's 161 parameters, in the order in which backward produces their gradients: the last first.
inline std::vector<std::int64_t> resnet50() {
  std::vector<std::int64_t> sizes{64 * 3 * 7 * 7, 64, 64};
  std::int64_t inputs = 64;
  const std::int64_t blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = std::int64_t{64} << stage;
    for (std::int64_t block = 0; block < blocks[stage]; ++block) {
      for (const auto& [weights, outputs] : {std::pair(inputs * width, width), std::pair(width * width * 9, width),
                                             std::pair(width * width * 4, width * 4)}) {
        sizes.insert(sizes.end(), {weights, outputs, outputs});
      }
      if (block == 0) sizes.insert(sizes.end(), {inputs * width * 4, width * 4, width * 4});
      inputs = width * 4;
    }
  }
  sizes.insert(sizes.end(), {2048 * 1000, 1000});
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace kolo::cuda::test
