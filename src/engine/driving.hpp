// SPDX-License-Identifier: Apache-2.0
//
// Driving: what a driver does in a pass, how long a thread drives, and where it sleeps after that. driver.hpp says how
// the driver's place changes hands.
//
// A *pass* looks once at everything that can move: the mailbox, the board, the sockets of a leader, the log, open
// batches, messages, losses, deadlines. A thread that submits makes a shorter one (`Depth`). A pass never blocks.
// Whatever is thrown in it is a fatal error of this rank, reported to all (`guarded`). A driver hands over in any case
// (`HandOver`).
//
// Sleeping. A driver that has found nothing to do for as long as its wait policy says marks its rank asleep
// (`Board::mark_asleep`), looks once more, and sleeps: the background thread in the poller, which watches every
// socket and this rank's eventfd, a waiting thread on its handle. A publisher writes, looks at the mark, and
// rings the eventfd. A transport between nodes is armed before the sleep and rings, too, or says how long the nap may
// be (transport/inter_node.hpp). Without open batches the only time-outs are the deadlines of open operations.
//
// The counters of a node's data plane ring no bell. A publisher would need a fence between its store and its look for
// sleepers, for every chunk on every rank; without the fence its look and the sleeper's last look may both come too
// early, and no bell is rung. Instead a rank that sleeps with an open batch sleeps at most a millisecond, which bounds
// the cost of a missed look.
//
// If the transport between nodes has a descriptor, waits are long, and such a rank sleeps without an end. (While much
// data comes slowly, it naps instead, and neither the transport nor peers wake it: transport/pace.hpp.) The sleeper
// then makes all publishers execute the fence, by a process barrier between its mark and its last look. A
// publisher passes the barrier before its store, and then sees the mark and rings; or after its store, which
// the sleeper's last look sees. The barrier interrupts the peers' CPUs, once for each sleep with an open batch, so it
// is not used inside one node, where waits are short. (A rank that is alone on its node has no such peers.)
//
// The background thread often shares its CPU with the submitting thread (mpirun binds a rank to one). It therefore does
// not spin there. It does not yield either: that would give a computing thread a whole time slice, while a sleeper is
// woken at once. It leaves driving to a waiting thread (`Driver::seek`) and sleeps until that one hands over
// (`hand_over`, which every thread calls that has driven).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/types.hpp>

#include "engine/control_loop.hpp"
#include "engine/deadlines.hpp"
#include "engine/engine_state.hpp"
#include "engine/execution.hpp"
#include "engine/messages.hpp"

namespace kolo::engine {

class Engine;

class Driving {
 public:
  /// The longest sleep of the background thread while something is open that rings no bell when it moves.
  static constexpr std::chrono::milliseconds kNap{1};
  /// How long a thread that reports an error of its rank waits until it is delivered.
  static constexpr std::chrono::seconds kFarewell{1};

  Driving(EngineState& engine, ControlLoop& control_loop, Execution& execution, Messages& messages,
          Deadlines& deadlines) noexcept
      : engine_(engine), control_loop_(control_loop), execution_(execution), messages_(messages),
        deadlines_(deadlines) {}

  /// At the end of its scope a driver hands over, whatever has happened.
  class KOLO_SCOPED_CAPABILITY HandOver {
   public:
    explicit HandOver(Driving& driving) noexcept KOLO_REQUIRES(kDriving) : driving_(driving) {}
    ~HandOver() KOLO_RELEASE() { driving_.hand_over(); }
    HandOver(const HandOver&) = delete;
    HandOver& operator=(const HandOver&) = delete;

   private:
    Driving& driving_;
  };

  // -- threads inside a call
  /// Waits until the operation is done, or until the time has come; drives meanwhile. Throws Error: invalid_argument
  /// inside a callback. The operation's own failure is left to be looked at.
  void wait(Operation& operation, std::optional<base::Time> until) {
    Operation* const one = &operation;
    wait_all(Span<Operation* const>(&one, 1), until);
  }
  /// All of them. A driver's place is taken once for all.
  void wait_all(Span<Operation* const> operations, std::optional<base::Time> until);
  /// Waits until all work of an operation has been given to the device, or it is done, or until the time has come;
  /// drives meanwhile. False: the time has come. Throws Error: invalid_argument inside a callback.
  bool wait_given(Operation& operation, std::optional<base::Time> until = std::nullopt);
  /// Waits for something beside the engine: drives while nobody else does, until `done` or until the time has come.
  /// Never sleeps.
  void help_until(const std::function<bool()>& done, base::Time until) KOLO_EXCLUDES(kDriving);
  /// For the end: until `done` or until the time has come. Drives while anything moves, and sleeps while it does not:
  /// then the background thread drives.
  void drive_until(const std::function<bool()>& done, base::Time until) KOLO_EXCLUDES(kDriving);
  /// Where this rank has been told that another one has left: waits for an operation for as long as it may take to fail
  /// by itself, and to name that one.
  void await_if_deserted(Operation& operation);
  /// Ends an operation whose memory its caller wants back, whatever the other ranks do: a message alone, anything else
  /// by a fatal error of this rank, which is reported but not waited for. The operation is done, and nothing touches
  /// the memory, once this returns.
  void end_now(Operation& operation, const std::string& reason);
  /// Puts something into the mailbox. The thread empties a full mailbox itself if no other thread does.
  void push(Submission&& submission) KOLO_EXCLUDES(kDriving) {
    // NOLINTNEXTLINE(bugprone-use-after-move): what does not fit is not touched
    while (!control_loop_.mailbox.try_push(std::move(submission))) make_space();
  }
  void make_space() KOLO_EXCLUDES(kDriving);
  /// For the driver, which must not wait for space.
  [[nodiscard]] base::Mailbox<Submission>& mailbox() noexcept { return control_loop_.mailbox; }
  /// A pass has something to do: this thread makes it, where nobody else does.
  void pass_now() KOLO_EXCLUDES(kDriving);
  /// Throws Error (invalid_argument) inside a callback, where nobody may wait.
  void check_may_wait();
  /// Whether this thread is inside a callback of on_done, or inside the log sink on behalf of the engine.
  [[nodiscard]] bool in_callback() { return engine_.deferred.is_here(); }
  /// Runs a callback of on_done on this thread: no wait inside it, and what it throws is logged and dropped.
  void call_back(std::function<void(const Status&)> callback, const Status& status) noexcept {
    engine_.deferred.run({std::move(callback), status, LogLevel::off, {}});
  }
  /// The engine that whoever waits for this operation drives. One that is used again mostly knows it: a copy counts.
  void give_engine(Operation& operation) const {
    const std::weak_ptr<Engine>& its = operation.engine;
    if (its.owner_before(whole) || whole.owner_before(its)) operation.engine = whole;
  }
  /// Constant once it is made. A reference to compare with: `weak_from_this` counts each copy it makes.
  std::weak_ptr<Engine> whole;

