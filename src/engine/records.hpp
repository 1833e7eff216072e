// SPDX-License-Identifier: Apache-2.0
//
// What an engine says in its log of a job in good health: plans (info), batches and the routes of their parts (debug),
// single requests (trace); and, with KOLO_LOG_PLACEMENT, where tensors are reduced. Nothing here is called unless that
// is asked for.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "control/messages.hpp"
#include "data/layout.hpp"
#include "engine/executor.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

/// "plan 2: 3 tensors in 1 batch".
std::string record_of(const control::PlanDefined& plan);
/// "plan 2 is no longer used: ...", and why.
std::string record_of(const control::PlanVoided& plan);
/// "batch of 3 tensors, plan 2: allreduce of 1200 float32 elements (flat)". `backend`: the one that runs it.
std::string record_of(const Batch& batch, std::uint32_t plan_key, const data::Backend& backend);
/// `allreduce of "x", 1 tensor of 400 bytes`.
std::string record_of(const Operation& operation);

/// Where tensors are reduced: a sentence for each tensor, when it is in a batch for the first time. Unnamed calls are
/// one tensor for each kind of collective; those that avoid the log are not seen here. The driver's.
class TensorRoutes {
 public:
  /// `allreduce of "w", 4096 bytes: on the CPU, through slots, because it lies in no arena`: of those of the batch that
  /// are new. `layout` is the batch's, `backend` the one that runs it.
  [[nodiscard]] std::vector<std::string> records_of(const Batch& batch, const data::Layout& layout,
                                                    data::Backend& backend);

 private:
  std::set<std::string> said_;  // of which tensors
};

}  // namespace kolo::engine
