// SPDX-License-Identifier: Apache-2.0
//
// Runs batches of the log on the backends: lays the members out (`data/layout.hpp`), points the pieces at the callers'
// memory, and returns the members when the backend has finished. A batch with tensors of both the CPU and a device
// becomes two, each of one kind; where its tensors lie is part of a signature, so all ranks cut it in the same way.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "control/messages.hpp"
#include "data/backend.hpp"
#include "data/device.hpp"
#include "data/layout.hpp"
#include "engine/operation.hpp"
#include "engine/tally.hpp"
#include "recorder/recorder.hpp"

namespace kolo::engine {

/// The absent ranks of a batch to which not all ranks of the set contribute.
struct Absence {
  std::size_t uncounted = 0;  ///< ranks that averages are not over
  bool is_own = false;        ///< this rank is one that contributes nothing: its members are neutral (sets.hpp)
};

/// A batch under way. Reused, so that a steady step allocates nothing.
struct Batch {
  data::Job job;                      ///< its set is the batch's
  std::vector<OperationPtr> members;  ///< null: it was handed back before the batch's end
  Status status;
  // Where rows differ by rank each member has an outcome and an end of its own; else these are empty.
  std::vector<std::uint32_t> member_of;  ///< by run
  std::vector<std::uint32_t> runs_open;  ///< by member: those that are not over
  std::vector<Status> outcomes;          ///< by member, of its runs that are over
  [[nodiscard]] const Status& outcome_of(std::size_t member) const {
    return status.ok() && !outcomes.empty() ? outcomes[member] : status;
  }
  bool on_device = false;
  Absence absence;
  bool ends_set = false;     ///< no batch: what the set has on the device is given back
  std::uint32_t serial = 0;  ///< its number among the set's batches, the same on all ranks; from 1
  std::uint8_t routes = 0;   ///< recorder::BatchRoutes, once it is over
  base::Time begun{};
  /// The other part of a batch of both kinds, while it is open.
  Batch* sibling = nullptr;
};

/// Each process set has a backend of the CPU for itself, so that sets do not wait for each other; the device's is for
/// all of them. One thread at a time (the engine's driver).
class Executor {
 public:
  /// `world`: the world's backend. `device`: null where there is none; outlives the executor.
  Executor(std::unique_ptr<data::Backend> world, data::DeviceBackend* device, std::int64_t world_size);

  /// The set exists from now on.
  void add_set(core::SetId set, std::unique_ptr<data::Backend> backend, std::int64_t size);
  /// It has no open batches, and gets none any more. What it has on the device is given back like a batch there.
  void remove_set(core::SetId set);
  /// How a batch runs. `plan_key`, `number` and `last` as in control::RunBatch: the same key, the same layout (0: laid
  /// out for this once).
  struct How {
    std::uint32_t plan_key = 0;
    std::uint32_t number = 0;
    std::int32_t last = -1;
    std::optional<Absence> absence = {};  ///< none: all ranks of the set contribute
  };
  /// Starts a batch of these members.
  void run(core::SetId set, std::vector<OperationPtr> members, const How& how);
  /// Batches are recorded there from now on, and counted here; both outlive the executor.
  void record_to(recorder::Recorder& recorder, Tally& tally) noexcept {
    recorder_ = &recorder;
    tally_ = &tally;
  }
  /// A batch is over: counts how long it took, and its bytes by route, and notes the routes.
  void count(Batch& batch);
  /// Called with every part of a batch when it starts, how it is laid out, its plan_key, and the backend that runs it.
  /// Empty: nobody.
  using Started = std::function<void(const Batch&, const data::Layout&, std::uint32_t plan_key, data::Backend&)>;
  void set_started(Started started) { started_ = std::move(started); }
  /// Hears that all work of an operation has been given to the device, and behind which event its result is complete;
  /// of one that has failed by then, as where a result has no space, nothing is said before its end. Set before any
  /// batch of a device.
  using Enqueued = std::function<void(Operation&, const data::DeviceEventPtr&)>;
  void set_enqueued(Enqueued enqueued) { enqueued_ = std::move(enqueued); }
  void drop_plan(std::uint32_t plan_key) { plans_.erase(plan_key); }

