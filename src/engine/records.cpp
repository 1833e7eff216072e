// SPDX-License-Identifier: Apache-2.0
#include "engine/records.hpp"

#include <array>
#include <cstddef>

#include <kolo/detail/names.hpp>

#include "base/check.hpp"
#include "base/quote.hpp"
#include "core/collectives.hpp"
#include "engine/name_table.hpp"

namespace kolo::engine {
namespace {

std::string count_of(std::size_t count, const std::string& what, const std::string& plural) {
  return std::to_string(count) + " " + (count == 1 ? what : plural);
}

/// By PlanEnd.
constexpr std::array<std::string_view, 7> kPlanEnds{"the last steps were others, and a new plan follows",
                                                    "a rank waits for a part of a batch, and lacks the rest",
                                                    "a tensor of it has another signature",
                                                    "ranks disagree about a tensor of it",
                                                    "there are more names than KOLO_CACHE_CAPACITY",
                                                    "a rank has left",
                                                    "a rank has joined"};
static_assert(kPlanEnds.size() == static_cast<std::size_t>(control::PlanEnd::joined) + 1, "one reason a way to end");

/// `"w"`, `"w" of the group "gradients"`, `an unnamed tensor`.
std::string name_of_tensor(const Operation& operation, std::size_t tensor) {
  const core::Signature& signature = *operation.signature;
  const bool is_unnamed = operation.entry->sequence != nullptr;
  std::string whole = is_unnamed ? "an unnamed tensor" : base::quoted(operation.entry->name);
  if (signature.members == 0 || signature.names.size() != signature.tensors.size()) return whole;
  return base::quoted(signature.names[tensor]) + " of the group " + (is_unnamed ? "without a name" : whole);
}

}  // namespace

std::string record_of(const control::PlanDefined& plan) {
  std::size_t tensors = 0;
  for (const std::vector<core::TensorId>& batch : plan.batches) tensors += batch.size();
  return "plan " + std::to_string(plan.plan) + ": " + count_of(tensors, "tensor", "tensors") + " in " +
         count_of(plan.batches.size(), "batch", "batches");
}

std::string record_of(const control::PlanVoided& plan) {
  return "plan " + std::to_string(plan.plan) +
         " is no longer used: " + std::string(kolo::detail::name_of(kPlanEnds, plan.why));
}

std::string record_of(const Batch& batch, std::uint32_t plan_key, const data::Backend& backend) {
  std::string text = "batch of " + count_of(batch.members.size(), "request", "requests");
  if (plan_key != 0) text += ", plan " + std::to_string(plan_key - 1);
  const char* separator = ": ";
  for (const data::Run& run : batch.job.runs) {
    text += separator + std::string(core::to_string(run.kind)) + " of " + std::to_string(run.elements) + " " +
            std::string(to_string(run.dtype)) + " elements";
    if (const data::RunRoute route = backend.route(run); route != data::RunRoute::device) {
      text += " (" + std::string(to_string(route)) + ")";
    }
    separator = ", ";
  }
  return text;
}

std::string record_of(const Operation& operation) {
  if (operation.is_join) return "join";
  const std::string kind(core::to_string(operation.signature->kind));
  const std::string& name = operation.entry->name;
  std::string text = operation.entry->sequence != nullptr ? "unnamed " + kind : kind + " of " + base::quoted(name);
  if (!operation.buffers.empty()) {
    text += ", " + count_of(operation.buffers.size(), "tensor", "tensors") + " of " +
            std::to_string(operation.bytes()) + " bytes";
  }
  return text;
}

std::vector<std::string> TensorRoutes::records_of(const Batch& batch, const data::Layout& layout,
                                                  data::Backend& backend) {
  std::vector<std::string> records;
  if (batch.absence.is_own) return records;  // it has no tensors there
  for (std::size_t i = 0; i < layout.runs.size(); ++i) {
    const data::Run& run = batch.job.runs[i];
    for (std::size_t k = 0; k < run.pieces.size(); ++k) {
      const data::Placed& placed = layout.runs[i].pieces[k];
      const std::string tensor = std::string(core::to_string(run.kind)) + " of " +
                                 name_of_tensor(*batch.members[placed.member], placed.tensor);
      if (!said_.insert(std::to_string(batch.job.set) + " " + tensor).second) continue;
      const std::size_t bytes = static_cast<std::size_t>(run.pieces[k].elements) * size_of(run.dtype);
      records.push_back(tensor + ", " + std::to_string(bytes) +
                        " bytes: " + backend.explain_route(batch.job, run, run.pieces[k]));
    }
  }
  return records;
}

}  // namespace kolo::engine
