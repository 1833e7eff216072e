// SPDX-License-Identifier: Apache-2.0
//
// One submission, from the call until its handle is done. A `Handle` points to it.
//
// Life: a caller fills it in (open), the engine's mailbox and tables hold it, the driver completes it once (done).
// After that only the outcome may be looked at. A prepared request uses the same object again when nobody else holds
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <boost/container/small_vector.hpp>

#include <kolo/error.hpp>
#include <kolo/handle.hpp>
#include <kolo/types.hpp>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "core/signature.hpp"
#include "data/backend.hpp"

namespace kolo::p2p {

struct Message;
}

namespace kolo::engine {

class Engine;
class SetState;
struct Entry;

/// Where one tensor of a submission lies. In place: the same pointer twice.
struct Buffer {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t elements = 0;  ///< of the input
};
/// Of one submission. Most have one tensor.
using Buffers = boost::container::small_vector<Buffer, 1>;
/// Rows for each rank, one tensor's behind another's.
using Splits = boost::container::small_vector<std::int64_t, 4>;

}  // namespace kolo::engine

namespace kolo::detail {

/// What a call knows about an output before all ranks' sizes are known: the size of a row, and who owns the memory.
struct OutputPlan {
  Shape row;  ///< the shape without the first dimension
  std::int64_t row_bytes = 0;
  bool owns_result = false;          ///< it goes into `Output::result`; else into memory that the caller gave,
  std::int64_t output_elements = 0;  ///< which holds so much
  bool is_wanted = true;             ///< false: the result is for other ranks, and this one gets none
  int rank = 0;                      ///< this one, in the set
  std::int64_t input_at = -1;        ///< where in its output the input of a gather lies, in bytes; -1: elsewhere
};

/// Names the output's call in error messages: `gather of "x"`, `call 1 of "g"` (of several made as one), `this gather`
/// (unnamed).
struct OutputLabel {
  std::string_view name;
  std::optional<std::size_t> call;
};

/// The shape of so many rows.
Shape with_rows(std::int64_t rows, const Shape& row);

/// Where the result for one tensor goes.
struct Output : OutputPlan {
  Tensor result;                          ///< (of known size: made at the call)
  std::shared_ptr<engine::SetState> set;  ///< that was asked for
  int last = -1;                          ///< of a join: who joined last, as a rank of the set
  /// Of a gather to all or to a root: the output, given everybody's bytes; null where it is not wanted. `given` is the
  /// caller's memory. Throws Error, also where the input lies in the output, but not at its place.
  std::byte* of_gather(core::CollectiveKind kind, const std::vector<std::int64_t>& bytes, DType dtype, std::byte* given,
                       const OutputLabel& whose = {});
  /// Of an all-to-all: the output, given the rows from each rank. Of a rooted kind they come from the root alone.
  std::byte* of_alltoall(core::CollectiveKind kind, const std::vector<std::int64_t>& rows, DType dtype,
                         std::byte* given, const OutputLabel& whose = {});
  /// Memory of our own for the result of `what`. Throws Error (out_of_memory).
  std::byte* make_result(DType dtype, const Shape& shape, const std::string& what);
};

/// Where the results of an operation go, and how many rows ranks give each other. Written by the driver before
/// completion.
struct Outputs {
  Output first;
  std::vector<Output> others;  ///< of a group's other tensors
  /// Of alltoall and scatter: rows for each rank, and behind them, where those are known, the rows from each; one
  /// tensor's behind another's; empty: the same number for all.
  engine::Splits splits;
  std::vector<std::int64_t> received;  ///< rows from each rank, where there are splits
};

/// When an operation was submitted, and what has happened since because it waits (deadlines.hpp). The driver's.
struct Waiting {
  base::Time since{};  ///< the submission
  base::Time deadline{};
  bool warned = false;
  bool overdue = false;   ///< the deadline has passed
  bool reminded = false;  ///< the leader, of the deadline
};

struct Callbacks {
  std::vector<std::function<void(const Status&)>> done;
  std::vector<std::function<void(const Status&)>> enqueued;  ///< or done
};

/// Many small tensors are in flight at once, so an operation should touch few cache lines. Members that every
/// submission touches come first; one that succeeds touches nothing after `call`.
class HandleState {
 public:
  // -- constant from the submission to completion
  engine::Entry* entry = nullptr;
  /// Alive while this is open. Handles may outlive a context, and must not keep it alive.
  std::weak_ptr<engine::Engine> engine;
  std::shared_ptr<const core::Signature> signature;

