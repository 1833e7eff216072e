// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/instruction_set.hpp"

#include "data/kernels/targets.hpp"

#include <hwy/targets.h>

namespace kolo::kernels {

const char* instruction_set() noexcept {
  const auto supported = static_cast<std::uint64_t>(hwy::SupportedTargets() & HWY_TARGETS);
  // Better sets have lower bits.
  return hwy::TargetName(static_cast<std::int64_t>(supported & (~supported + 1)));
}

}  // namespace kolo::kernels
