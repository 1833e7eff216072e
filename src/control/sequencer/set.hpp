// SPDX-License-Identifier: Apache-2.0
//
// The sequencer's state of one set. Each group of members names the part that writes it; other parts only read it.
// Plain data, no threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "control/absentees.hpp"
#include "control/messages.hpp"
#include "control/ranges.hpp"
#include "control/sequence_link.hpp"
#include "control/sequencer/planner.hpp"
#include "control/sequencer/tensor_table.hpp"

namespace kolo::control::sequencer {

/// A request without its round. Different sets may use the same name, and so may requests that name their members.
using Key = std::tuple<core::SetId, std::vector<std::int32_t>, std::string, bool>;

inline Key key_of(const Request& request) { return {request.set, request.members, request.name, request.join}; }
inline Request request_of(const Declared& message) {
  return {message.set, message.name, message.round, message.members};
}

struct Queued {
  bool planned = false;  ///< a batch of the set's plan, by number; else a tensor, by id
  std::uint32_t which = 0;
  bool calls = false;  ///< instead: calls of the set's sequence
  std::int32_t priority = 0;
  std::uint64_t since = 0;  ///< how many batches the set had appended when it was queued
  [[nodiscard]] bool is_tensor() const noexcept { return !planned && !calls; }
};

/// The requests of one set that are ready and not in the log: by priority, and among equals in the order in which they
/// became ready. Plain data.
class ReadyQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return items_.empty(); }
  /// The next one. The queue must not be empty.
  [[nodiscard]] const Queued& front() const { return items_.front(); }
  void pop_front() { items_.pop_front(); }
  /// Everything, in order; the queue is empty then.
  [[nodiscard]] std::deque<Queued> take_all() { return std::exchange(items_, {}); }

  /// Inserts behind items of the same priority. Without priorities that is one comparison, and the item goes to the
  /// end.
  void push(const Queued& item) {
    const auto precedes = [](const Queued& a, const Queued& b) { return a.priority > b.priority; };
    auto place = items_.end();
    if (!items_.empty() && precedes(item, items_.back()))
      place = std::upper_bound(items_.begin(), items_.end(), item, precedes);
    items_.insert(place, item);
  }

  /// Moves an item to the front that `patience` batches have overtaken. `appended`: how many batches the set has
  /// appended. The queue must not be empty.
  void be_fair(std::uint64_t appended, std::uint64_t patience) {
    if (items_.front().priority == items_.back().priority) return;
    const auto oldest = std::min_element(items_.begin(), items_.end(),
                                         [](const Queued& a, const Queued& b) { return a.since < b.since; });
    if (appended - oldest->since < patience) return;
    std::rotate(items_.begin(), oldest, std::next(oldest));
  }

 private:
  std::deque<Queued> items_;
};

/// One set's sequence of calls without a name, as far as all present members have made it. Calls go into the log in the
/// order of their numbers; the next is `run() + 1`. Plain data.
///
/// After `cut` no call beyond `last()` can run, and none is in the queue: it is the last call of a rank that has left,
/// or the last that the others had made meanwhile, if that rank had joined.
/// Ranks that have joined contribute to the calls that they had made, and to no later ones.
class CallQueue {
 public:
  /// All present members have made these.
  void hear(SequenceGrown message) {
    if (message.first > heard() + 1) pass(message.first - 1);
    core::Round number = message.first - 1;
    const std::int32_t last = message.last;
    for (Calls& calls : link_.receive(std::move(message))) {
      if (number >= last_) break;
      calls.count = std::min(calls.count, last_ - number);
      number += calls.count;
      calls.last = last;
      queue_.push_back(std::move(calls));
    }
  }
  /// The calls up to this number that are not in the log have avoided it.
  void pass(core::Round call) {
    call = std::min(call, last_);
    if (call <= run_) return;
    require(queue_.empty(), "calls have avoided the log while others were on their way there");
    run_ = call;
  }
  /// The number of the last call received, whether it can run or not.
  [[nodiscard]] core::Round heard() const noexcept { return link_.calls(); }
  /// The number of the last call that is in the log, or has avoided it.
  [[nodiscard]] core::Round run() const noexcept { return run_; }
  /// No call beyond this number can run.
  [[nodiscard]] core::Round last() const noexcept { return last_; }

  /// Whether all received calls that can run are in the log.
  [[nodiscard]] bool empty() const noexcept { return queue_.empty(); }
  /// The next calls of one signature, at least one. The queue must not be empty, here and for the next two functions.
  [[nodiscard]] const Calls& next() const { return queue_.front(); }
  /// How many of `next()` have the same contributing ranks as the first.
  [[nodiscard]] std::uint64_t alike() const { return absent_.alike(run_ + 1, next().count); }
  /// The first `count` calls of `next()` are in the log now.
  void pop(std::uint64_t count) {
    run_ += count;
    queue_.front().count -= count;
    if (queue_.front().count == 0) queue_.pop_front();
  }

  /// This rank has joined after it had made `calls` calls.
  void join(std::int32_t rank, core::Round calls) { absent_.add(rank, calls); }
  /// All are present again.
  void end_join() { absent_.clear(); }
  /// The absent ranks that have not made this call, ascending.
  [[nodiscard]] std::vector<std::int32_t> without(core::Round call) const { return absent_.without(call); }
  /// Whether everything that the absent ranks had made is in the log.
  [[nodiscard]] bool is_done() const { return empty() && absent_.are_done(run_); }

