// SPDX-License-Identifier: Apache-2.0
//
// This rank's calls without a name in one set (control/messages.hpp, "Sequences"): the order in which its threads make
// them, the operations of those that are in the log, and whether a call may avoid the log.
//
// A call takes the next number when it is given to the log, or when it has avoided the log. Until then it leaves no
// trace, so an exception in the caller's thread does no harm.
//
// An asynchronous call is given to the log at once. A blocking call *reserves* the next number: it waits for the
// blocking calls that came before, and has the number to itself until it has avoided the log (SetShortcut) or been
// given to it. Asynchronous calls that other threads make meanwhile stay behind it; the end of the reservation
// gives them to the log. A join holds a reservation from its beginning to its end; asynchronous calls fail meanwhile.
//
// The engine's mailbox takes calls in the order of their numbers, because they are pushed with the mutex held. A full
// mailbox refuses them, and the caller makes space without the mutex.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <boost/circular_buffer.hpp>

#include "base/mailbox.hpp"
#include "base/mutex.hpp"
#include "control/messages.hpp"
#include "control/shortcut.hpp"
#include "core/collectives.hpp"
#include "core/shortcut_memory.hpp"
#include "core/signature.hpp"
#include "data/small_calls.hpp"
#include "engine/name_table.hpp"
#include "engine/operation.hpp"
#include "engine/tally.hpp"

namespace kolo::engine {

/// The shortcut of one set, as this rank uses it: whether a call may avoid the log (control/shortcut.hpp), what it does
/// with its data (data/small_calls.hpp), and how many did.
class SetShortcut {
 public:
  /// Once, before any call. Without it all calls go by the log, and with it all up to the number `by_log`.
  void make(const core::ShortcutMemory& memory, std::unique_ptr<data::SmallCalls> data, core::Round by_log) {
    words_.emplace(memory);
    data_ = std::move(data);
    by_log_ = by_log;
  }

  // -- any thread
  /// From now on calls go by the log: one may be over that a member has not made, or never will make.
  void close() noexcept { open_.store(false, std::memory_order_release); }
  void open() noexcept { open_.store(true, std::memory_order_release); }
  /// Adds the calls that avoided the log, by kind.
  void add_counts(CountsByKind& to) const noexcept {
    for (std::size_t kind = 0; kind < to.size(); ++kind) {
      to[kind].calls += done_[kind].calls.load(std::memory_order_relaxed);
      to[kind].bytes += done_[kind].bytes.load(std::memory_order_relaxed);
    }
  }
  /// This rank has given the call to the log. In the order of the calls.
  void give(core::Round call) noexcept {
    if (words_) words_->give(call);
  }

  // -- the thread that holds the reservation (Sequence), once the call before is over
  [[nodiscard]] bool is_open_for(core::Round call) const noexcept {
    return words_ && call > by_log_ && open_.load(std::memory_order_acquire);
  }
  /// Tells the peers of a call. Null: it must go by the log, and nothing was told.
  [[nodiscard]] control::Shortcut* begin(core::Round number, const data::SmallCall& call) {
    words_->begin(number);
    if (!data_->lay_out(number, call)) return nullptr;
    words_->speak(control::Shortcut::tag_of(call.kind, call.dtype, call.shape, call.op, call.prescale, call.postscale,
                                            call.root));
    data_->expect_next();
    return &*words_;
  }
  /// Does the call that was begun last, once the verdict is `together`. Throws what `make_room` throws.
  void finish(const data::SmallCall& call) {
    data_->take(call);
    Count& done = done_[static_cast<std::size_t>(call.kind)];  // one writer at a time
    done.calls.store(done.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    done.bytes.store(done.bytes.load(std::memory_order_relaxed) + call.bytes(), std::memory_order_relaxed);
  }

 private:
  std::optional<control::Shortcut> words_;
  std::unique_ptr<data::SmallCalls> data_;
  core::Round by_log_ = 0;
  std::atomic<bool> open_{true};
  struct Count {
    std::atomic<std::uint64_t> calls{0}, bytes{0};
  };
  std::array<Count, core::kCollectiveCount> done_;
};

/// The calls of one sequence that have been found together, which the participant is told of together.
struct FoundCalls {
  core::SetId set = core::kGlobalSet;
  const Operation* first = nullptr;  ///< open; null: there are none
  core::Round number = 0;            ///< the first one's
  std::uint64_t count = 0;
  /// Whether a call follows these, in this set and with this signature.
  [[nodiscard]] bool is_one_more(const Operation& operation) const noexcept {
    return first != nullptr && first->entry == operation.entry && first->signature == operation.signature &&
           operation.call == number + count;
  }
};

class Sequence {
 public:
  using Calls = base::Mailbox<Submission>;
  /// A blocking call's.
  struct Reservation {
    core::Round call = 0;        ///< the number that it will have
    bool may_avoid_log = false;  ///< the call before is over
    bool has_spoken = false;     ///< the peers know of it
    bool has_avoided = false;    ///< it has avoided the log
    bool had_others = false;     ///< other threads' calls have been given to the log behind it
  };

