// SPDX-License-Identifier: Apache-2.0
//
// What an engine says in its log of a job in good health: plans (info), batches and the routes of their parts (debug),
// single requests (trace). Sentences only; nothing here is called unless the level asks for it.
#pragma once

#include <string>

#include "control/messages.hpp"
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

}  // namespace kolo::engine