 private:
  /// Most operations are neither slept on nor have callbacks: those bits keep completion to one atomic step.
  enum State : unsigned {
    kDone = 1,        ///< `outcome_` is written
    kFailed = 2,      ///< and is no success
    kAwaited = 4,     ///< somebody waits for it, or has asked
    kAttended = 8,    ///< a thread sleeps on it, or there are callbacks (see below, under the mutex)
    kReleased = 16,   ///< done, and its sleepers and callbacks have been served
    kGiven = 32,      ///< all its work has been given to the device
    kHostWaits = 64,  ///< a thread sleeps until it is done, or is to be called back then
  };
  std::atomic<unsigned> state_{0};

 public:
  // -- the driver's
  bool is_join = false;      ///< a join: constant
  bool fails_alone = false;  ///< a set to be made, whose deadline ends only that: constant
  bool is_own = false;       ///< the engine's own, of which no caller hears: constant
  bool is_waiting = false;   ///< of a call without a name: for the log
  std::size_t open_index = 0;
  Waiting waiting;

  // -- constant from the submission to completion
  engine::Buffers buffers;
  std::optional<std::chrono::nanoseconds> timeout;
  core::Round call = 0;  ///< of a call without a name: its number; 0: it is made during a join, and fails. Of a join:
                         ///< the number of the last call before it

  std::uint64_t name_hash = 0;  ///< of its entry's name, which may be another one later; 0: it has none

  /// The driver's: when an unanswered deadline is a fatal error here. Of an operation that is overdue.
  base::Time latch_at{};

  // -- constant from the submission to completion
  /// On a device: what the batch is held back behind.
  std::vector<data::DeviceEventPtr> ready;

  Outputs outputs;
  [[nodiscard]] Span<const std::int64_t> splits_of(std::size_t tensor) const noexcept;
  /// Rows from each rank; empty: not known.
  [[nodiscard]] Span<const std::int64_t> received_splits_of(std::size_t tensor) const noexcept;
  /// The output of a tensor where rows differ by rank, given what data::Run::allocate is given.
  std::byte* allocate_output(std::size_t tensor, const std::vector<std::int64_t>& parts);
  // -- point to point
  p2p::Message* message = nullptr;              ///< of such an operation, which has neither entry nor signature
  DeviceKind message_device = DeviceKind::cpu;  ///< where its tensor lies

  // -- any thread
  /// Of its inputs; constant. Not of a message.
  [[nodiscard]] std::int64_t bytes() const noexcept;
  /// Where its tensors lie; constant.
  [[nodiscard]] DeviceKind device() const noexcept {
    return message != nullptr || signature == nullptr ? message_device : signature->device;
  }
  [[nodiscard]] bool done() const noexcept { return (state_.load(std::memory_order_acquire) & kDone) != 0; }
  /// Done, and the driver will not touch it any more.
  [[nodiscard]] bool released() const noexcept { return (state_.load(std::memory_order_acquire) & kReleased) != 0; }
  [[nodiscard]] bool failed() const noexcept { return (state_.load(std::memory_order_acquire) & kFailed) != 0; }
  /// After `done`. `failed` is the quick way to ask for success.
  [[nodiscard]] const Status& outcome() const noexcept { return outcome_; }
  /// Says that somebody waits for this or asked about it: true the first time, while it is open.
  bool mark_awaited() noexcept;
  [[nodiscard]] bool is_awaited() const noexcept { return (state_.load(std::memory_order_acquire) & kAwaited) != 0; }
  /// All its work has been given to the device, or it is done.
  [[nodiscard]] bool is_given() const noexcept {
    return (state_.load(std::memory_order_acquire) & (kGiven | kDone)) != 0;
  }
  /// Says that a thread is about to sleep until this is done: true the first time, while it is open.
  bool note_host_waits() noexcept {
    return (state_.fetch_or(kHostWaits, std::memory_order_acq_rel) & (kHostWaits | kDone)) == 0;
  }
  /// Whether somebody on the host has to hear of its end at once.
  [[nodiscard]] bool host_waits() const noexcept { return (state_.load(std::memory_order_acquire) & kHostWaits) != 0; }
  /// Sleeps until done or until the time has come; whether it is done.
  bool sleep_until(std::optional<base::Time> until);
  /// Sleeps until all work has been given to the device, until done or until the time has come.
  void sleep_until_given(std::optional<base::Time> until);
  /// The event behind which the result is complete, once it has been given; null when done.
  [[nodiscard]] data::DeviceEventPtr given();
  /// Forgets who was late, before somebody asks again.
  void forget_late();
  /// Sleeps until `note_late`, until done or until the time has come. Returns what was noted.
  [[nodiscard]] std::vector<int> sleep_until_late(base::Time until);
  /// Registers a callback; false when the operation is done already (the caller then calls it).
  bool add_callback(std::function<void(const Status&)>& callback);
  /// The same for when all work has been given to the device, or it is done.
  bool add_callback_when_enqueued(std::function<void(const Status&)>& callback);