  Sequence(core::SetId set, NameTable& names);

  SetShortcut shortcut;

  // -- any thread
  /// Of all calls; of its joins.
  [[nodiscard]] Entry& entry() noexcept { return entry_; }
  [[nodiscard]] Entry& join_entry() noexcept { return join_entry_; }
  /// The operation of an all-reduce of one tensor of the CPU: a new one, or that of an earlier such call, with its
  /// signature and its buffer. They come back in the order of the calls, so a program that repeats its calls finds the
  /// signature of each.
  [[nodiscard]] OperationPtr take();
  /// Of its name, the same on all ranks.
  [[nodiscard]] std::uint64_t hash() const noexcept { return entry_.hash; }
  /// True once: this thread makes calls, and another one has.
  [[nodiscard]] bool is_second_thread() noexcept;
  /// The number of the last call that has avoided the log.
  [[nodiscard]] core::Round avoided() const noexcept { return avoided_.load(std::memory_order_acquire); }

  /// Makes an asynchronous call. False: there is no space, and nothing was done.
  [[nodiscard]] bool try_call(OperationPtr& operation, Calls& log);
  /// Reserves the number of a blocking call, waiting for the threads that came before.
  [[nodiscard]] Reservation begin();
  /// Ends it; `by_log`: the call, when it goes there. False: there is no space; call it again.
  [[nodiscard]] bool try_end(Reservation& reserved, OperationPtr& by_log, Calls& log);
  /// Makes the reservation of a join. Returns the number of the last call.
  [[nodiscard]] core::Round begin_join();

  // -- the driver
  /// A call that was given to the log is over.
  void note_over() noexcept { over_.store(over_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  /// In a join: the next call follows this one, and the last that was made.
  void go_on_from(core::Round call);
  void end_join();
  /// The next call that the log has not run or failed.
  [[nodiscard]] const OperationPtr& front() const noexcept { return waiting_.front(); }
  void push(OperationPtr&& operation) {
    operation->is_waiting = true;
    if (waiting_.full()) waiting_.set_capacity(std::max<std::size_t>(64, 2 * waiting_.capacity()));
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
  /// How many operations are kept for later calls.
  static constexpr std::size_t kMostKept = 4096;

  [[nodiscard]] bool give(OperationPtr& operation, Calls& log) KOLO_REQUIRES(mutex_);
  void reserve() KOLO_REQUIRES(mutex_);
  void end_reservation() KOLO_REQUIRES(mutex_);

  Entry entry_;
  Entry join_entry_;
  base::Mutex mutex_;
  std::deque<OperationPtr> kept_ KOLO_GUARDED_BY(mutex_);
  core::Round made_ KOLO_GUARDED_BY(mutex_) = 0;            // the number of the last call
  std::uint64_t given_ KOLO_GUARDED_BY(mutex_) = 0;         // how many calls have been given to the log,
  std::atomic<std::uint64_t> over_{0};                      // and how many of them are over; the driver writes it
  std::uint64_t reservations_ KOLO_GUARDED_BY(mutex_) = 0;  // how many have been asked for,
  std::uint64_t
      ended_ KOLO_GUARDED_BY(mutex_) = 0;           // and how many have ended; the next one is held if it was asked for
  bool is_joined_ KOLO_GUARDED_BY(mutex_) = false;  // a join holds the reservation
  base::ConditionVariable reservation_ended_;
  std::deque<OperationPtr> behind_ KOLO_GUARDED_BY(mutex_);  // made during a reservation
  std::atomic<core::Round> avoided_{0};
  std::atomic<std::thread::id> thread_{};
  std::atomic<bool> is_shared_{false};  // by threads
  boost::circular_buffer<OperationPtr> waiting_;
};

}  // namespace kolo::engine
