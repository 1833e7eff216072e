// SPDX-License-Identifier: Apache-2.0
//
// One set's sequence of calls without a name, as far as all present members have made it. Calls go into the log in the
// order of their numbers; the next is `run() + 1`. Plain data.
//
// After `cut` no call beyond `last()` can run, and none is in the queue: it is the last call of a rank that has left,
// or the last that the others had made meanwhile, if that rank had joined.
// Ranks that have joined contribute to the calls that they had made, and to no later ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "control/absentees.hpp"
#include "control/ranges.hpp"
#include "control/sequence.hpp"

namespace kolo::control::sequencer {

class CallQueue {
 public:
  /// All present members have made these.
  void hear(SequenceGrown message) {
    if (message.first > heard() + 1) pass(message.first - 1);
    core::Round number = message.first - 1;
    const std::int32_t last = message.last;
    for (Calls& calls : link_.take(std::move(message))) {
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

}  // namespace kolo::control::sequencer
