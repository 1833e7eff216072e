// SPDX-License-Identifier: Apache-2.0
//
// What kolo-bench measures, mode by mode. All collective; results go into the report.
#pragma once

#include "flags.hpp"
#include "job.hpp"
#include "report.hpp"

namespace kolo_bench {

/// One collective from size to size, for every dtype and operation asked for.
void run_collective(Job& job, const Flags& flags, Report& report);
/// The gradients of a model, step by step.
void run_step(Job& job, const Flags& flags, Report& report);
/// From submission to completion of one small tensor, the engine idle before.
void run_latency(Job& job, const Flags& flags, Report& report);

}  // namespace kolo_bench