  /// Moves the backends. Finished batches are handed to `finish` in order, as Batch&, and may be reused after. A member
  /// that is over before its batch goes to `finish_member`, with its outcome. Says what the CPU's backend did, unless
  /// something advanced elsewhere.
  template <class FinishMember, class Finish>
  data::Progress progress(FinishMember finish_member, Finish finish) {
    data::Progress result = move_busy();
    if (open_on_device_ > 0) {
      if (move(*device_, open_on_device_) == data::Progress::advanced) result = data::Progress::advanced;
      ring_for_waiters();
    }
    if (ready_.empty() && over_.empty()) return result;
    for (const Over& one : over_) finish_member(*one.member, one.outcome);
    over_.clear();
    for (Batch* batch : ready_) {
      if (!batch->ends_set) finish(*batch);
      recycle(*batch);
    }
    ready_.clear();
    return data::Progress::advanced;
  }

  /// Batches that backends of the CPU have.
  [[nodiscard]] std::uint64_t open() const noexcept { return open_; }
  /// Batches that the device's backend has. Any thread may ask.
  [[nodiscard]] std::uint64_t open_on_device() const noexcept { return open_on_device_; }
  /// Whether it is worth looking at the device's backend again at once.
  [[nodiscard]] bool expects_soon() const noexcept { return open_on_device_ > 0 && device_->expects_soon(); }
  [[nodiscard]] bool has_ready() const noexcept { return !ready_.empty(); }
  /// Adds what open batches wait for.
  void account(control::Answer& answer) const;
  /// Ends all work of the CPU's backends, and of the device's, which may take long: nothing touches callers' memory
  /// there after this returns. Any thread, while no other call but the counts above is made; `forget` must follow the
  /// two.
  void abort_on_cpu() noexcept;
  void abort_on_device() noexcept;
  /// Forgets all batches. Their members are held until `drop`.
  void forget() noexcept;
  void drop() noexcept;

 private:
  /// The pipeline of a set's batches on the CPU.
  struct Pipeline {
    std::unique_ptr<data::Backend> backend;
    std::int64_t size = 1;  ///< ranks of the set
    std::uint64_t open = 0;
    std::uint32_t begun = 0;  ///< batches
  };

  [[nodiscard]] Pipeline& pipeline_of(core::SetId set) { return set == core::kGlobalSet ? world_ : sets_.at(set); }
  data::Progress move_busy();
  const data::Layout& layout_for(const Batch& batch, std::uint32_t plan_key, std::uint32_t number, data::Layout& once);
  void fill(Batch& batch, const data::Layout& layout);
  void record_begun(Batch& batch, const How& how);
  Batch& run_part(core::SetId set, std::vector<OperationPtr> members, bool on_device, const How& how,
                  std::uint32_t serial);
  template <class Count>
  data::Progress move(data::Backend& backend, Count& open) {
    finished_.clear();
    const data::Progress result = backend.progress(finished_);
    for (data::Job* job : finished_) {
      auto& batch = *static_cast<Batch*>(job->cookie);
      batch.status = std::move(job->status);
      note_outcomes(batch);
      if (batch.on_device) std::erase(unheard_, &batch);
      ready_.push_back(&batch);
      --open;
    }
    return result;
  }
  void ring_for_waiters();
  static void note_outcomes(Batch& batch);
  void note_over(Batch& batch, std::size_t run);
  Batch& take();
  void recycle(Batch& batch);

  std::unordered_map<core::SetId, Pipeline> sets_;  // their addresses are stable
  Pipeline& world_;
  data::DeviceBackend* const device_;
  recorder::Recorder* recorder_ = nullptr;
  Tally* tally_ = nullptr;
  Started started_;
  Enqueued enqueued_;
  std::vector<Pipeline*> busy_;                       // with open batches
  std::uint64_t open_ = 0;                            // batches of theirs
  using PartNumber = std::pair<std::uint32_t, bool>;  // a batch's number in its plan; whether on the device
  std::unordered_map<std::uint32_t, std::map<PartNumber, data::Layout>> plans_;  // by key
  std::vector<std::unique_ptr<Batch>> batches_;
  std::vector<Batch*> free_;
  std::vector<Batch*> ready_;  // need no backend, or it has finished them
  struct Over {
    OperationPtr member;
    Status outcome;
  };
  std::vector<Over> over_;  // members that are over before their batch
  std::vector<data::Job*> finished_;
  std::vector<Batch*> unheard_;  // all their work is with the device, which nobody asked to ring at the end
  std::atomic<std::uint64_t> open_on_device_{0};
};

}  // namespace kolo::engine
