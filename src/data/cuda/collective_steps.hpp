// SPDX-License-Identifier: Apache-2.0
//
// Which steps a collective is made of on a device: one function a kind.
#pragma once

#include "data/backend.hpp"
#include "data/cuda/steps.hpp"

namespace kolo::cuda {

/// Adds the run's steps. `uneven`: as StepPlanner::add has it.
void plan(StepPlanner& steps, const data::Run& run, const Uneven* uneven);

}  // namespace kolo::cuda
