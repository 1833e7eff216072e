// SPDX-License-Identifier: Apache-2.0
//
// What a rank has of a set's sequence of unnamed asynchronous calls (control/messages.hpp): their operations, of which
// many are in flight, and those of earlier calls, which serve again.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "control/messages.hpp"
#include "engine/name_table.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

/// The calls of one sequence that have been found together, which the participant is told of together.
struct FoundCalls {
  core::SetId set = core::kGlobalSet;
  const Operation* first = nullptr;  ///< open; null: there are none
  core::Round made = 0;              ///< calls before them
  std::uint64_t count = 0;
  /// Whether a call of this one's set and signature is one more of the same.
  [[nodiscard]] bool is_one_more(const Operation& operation) const noexcept {
    return first != nullptr && first->entry == operation.entry && first->signature == operation.signature;
  }
};

class Sequence {
 public:
  Sequence(core::SetId set, NameTable& names) : entry_(set, names) {
    entry_.name = control::kSequence;
    entry_.hash = base::hash_string(entry_.name);
    entry_.known = entry_.is_sequence = true;
  }

  // -- any thread
  /// The operation of a call that is over, with that call's signature and what else it had; or a new one, without. They
  /// come back in the order of the calls, so a program that repeats its calls meets the signature of each again. It
  /// must be submitted. Never waits: while another thread is in here it makes a new one.
  [[nodiscard]] OperationPtr take();
  /// What the engine gets of such an operation. What the sequence keeps lives until it is done, and longer: the engine
  /// need not own it as well, and that saves each call two atomic steps.
  [[nodiscard]] static OperationPtr lend(const OperationPtr& operation) noexcept {
    return operation->is_kept ? OperationPtr(OperationPtr(), operation.get()) : operation;
  }

  /// Of its name, the same on all ranks.
  [[nodiscard]] std::uint64_t hash() const noexcept { return entry_.hash; }

  // -- the driver
  /// The next call that the log has not run or failed.
  [[nodiscard]] const OperationPtr& front() const noexcept { return waiting_.front(); }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  void push(OperationPtr&& operation) {
    operation->is_waiting = true;
    waiting_.push_back(std::move(operation));
  }
  [[nodiscard]] OperationPtr pop() noexcept {
    OperationPtr operation = std::move(waiting_.front());
    waiting_.pop_front();
    operation->is_waiting = false;
    return operation;
  }
  /// Those whose numbers are greater than this, in their order.
  [[nodiscard]] std::vector<OperationPtr> pop_behind(core::Round last);
  /// All of them have been completed.
  void clear() noexcept { waiting_.clear(); }

 private:
  /// So many operations are kept.
  static constexpr std::size_t kMostKept = 4096;

  [[nodiscard]] OperationPtr make();
  [[nodiscard]] OperationPtr take_kept() KOLO_REQUIRES(mutex_);

  Entry entry_;  ///< of all calls
  base::TryMutex mutex_;
  std::vector<OperationPtr> kept_ KOLO_GUARDED_BY(mutex_);
  std::size_t oldest_ KOLO_GUARDED_BY(mutex_) = 0;  ///< of these
  std::deque<OperationPtr> waiting_;
};

}  // namespace kolo::engine
