// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor_routes.hpp"

#include <cstddef>

#include "base/quote.hpp"
#include "core/collectives.hpp"
#include "engine/name_table.hpp"

namespace kolo::engine {
namespace {

/// `"w"`, `"w" of the group "gradients"`, `an unnamed tensor`.
std::string name_of_tensor(const Operation& operation, std::size_t tensor) {
  const core::Signature& signature = *operation.signature;
  const bool is_unnamed = operation.entry->sequence != nullptr;
  std::string whole = is_unnamed ? "an unnamed tensor" : base::quoted(operation.entry->name);
  if (signature.members == 0 || signature.names.size() != signature.tensors.size()) return whole;
  return base::quoted(signature.names[tensor]) + " of the group " + (is_unnamed ? "without a name" : whole);
}

}  // namespace

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
                        " bytes: " + backend.placement(batch.job, run, run.pieces[k]));
    }
  }
  return records;
}

}  // namespace kolo::engine
