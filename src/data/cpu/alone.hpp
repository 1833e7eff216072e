// SPDX-License-Identifier: Apache-2.0
//
// A set of one rank: collectives without anybody to meet.
#pragma once

#include "data/backend.hpp"

namespace kolo::data::cpu {

/// Runs the job from inputs to outputs, and sets its runs' statuses. Takes as long as the memory does.
void run_alone(data::Job& job);

}  // namespace kolo::data::cpu
