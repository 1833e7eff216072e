// SPDX-License-Identifier: Apache-2.0
//
// A rank's engine: takes submissions from any thread, negotiates, runs batches, completes handles. This file puts it
// together, and ends it. Its parts are in
//
//   submitter.hpp      submitting: how threads of the program give it something to do
//   driving.hpp        driving: what a driver does in a pass, how long threads drive, where they sleep
//   control_loop.hpp   the control loop: submissions into the log, and what the log says
//   execution.hpp      executing: the batches of the log, and the end of each operation
//   messages.hpp       messages between two ranks, which go by no log
//
// One *driver* at a time (driver.hpp): the background thread, or a thread that waits for a handle and found nobody
// driving. engine_state.hpp has what the parts share: among it what is open (open_operations.hpp), how the rank ends
// (ending.hpp), what runs without the lock (deferred.hpp), and the process sets (sets.hpp).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <kolo/info.hpp>

#include "engine/control_loop.hpp"
#include "engine/deadlines.hpp"
#include "engine/driving.hpp"
#include "engine/engine_state.hpp"
#include "engine/execution.hpp"
#include "engine/messages.hpp"
#include "engine/submitter.hpp"

namespace kolo::engine {

class Engine {
 public:
  /// All that may fail: throws Error (transport) where the system lacks descriptors or threads.
  static std::shared_ptr<Engine> make(EngineParts parts);
  /// Lets the background thread run. Every rank of the world does so at about the same time.
  void begin() noexcept { state_.driver.begin(); }
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // -- any thread
  [[nodiscard]] Submitter& submitter() noexcept { return submitter_; }
  [[nodiscard]] Messages& messages() noexcept { return messages_; }
  [[nodiscard]] Driving& driving() noexcept { return driving_; }
  /// Throws the fatal error, or shut_down, if there is one: the first thing that a call does.
  void check_usable() const { state_.ending.check_usable(); }
  [[nodiscard]] bool faulted() const noexcept { return state_.ending.faulted(); }
  /// The set of all ranks.
  [[nodiscard]] const SetStatePtr& world() const noexcept { return state_.world; }
  [[nodiscard]] const core::Topology& topology() const noexcept { return state_.topology; }
  [[nodiscard]] const base::Settings& settings() const noexcept { return state_.settings; }
  /// Steps that this rank has ended in the world.
  [[nodiscard]] std::uint64_t steps() const noexcept { return submitter_.steps(); }
  [[nodiscard]] base::Logger& logger() const noexcept { return *state_.logger; }
  /// Null: no tensors but the CPU's.
  [[nodiscard]] data::DeviceBackend* device() const noexcept { return state_.device.get(); }
  [[nodiscard]] detail::Counters metrics();
  /// Whether a tensor of an open operation begins in this memory.
  [[nodiscard]] bool uses(const std::byte* begin, std::size_t bytes);
  /// What the engine records goes there, too, until `sink` is null.
  void record_to(std::shared_ptr<recorder::Sink> sink);
  /// Throws Error (invalid_argument) inside a callback, where nobody may shut this engine down.
  void check_may_shut_down();

  // -- one thread, nobody else using the engine any more
  /// Leaves, and waits for the others to leave (see Context::shutdown), for KOLO_TIMEOUT_S at most.
  void shutdown() { shutdown(state_.open.patience.usual); }
  void shutdown(base::Duration patience);
  /// The same, but where this rank has nothing open it waits for the others a second at most, and does not complain of
  /// them.
  void leave_early();
  /// Whether an operation of this rank has not ended yet.
  [[nodiscard]] bool has_open();
  /// After `shutdown`: all ranks have left in order, and all their operations have run.
  [[nodiscard]] bool left_together() const noexcept {
    return state_.ending.is_leaving() && state_.ending.is_closed_for_all() && !faulted();
  }
  /// Leaves because of an error of this rank: a fatal error, reported but not waited for. A rank that has been
  /// told that another one has left leaves like that one: its error is no news.
  void abandon(ErrorCode code, const std::string& reason);

 private:
  explicit Engine(EngineParts parts);
  /// Whether all have left, or there was a fatal error.
  bool leave(base::Duration patience, base::Duration for_others);
  void go();
  void stop(const Status& status) KOLO_EXCLUDES(kDriving);

  EngineState state_;
  Execution execution_ KOLO_GUARDED_BY(kDriving);
  Messages messages_;
  Deadlines deadlines_ KOLO_GUARDED_BY(kDriving);
  ControlLoop control_loop_;
  Driving driving_;
  Submitter submitter_;
};

}  // namespace kolo::engine
