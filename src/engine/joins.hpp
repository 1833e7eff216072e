// SPDX-License-Identifier: Apache-2.0
//
// The open joins of this rank, at most one for each set, and its stand-ins meanwhile: operations whose inputs are
// neutral elements, in memory of their own. On a device they need no memory, because the backend fills in neutral
// elements (data::Job). One thread at a time (the engine's driver).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "control/participant.hpp"
#include "core/signature.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

class Joins {
 public:
  struct Open {
    control::SlotId slot = 0;
    OperationPtr operation;
  };

  [[nodiscard]] bool any() const noexcept { return !open_.empty(); }
  void add(core::SetId set, control::SlotId slot, OperationPtr&& operation) {
    Open& open = open_[set];  // first: the caller keeps the operation if there is no memory
    open = {slot, std::move(operation)};
  }
  /// Null: there is none.
  [[nodiscard]] const Open* find(core::SetId set) const {
    const auto found = open_.find(set);
    return found == open_.end() ? nullptr : &found->second;
  }
  /// Its end. Memory that no batch uses is given back.
  [[nodiscard]] OperationPtr take(core::SetId set) {
    OperationPtr operation = std::move(open_.at(set).operation);
    open_.erase(set);
    if (open_.empty()) memory_.clear();
    return operation;
  }

  /// What this rank takes part with in a batch of these signatures, in which it is absent. `rank` of `size` is its
  /// place in the set.
  [[nodiscard]] std::vector<OperationPtr>
  stand_ins(const std::vector<std::shared_ptr<const core::Signature>>& signatures, int rank, int size);

 private:
  /// Of one batch, until its operations have gone.
  struct Memory {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  [[nodiscard]] std::shared_ptr<Memory> take_memory(std::size_t bytes);

  std::map<core::SetId, Open> open_;
  std::vector<std::shared_ptr<Memory>> memory_;  ///< that was used, for the next batches
};

}  // namespace kolo::engine
