// SPDX-License-Identifier: Apache-2.0
//
// Which portions a collective is made of on a device: one function a kind.
#pragma once

#include "data/backend.hpp"
#include "data/cuda/portions.hpp"

namespace kolo::cuda {

/// Adds the run's portions. `uneven`: as PortionPlanner::add has it.
void plan(PortionPlanner& portions, const data::Run& run, const Uneven* uneven);

}  // namespace kolo::cuda
