// SPDX-License-Identifier: Apache-2.0
//
// From a batch of the log to the backend and back: lays the members out (`fusion`), points the pieces at the callers'
// memory, and gives the members back when the backend has finished.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/backend.hpp"
#include "engine/operation.hpp"
#include "fusion/layout.hpp"

namespace kolo::engine {

/// A batch under way. Reused, so that a steady step allocates nothing.
struct Batch {
  core::Job job;
  std::vector<OperationPtr> members;
  Status status;
};

/// One thread at a time (the engine's driver).
class Executor {
 public:
  /// `set_size`: ranks of the global set. The backend outlives the executor.
  Executor(core::Backend& backend, std::int64_t set_size) : backend_(backend), set_size_(set_size) {}

  /// Starts a batch of these members. `plan_key` and `number` as in negotiation::RunBatch: the same key, the same
  /// layout (0: laid out for this once).
  void run(std::vector<OperationPtr> members, std::uint32_t plan_key, std::uint32_t number);
  void drop_plan(std::uint32_t plan_key) { plans_.erase(plan_key); }

  /// Moves the backend. Finished batches are handed to `finish` in order, as Batch&, and may be reused after.
  template <class Finish>
  core::Progress progress(bool in_call, Finish finish) {
    core::Progress result = core::Progress::idle;
    if (open_ > 0) {
      finished_.clear();
      result = backend_.progress(in_call, finished_);
      for (core::Job* job : finished_) {
        auto& batch = *static_cast<Batch*>(job->cookie);
        batch.status = std::move(job->status);
        ready_.push_back(&batch);
        --open_;
      }
    }
    if (ready_.empty()) return result;
    for (Batch* batch : ready_) {
      finish(*batch);
      recycle(*batch);
    }
    ready_.clear();
    return core::Progress::advanced;
  }

  /// Batches that the backend has.
  [[nodiscard]] std::uint64_t open() const noexcept { return open_; }
  [[nodiscard]] bool has_ready() const noexcept { return !ready_.empty(); }
  /// Forgets all batches: nothing touches callers' memory after this returns.
  void abort() noexcept;

 private:
  const fusion::Layout& layout_for(const Batch& batch, std::uint32_t plan_key, std::uint32_t number,
                                   fusion::Layout& once);
  void fill(Batch& batch, const fusion::Layout& layout);
  Batch& take();
  void recycle(Batch& batch);

  core::Backend& backend_;
  const std::int64_t set_size_;
  std::unordered_map<std::uint32_t, std::unordered_map<std::uint32_t, fusion::Layout>> plans_;  // key, then number
  std::vector<std::unique_ptr<Batch>> batches_;
  std::vector<Batch*> free_;
  std::vector<Batch*> ready_;  // need no backend, or it has finished them
  std::vector<core::Job*> finished_;
  std::uint64_t open_ = 0;
};

}  // namespace kolo::engine