  /// The driver: all work has been given to the device. Returns the callbacks to run, without any lock held.
  std::vector<std::function<void(const Status&)>> set_enqueued(data::DeviceEventPtr event);
  /// The driver: the ranks of its set that had not submitted it, for who has asked.
  void note_late(std::vector<int> ranks);
  /// The driver: the outcome, once. Returns the callbacks to run, without any lock held; `was_awaited` says
  /// whether `mark_awaited` had returned true.
  std::vector<std::function<void(const Status&)>> complete(const Status& status, bool& was_awaited);
  /// The same of success where nobody has callbacks or sleeps, as most end: without a call. False: nothing was done.
  [[nodiscard]] bool complete_unattended(bool& was_awaited) noexcept {
    unsigned before = state_.load(std::memory_order_relaxed);
    do {
      if ((before & (kAttended | kDone)) != 0) return false;
    } while (!state_.compare_exchange_weak(before, before | kDone | kReleased, std::memory_order_acq_rel,
                                           std::memory_order_relaxed));
    was_awaited = (before & kAwaited) != 0;
    return true;
  }
  /// Makes a done operation ready for another submission. Nobody else holds it.
  void reset() noexcept;

 private:
  [[nodiscard]] bool knows_received_splits() const noexcept;
  template <class Ready>
  void sleep(std::optional<base::Time> until, Ready ready) KOLO_REQUIRES(mutex_);

  Status outcome_;  // written before kDone, constant afterwards
  base::Mutex mutex_;
  base::ConditionVariable changed_;
  int sleepers_ KOLO_GUARDED_BY(mutex_) = 0;
  data::DeviceEventPtr enqueued_ KOLO_GUARDED_BY(mutex_);
  Callbacks callbacks_ KOLO_GUARDED_BY(mutex_);
  std::optional<std::vector<int>> late_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo::detail

namespace kolo::engine {
using Operation = detail::HandleState;
using OperationPtr = std::shared_ptr<Operation>;

/// Makes the operation of an earlier call ready for another one, if nobody else holds it; whether it did. One that
/// failed is left alone: who held it last may have read its outcome, and the count of holders says nothing about when.
inline bool try_reuse(const OperationPtr& operation) noexcept {
  if (!operation || operation.use_count() != 1 || !operation->released() || operation->failed()) return false;
  operation->reset();
  return true;
}

/// What threads put into the engine's mailbox for the driver.
enum class Command : std::uint8_t {
  // -- starts of operations
  submit,
  make_set,
  join,
  join_counted,
  // -- others
  end_step,
  drop_set,
  ask,
  leave
};

struct Submission {
  Command command = Command::submit;
  OperationPtr operation;
  core::SetId set = core::kGlobalSet;

  [[nodiscard]] bool starts_operation() const noexcept { return command <= Command::join_counted; }
};

}  // namespace kolo::engine