  /// A member that leaves has made these: no later call can run, but for those that run without it, as it had joined.
  void cut(core::Round last) { last_ = std::min(last_, std::max({last, heard(), run_})); }
  /// The calls in the queue cannot run either.
  void drop() {
    queue_.clear();
    last_ = std::min(last_, run_);
  }
  /// A member has asked about this call, because a rank of the set has left.
  void note_asked(core::Round call) { asked_ = std::max(asked_, call); }
  /// Whether a member has made a call that can never run, since this last returned true.
  [[nodiscard]] bool take_asked() {
    if (asked_ <= last_) return false;
    asked_ = last_;
    return true;
  }

 private:
  SequenceReceiver link_;
  std::deque<Calls> queue_;  ///< received, and not in the log
  core::Round run_ = 0;
  core::Round last_ = ~core::Round{0};
  core::Round asked_ = 0;
  AbsentCallers absent_;
};

/// The outcome of names of one set that have lost their id, or failed before they had one. A rank that joins lists what
/// it had in flight as of the last entry that it had read. This class tells what the log has run or failed since. Plain
/// data.
///
/// A name is forgotten when every member has read of it: when all have completed more batches than there were before.
class PastNames {
 public:
  /// Records the last round of the name that was run or failed, by entry `entry` of the log (from 1). `appended`:
  /// batches of the set before that entry; `completed`: batches that every member has completed.
  void note(const std::string& name, core::Round round, std::uint64_t entry, std::uint64_t appended,
            std::uint64_t completed) {
    while (!names_.empty() && names_.front().batches < completed) names_.pop_front();
    names_.push_back({name, round, entry, appended});
  }
  /// The last failure of a name makes earlier ones redundant.
  void forget_until(const std::string& name, core::Round round) {
    const auto is_older = [&](const Name& one) { return one.name == name && one.round <= round; };
    std::erase_if(names_, is_older);
  }
  /// Whether the log has run or failed this round after its entry `read`.
  [[nodiscard]] bool is_over(const std::string& name, core::Round round, std::uint64_t read) const {
    return std::any_of(names_.begin(), names_.end(),
                       [&](const Name& one) { return one.entry > read && one.name == name && one.round >= round; });
  }

 private:
  struct Name {
    std::string name;
    core::Round round = 0;
    std::uint64_t entry = 0;
    std::uint64_t batches = 0;
  };
  std::deque<Name> names_;  ///< by entry
};

struct Plan {
  Plan(std::uint32_t plan, Planner::Batches cut)
      : number(plan), batches(std::move(cut)), ready(batches.size(), 0), priorities(batches.size(), 0) {}
  std::uint32_t number;
  Planner::Batches batches;
  std::vector<std::size_t> ready;        ///< ready members, by batch
  std::vector<std::int32_t> priorities;  ///< the highest priority of a member, by batch
  /// One more member of the batch is ready. Returns whether all are now.
  bool note_ready(std::uint32_t batch) { return ++ready[batch] == batches[batch].size(); }
  [[nodiscard]] bool is_complete(std::size_t batch) const { return ready[batch] == batches[batch].size(); }
};

struct Set {
  Set(core::SetId id, TensorTable& tensors, std::int64_t threshold) : number(id), planner(id, tensors, threshold) {}

  // The set's number, constant from `SetAdded` to `SetRemoved`.
  core::SetId number;
  core::TensorId base = 0;
  std::vector<std::int32_t> members;  ///< ascending
  std::vector<std::int32_t> order;    ///< the same, in the set's order
  std::string words;                  ///< the group's text in messages; empty for the world

  // Ready requests, and their batches (batches.hpp).
  ReadyQueue queue;
  bool waits = false;  ///< whether it is in `ReadySets`; every set whose queue is not empty is
  std::uint64_t appended = 0;
  std::uint64_t completed = 0;
  // What was ready when there was no space: requests by `Tensor::came`, calls by number.
  std::uint64_t held = 0;
  core::Round held_calls = 0;

  // Steps (plans.hpp).
  std::uint64_t steps = 0;  ///< ends of step that were received; without any, a step ends when a name repeats
  bool ends = false;        ///< the set, or the log, is about to end: no new plan begins
  Planner planner;
  std::optional<Plan> plan;

  // Calls without a name (call_order.hpp).
  CallQueue sequence;

  // Names that have no id any more (naming.hpp).
  PastNames over;

  // Joining (joined_ranks.hpp).
  Absentees absent;
  std::int32_t last = -1;        ///< the rank that joined last
  std::uint64_t most_steps = 0;  ///< the most steps that one of them has ended
  core::Round most_calls = 0;    ///< the most calls without a name that one of them has made
  std::uint64_t joins = 0;       ///< how many joins have ended

  // Leaving (departures.hpp).
  bool has_departed = false;  ///< some member has
  bool has_gone = false;      ///< some member has left, and its process has ended or cannot be reached
};

/// The join that its members wait for now, or that is the next one.
inline Request join_in(const Set& set) { return {set.number, "", set.joins + 1, {}, true}; }

}  // namespace kolo::control::sequencer
