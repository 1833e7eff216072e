// SPDX-License-Identifier: Apache-2.0
//
// Submitting: how submissions enter the engine, and what a submitting thread publishes by itself.
//
// A submission goes into the mailbox. Waking the background thread for it costs more than most of the work it would do.
// A thread that submits to a sleeping engine therefore publishes its request itself, and moves a small tensor as far as
// it goes (`say_at_once`). A batch that peers have to move next gets an alarm, behind the ring that they give.
// Submissions come in bursts: with many operations open the thread naps, and only peers and the end of the nap wake it.
//
// Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kolo/options.hpp>

#include "control/shortcut.hpp"
#include "engine/control_loop.hpp"
#include "engine/driving.hpp"
#include "engine/engine_state.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

class Submitter {
 public:
  Submitter(EngineState& engine, Driving& driving, ControlLoop& control_loop) noexcept
      : engine_(engine), driving_(driving), control_loop_(control_loop) {}

  // -- by name
  /// Submits an operation whose entry the caller has claimed. `quiet`: the caller waits right away, and need not have
  /// the background thread woken.
  void submit(OperationPtr operation, bool quiet);
  void end_step(core::SetId set);
  /// Of the world that this rank has ended.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_.load(std::memory_order_relaxed); }

  // -- in the order of the set's sequence
  /// Makes an asynchronous call without a name: the next one of the set's sequence.
  void call(SetState& set, OperationPtr operation);
  /// Begins a blocking one: reserves the next number, waiting for other threads' blocking calls. `end_call` follows.
  [[nodiscard]] Sequence::Reservation begin_call(SetState& set);
  /// The reserved call avoids the log where it can (control/shortcut.hpp); whether it has. Throws Error: it has, and
  /// failed. All of these must hold:
  ///
  ///   the call    blocks, has no name, is of one tensor of the CPU, sent as its own type (api/submit.cpp,
  ///               `fits_shortcut`), and short enough for the route `small` (data/cpu/routes.hpp)
  ///   the set     lies on one node; no rank has left or joined, and there is no fatal error; in a group it is not the
  ///               first call (SetShortcut)
  ///   before it   all calls of this rank that were given to the log are over (Sequence::begin)
  ///   the peers   make the same call, within this rank's patience (`await_verdict`)
  [[nodiscard]] bool take_shortcut(SetState& set, Sequence::Reservation& reserved, const data::SmallCall& call);
  /// Ends the reservation. `by_log`: the call, if it has not avoided the log; the caller waits for it. Null: it is not
  /// made, which is a fatal error if peers know of it.
  void end_call(SetState& set, Sequence::Reservation& reserved, OperationPtr by_log);
  /// This rank submits nothing more in the set until all members have joined: the operation's end, with the last of
  /// them (`Output::last`). `counts`: averages are over it meanwhile. `waits`: the caller waits right away. Throws
  /// Error.
  [[nodiscard]] OperationPtr join(SetState& set, bool counts, std::optional<std::chrono::nanoseconds> timeout,
                                  bool waits);

  // -- sets
  /// Makes the set of these ranks, in this order, this one among them; every one of them calls it. Waits. Throws Error.
  [[nodiscard]] SetStatePtr make_set(const std::vector<std::int32_t>& ranks, const GroupOptions& options);
  /// This rank has done with a set, once: it submits nothing more there. Never waits.
  void drop_set(core::SetId set);

  // -- questions
  /// Somebody waits for an open operation, or asks about it, without driving.
  void note_awaited(Operation& operation);
  /// Asks all ranks who has not submitted an operation, which is open or done, and waits for the answer until the time
  /// has come at most. Ranks of its set; none: all have, it is done, or nobody knows. Throws Error (invalid_argument)
  /// inside a callback.
  [[nodiscard]] std::vector<int> late_ranks(const OperationPtr& operation, base::Time until);

 private:
  void tell_engine() KOLO_EXCLUDES(kDriving);
  [[nodiscard]] bool say_at_once() KOLO_EXCLUDES(kDriving);
  void note_thread(SetState& set);
  control::Shortcut::Verdict await_verdict(control::Shortcut& shortcut);

  EngineState& engine_;
  Driving& driving_;
  ControlLoop& control_loop_;
  std::atomic<std::uint64_t> steps_{0};
};

}  // namespace kolo::engine
