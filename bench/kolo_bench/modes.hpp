// SPDX-License-Identifier: Apache-2.0
//
// What kolo-bench measures, mode by mode. All collective; results go into the report.
#pragma once

#include "flags.hpp"
#include "measure.hpp"
#include "report.hpp"

namespace kolo_bench {

/// One collective from size to size, for every dtype and operation asked for.
void run_collective(Bench& bench, Report& report);
/// The gradients of a model, step by step.
void run_step(Bench& bench, Report& report);
/// The same while the backward pass computes.
void run_overlap(Bench& bench, Report& report);
/// From submission to completion of one small tensor, the engine idle before.
void run_latency(Bench& bench, Report& report);
/// What a rank's memory grows by when it joins and runs steps. Joins and leaves by itself, MPI being up: `job` is
/// MPI's own.
void run_memory(Bench& bench, Report& report);

}  // namespace kolo_bench