  // -- the background thread
  void run_background();

  // -- the driver
  /// How far a pass goes. `publish`: it says what this rank has submitted, and no more, unless a small tensor is all
  /// that is open: that one is moved as far as it goes.
  enum class Depth : std::uint8_t { publish, whole };
  /// One pass; whether anything moved, or of a short one, whether it went beyond publishing. What it throws is fatal.
  bool pass(Depth depth) KOLO_REQUIRES(kDriving);
  /// A whole pass, and now and then a look at the descriptors; whether anything moved.
  bool progress() noexcept KOLO_REQUIRES(kDriving);
  /// The end of everything that changes what others may wait for.
  void end_pass() noexcept KOLO_REQUIRES(kDriving) { engine_.open.waiters.publish(); }
  /// Whatever is thrown in `work` is a fatal error of this rank; true then, else what `work` says.
  template <class Work>
  bool guarded(Work&& work) noexcept KOLO_REQUIRES(kDriving) {
    try {
      return work();
    } catch (...) {
      engine_.ending.report_exception();
      return true;
    }
  }
  /// Runs callbacks and writes records, without the lock.
  void run_deferred() KOLO_REQUIRES(kDriving);
  /// Ends driving and releases the lock. Remaining work goes to the background thread, which is woken, if necessary,
  /// once the lock is free. An alarm is enough for a deadline that it does not know of, and for a batch that peers must
  /// move next: they ring, but may have missed the mark. `look`: this driver has moved batches, and
  /// looks once more now.
  void hand_over(bool look = true) noexcept KOLO_RELEASE(kDriving);
  /// Something for this rank has been published and not been looked at. Asked after the rank was marked asleep.
  [[nodiscard]] bool has_work() const noexcept KOLO_REQUIRES(kDriving);
  /// Whether batches or copies are open on the device. It rings for some of what it has done, not for all: who sleeps
  /// meanwhile naps. Any thread may ask: the counts are atomic.
  [[nodiscard]] bool device_moves() const noexcept KOLO_NO_THREAD_SAFETY_ANALYSIS {
    return engine_.device != nullptr && (engine_.executor.open_on_device() > 0 || messages_.has_copies());
  }

 private:
  [[nodiscard]] bool has_lone_small() const noexcept KOLO_REQUIRES(kDriving);
  template <class Done>
  std::optional<EventCount::Ticket> drive(const Done& done, std::optional<base::Time> until,
                                          const base::WaitPolicy& policy) KOLO_RELEASE(kDriving);
  [[nodiscard]] base::WaitPolicy policy_for(const Operation& operation);
  [[nodiscard]] base::WaitPolicy brief_policy() const noexcept;
  [[nodiscard]] bool may_be_brief() const noexcept;
  bool poll_descriptors() noexcept KOLO_REQUIRES(kDriving);
  bool handle_events(const Driver::Events& events) KOLO_REQUIRES(kDriving);
  void hear(const Driver::Events& events) KOLO_REQUIRES(kDriving);
  void sleep(bool burst) KOLO_REQUIRES(kDriving);
  [[nodiscard]] bool has_duties() const noexcept KOLO_REQUIRES(kDriving);
  [[nodiscard]] bool is_held_up() const noexcept KOLO_REQUIRES(kDriving);
  [[nodiscard]] bool may_use_transport() const noexcept KOLO_REQUIRES(kDriving);
  [[nodiscard]] control::Board::Sleep sleep_state() const noexcept KOLO_REQUIRES(kDriving);
  [[nodiscard]] bool arm_transport() noexcept KOLO_REQUIRES(kDriving);
  [[nodiscard]] std::optional<std::chrono::nanoseconds> transport_nap() noexcept KOLO_REQUIRES(kDriving);
  [[nodiscard]] std::optional<std::chrono::nanoseconds> sleep_time(std::optional<std::chrono::nanoseconds> nap,
                                                                   bool hears, base::Time now) noexcept
      KOLO_REQUIRES(kDriving);
  [[nodiscard]] base::Time next_due() noexcept KOLO_REQUIRES(kDriving);
  void abort_on_cpu() KOLO_REQUIRES(kDriving);
  void abort_on_device() KOLO_REQUIRES(kDriving);

  EngineState& engine_;
  ControlLoop& control_loop_;
  Execution& execution_ KOLO_GUARDED_BY(kDriving);
  Messages& messages_;
  Deadlines& deadlines_ KOLO_GUARDED_BY(kDriving);
};

}  // namespace kolo::engine
