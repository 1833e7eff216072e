// SPDX-License-Identifier: Apache-2.0
//
// Where tensors are reduced, for people (KOLO_LOG_PLACEMENT): a sentence for each tensor, when it is in a batch for the
// first time. Unnamed calls are one tensor for each kind of collective; those that avoid the log are not seen here.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "data/layout.hpp"
#include "engine/executor.hpp"

namespace kolo::engine {

/// The driver's.
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
