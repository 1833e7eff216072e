// SPDX-License-Identifier: Apache-2.0
//
// How long a thread drives, and where it sleeps after that. engine.hpp explains the whole.
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/process_barrier.hpp"
#include "base/thread_name.hpp"
#include "engine/engine.hpp"
#include "engine/tags.hpp"

namespace kolo::engine {
namespace {

/// How long a rank that leaves because of its own error stays to see its announcement delivered.
constexpr std::chrono::seconds kFarewell{1};
/// Where a transport wakes the background thread, a thread that waits for so many bytes, or that has driven for
/// `kLongDrive`, leaves driving to that one when nothing has moved for `kLittlePatience`. Else it would look on for
/// several milliseconds, as long as a slow link brings a message now and then: a quarter of the CPU time of 16 MiB at
/// 1 Gbit/s.
constexpr std::int64_t kManyBytes = std::int64_t{4} << 20;
constexpr std::chrono::milliseconds kLongDrive{2};
constexpr std::chrono::microseconds kLittlePatience{200};
/// Where ranks share CPUs a sender goes on looking for as long as a peer needs to read the message at 1 GB/s, or the
/// first 128 MiB of it. It gives its CPU away with every look. If it slept, the two ranks that are woken on a CPU would
/// take turns with what they read next (messages.cpp), and messages of 64 MiB between 4 ranks of 2 CPUs would take a
/// quarter longer.
constexpr std::chrono::nanoseconds kReadingOfByte{1};
constexpr std::uint64_t kMostWaitedFor = 128 << 20;

}  // namespace

// ---------------------------------------------------------------- the background thread

void Engine::background() {
  base::set_thread_name("kolo-engine");
  driver_.wake_up();
  const base::MutexLock lock(driver_.mutex(), std::adopt_lock);
  base::Waiter waiter(wait_policy_);
  int pauses = 0;
  bool burst = false;  // something has moved since the thread slept, and many operations are open
  while (!driver_.is_ending()) {
    const bool moved = progress();
    run_errands();
    driver_.give_way();
    if (!device_moves()) {
      if (const Driver::Events* events = driver_.leave_to_seekers()) {
        hear(*events);
        continue;
      }
    }
    if (moved) {
      waiter.reset();
      pauses = 0;
      burst = open_.size() >= OpenOperations::kBurst;
    } else if (!faulted() && executor_.expects_soon()) {  // once faulted, another thread may be ending the backends
      waiter.step();
    } else if (backend_moves() && pauses++ < wait_policy_.background_pauses) {
      base::cpu_relax();
    } else {
      sleep(std::exchange(burst, false));
      waiter.reset();
      pauses = 0;
    }
  }
}

/// Whether passes of the background thread can move an open batch.
bool Engine::backend_moves() const noexcept { return executor_.open() > 0 && !failure_.is_announced(); }

/// Whether an open batch may go on though nothing rings: peers of the node publish how far they have come by plain
/// stores, and some transports tell nothing.
bool Engine::backend_goes_on_unheard() const noexcept {
  return backend_moves() && (topology_.local_size() > 1 || inter_ == nullptr || inter_->event_fd() < 0);
}

/// Whether a process barrier makes peers' stores heard.
bool Engine::can_hear_backend() const noexcept { return has_barriers_ && inter_ != nullptr && inter_->event_fd() >= 0; }

/// Whether the background thread, which alone gives work to a device, has batches or copies to look after there. It is
/// rung when they have come further, so it sleeps meanwhile. Any thread may ask: the counts are atomic.
bool Engine::device_moves() const noexcept KOLO_NO_THREAD_SAFETY_ANALYSIS {
  return executor_.open_on_device() > 0 || device_messages_.open() > 0;
}

/// Something for this rank has been published and not been looked at. Asked after announcing sleep.
bool Engine::owes_work() const noexcept {
  return !mailbox_.empty() || (!faulted() && !ending_.is_closed() && board_.has_log_entry()) ||
         (leader_ && (leader_->board_rang() || leader_->has_news())) || interest_.is_news() ||
         (executor_.has_ready() && failure_.spares_backends()) || messages_.has_news();
}

/// The root of one node, with nothing open, need not hear of submissions in the world: none of them can complete
/// anything before it has submitted as well, and then it looks at all. What else becomes of them (a deadline, a rank
/// that leaves) comes as a message. Submissions of groups, which it may be no member of, are told to it loudly.
control::Board::Sleep Engine::sleep_state() const noexcept {
  control::Board::Sleep sleep;
  sleep.has_batches = executor_.open() > 0;
  sleep.hears_quiet = leader_ && leader_->hears_quiet();
  sleep.hears_counts = leader_ && (topology_.node_count() > 1 || !open_.empty());
  return sleep;
}

/// How long to look away from the transport; nothing: it rings, or has nothing open. Messages are waited for each.
std::optional<std::chrono::nanoseconds> Engine::transport_nap() noexcept {
  if (!transport_moves() || (inter_->event_fd() >= 0 && messages_.is_busy())) return std::nullopt;
  return inter_->nap();
}

/// `hears`: peers ring when they have brought an open batch further, or need not be heard before the nap is over.
std::optional<std::chrono::nanoseconds> Engine::sleep_time(std::optional<std::chrono::nanoseconds> nap, bool hears,
                                                           base::Time now) noexcept {
  const bool looks = backend_goes_on_unheard() && !hears;
  const bool naps = looks || device_moves() || !unsent_.empty() || (leader_ && leader_->blocked());
  if (nap) return naps ? std::min<std::chrono::nanoseconds>(*nap, kNap) : *nap;
  if (naps) return kNap;
  base::Time until = failure_.due;
  if (!open_.empty()) until = std::min(until, open_.next_due());
  until = std::min(until, messages_.next_due());
  if (leader_) until = std::min(until, leader_->next_deadline());
  if (until == base::Time::max()) return std::nullopt;
  return std::max(until - now, base::Duration::zero());
}

/// Has the transport ring the poller from now on, where batches are open that may wait for it, or peers may. False: it
/// has something already.
bool Engine::arm_transport() noexcept {
  if (!transport_moves() || inter_->event_fd() < 0) return true;
  const bool is_used = executor_.open() > 0 || device_moves() || messages_.is_busy() || inter_->serves_peers();
  if (!is_used) return true;
  return !guarded([this]() KOLO_REQUIRES(driver_.mutex()) {
    if (!inter_->arm()) return true;
    driver_.poller().add(inter_->event_fd(), kTransportTag, base::Poller::kReadable | base::Poller::kOnce);
    return false;
  });
}

/// The background thread sleeps until something rings or is due. The driver's place is free meanwhile.
void Engine::sleep(bool burst) {
  const std::optional<std::chrono::nanoseconds> nap = transport_nap();
  const bool looks_away = nap && inter_->event_fd() >= 0;
  control::Board::Sleep state = sleep_state();
  state.has_batches = state.has_batches && !looks_away;
  driver_.fall(state);
  const bool hears = looks_away || (backend_goes_on_unheard() && can_hear_backend() && base::process_barrier());
  // The pass first: it may take a ring, a death or a deadline, and the questions behind it see what came of that.
  if ((backend_moves() && progress()) || owes_work() || !errands_.empty() || failure_.abort_due ||
      !questions_.empty() || driver_.is_ending() || !(looks_away || arm_transport()) || !arm_messages()) {
    driver_.stay();
    return;
  }
  std::optional<std::chrono::nanoseconds> timeout = sleep_time(nap, hears, base::now());
  if (burst) timeout = timeout ? std::min<std::chrono::nanoseconds>(*timeout, kNap) : kNap;
  ++metrics_.sleeps;
  hear(driver_.sleep(timeout, burst));
}

/// After a sleep.
void Engine::hear(const Driver::Events& events) {
  guarded([&]() KOLO_REQUIRES(driver_.mutex()) {
    handle_events(events);
    return true;
  });
  settle_pass();
}

// ---------------------------------------------------------------- threads that wait

void Engine::wait_all(Span<Operation* const> operations, std::optional<base::Time> until) {
  std::size_t at = 0;
  const auto skip_done = [&] {
    while (at < operations.size() && operations[at]->done()) ++at;
    return at == operations.size();
  };
  if (skip_done()) return;
  check_may_wait();
  // One of them is marked at a time: that somebody waits is all that matters.
  const Operation* marked = nullptr;
  const auto mark = [&](Operation* operation) {
    return operation != std::exchange(marked, operation) && interest_.mark(*operation);
  };
  const auto all_done = [&] {
    if (skip_done()) return true;
    mark(operations[at]);
    return false;
  };
  if (all_done()) return;
  const bool on_device =
      device_ != nullptr && std::any_of(operations.begin() + at, operations.end(), [](const Operation* operation) {
        return operation->message == nullptr && operation->signature->device != DeviceKind::cpu;
      });
  while (!all_done()) {
    if (!on_device && !device_moves() && driver_.seek(all_done)) {
      drive(all_done, until, policy_for(*operations[at]));
    } else {
      driver_.ring_if_asleep();
    }
    if (all_done() || (until && base::now() >= *until)) return;
    // The last in the hope that it is the last to complete: who sleeps for the first is woken for every single one.
    std::size_t last = operations.size() - 1;
    while (last > at && operations[last]->done()) --last;
    if (mark(operations[last])) driver_.ring_if_asleep();
    operations[last]->sleep_until(until);
  }
}

std::vector<int> Engine::late_ranks(const OperationPtr& operation, base::Time until) {
  if (operation->done() || operation->message != nullptr) return {};
  check_may_wait();
  operation->forget_late();
  push({Command::ask, operation});
  tell_driver();
  return operation->sleep_until_late(until);
}

data::DeviceEventPtr Engine::wait_enqueued(Operation& operation) {
  check_may_wait();
  note_interest(operation);
  return operation.sleep_until_enqueued();
}

/// For how long a thread drives that waits for this and sees nothing move.
base::WaitPolicy Engine::policy_for(const Operation& operation) {
  if (settings_.spin_us >= 0) return wait_policy_;
  if (operation.message == nullptr) {
    return is_rung() && operation.bytes() >= kManyBytes ? brief_policy() : wait_policy_;
  }
  base::WaitPolicy policy = wait_policy_;
  if (policy.pauses == 0 && messages_.is_read_by_peer(*operation.message)) {
    const auto bytes = static_cast<std::int64_t>(std::min(operation.message->bytes, kMostWaitedFor));
    policy.active = std::max(policy.active, kReadingOfByte * bytes);
  }
  return policy;
}

/// Whether a transport wakes the background thread.
bool Engine::is_rung() const noexcept { return settings_.spin_us < 0 && inter_ != nullptr && inter_->event_fd() >= 0; }

base::WaitPolicy Engine::brief_policy() const noexcept {
  base::WaitPolicy policy = wait_policy_;
  policy.active = std::min<std::chrono::nanoseconds>(policy.active, kLittlePatience);
  return policy;
}

/// Drives until `done`, until the time has come, or until nothing moved for so long that the background thread may as
/// well do it. Lets go of the lock. Empty when done; else with what to sleep until
/// something has changed.
template <class Done>
std::optional<base::EventCount::Ticket> Engine::drive(Done done, std::optional<base::Time> until,
                                                      const base::WaitPolicy& policy) {
  const HandOver after(*this);
  const bool rung = is_rung();
  const base::Time began = rung ? base::now() : base::Time();
  base::Waiter waiter(policy);
  while (!done() && !device_moves()) {
    const bool moved = progress();
    run_errands();
    if (moved) {
      waiter.reset();
      if (rung && base::now() - began >= kLongDrive) waiter = base::Waiter(brief_policy());
      continue;
    }
    if (waiter.exhausted() || (until && base::now() >= *until)) break;
    waiter.step();
    driver_.give_way();
  }
  run_errands();
  std::optional<base::EventCount::Ticket> ticket;
  if (!done()) ticket = changes_.ticket();
  return ticket;
}

/// For the end: until `done` or until the time has come. Drives while anything moves, and sleeps while it does not:
/// then the background thread drives.
template <class Done>
void Engine::drive_until(Done done, base::Time until) {
  while (base::now() < until) {
    driver_.take_over();
    const std::optional<base::EventCount::Ticket> ticket = drive(done, until, wait_policy_);
    if (!ticket) return;
    changes_.sleep(*ticket, until);
  }
}

/// For a thread that waits for something beside the engine: drives while nobody else does, until `done` or until the
/// time has come. Never sleeps.
void Engine::help_until(const std::function<bool()>& done, base::Time until) {
  base::Waiter waiter(wait_policy_);
  while (!done() && base::now() < until) {
    if (driver_.try_take()) {
      drive(done, until, wait_policy_);
    } else {
      waiter.step();
    }
  }
}

/// A driver's last act: lets go. What is left falls to the background thread, which is woken if it must be, once the
/// lock is free. An alarm is enough for a deadline that it does not know of, and for a batch that peers have to move
/// next: they ring, but their look may have missed us. `look`: this driver has brought batches further, and looks once
/// more now.
void Engine::hand_over(bool look) noexcept {
  driver_.leave(sleep_state());
  Driver::Rest rest;
  if (backend_moves() && look) {
    // Where it has a CPU of its own the background thread looks on.
    rest.ring = wait_policy_.background_pauses > 0 || progress();
  }
  rest.ring = rest.ring || owes_work() || device_moves() || !arm_transport() || !errands_.empty() || !arm_messages() ||
              failure_.abort_due || !questions_.empty() || !unsent_.empty() || (leader_ && leader_->blocked());
  if (!rest.ring) {
    base::Time& due = rest.due;
    due = open_.empty() ? failure_.due : std::min(failure_.due, open_.next_due());
    if (leader_) due = std::min(due, leader_->next_deadline());
    due = std::min(due, messages_.next_due());
    if (backend_goes_on_unheard() || (transport_nap() && inter_->event_fd() < 0))
      due = std::min(due, base::now() + kNap);
    rest.is_nap_over = open_.empty();  // a lone submission does not wait for its end
  }
  driver_.let_go(rest);
}

void Engine::run_errands() {
  while (!errands_.empty() || failure_.abort_due) {
    if (failure_.abort_due && errands_.empty()) {
      end_batches();
      settle_pass();
    }
    std::vector<Errand> errands = errands_.take();
    driver_.step_aside([&] {
      for (Errand& errand : errands) errands_.run(std::move(errand));
    });
  }
}

void Engine::call_back(std::function<void(const Status&)> callback, const Status& status) noexcept {
  errands_.run({std::move(callback), status, LogLevel::off, {}});
}

void Engine::check_may_wait() {
  if (!in_callback()) return;
  throw Error(ErrorCode::invalid_argument,
              "a callback of on_done must not wait for an operation: start it there, and wait elsewhere");
}

void Engine::check_may_shut_down() {
  if (!in_callback()) return;
  throw Error(ErrorCode::invalid_argument,
              "a callback of on_done must not shut its context down, which would wait for the callback: the context "
              "stays open; shut it down outside the callback");
}

// ---------------------------------------------------------------- the end

void Engine::shutdown(base::Duration patience) {
  if (ending_.is_stopped()) return;
  check_may_shut_down();
  if (!faulted()) {
    // What runs here first: once all have left nobody can be asked to push (control::Starved) any more.
    const base::Time until = base::now() + patience;
    const auto ran = [this]() KOLO_REQUIRES(driver_.mutex()) {
      return faulted() || (executor_.open() == 0 && !device_moves() && !messages_.has_unsent());
    };
    drive_until(ran, until);
    push({Command::leave, nullptr});
    bool all_left = false;  // as this thread saw it with the lock
    const auto left = [this, &all_left]() KOLO_REQUIRES(driver_.mutex()) {
      all_left = ending_.is_closed();
      return faulted() || (ending_.is_closed() && executor_.open() == 0 && !device_moves() && !executor_.has_ready());
    };
    drive_until(left, until);
    if (!all_left && !faulted()) {
      KOLO_LOG(*logger_, warning) << "shutdown: not all ranks have left within " << base::to_seconds(patience)
                                  << " s; leaving without them";
    }
  }
  stop(Status(ErrorCode::shut_down, "the context was shut down before this operation completed"));
}

void Engine::abandon(ErrorCode code, const std::string& reason) {
  if (ending_.is_stopped()) return;
  if (ending_.is_deserted()) return shutdown(kFarewell);
  if (topology_.size > 1) {  // else there is nobody to tell
    {
      driver_.take_over();
      const HandOver after(*this);
      announce_fault(code, reason);
    }
    drive_until([this] { return faulted(); }, base::now() + kFarewell);
  }
  stop(Status(code, reason));
}

void Engine::await_if_deserted(Operation& operation) {
  if (!ending_.is_deserted()) return;
  help_until([&] { return faulted() || operation.done(); }, base::now() + patience().usual);
}

void Engine::end_now(Operation& operation, const std::string& reason) {
  const auto is_done = [&operation] { return operation.done(); };
  if (operation.message != nullptr) {
    messages_.give_up(*operation.message, Status(ErrorCode::user_exception, reason));
    while (!is_done()) help_until(is_done, base::now() + kFarewell);
    return;
  }
  const auto is_over = [&] { return faulted() || is_done(); };
  if (!is_over()) {
    driver_.take_over();
    const HandOver after(*this);
    if (!is_done()) announce_fault(ErrorCode::user_exception, reason);
  }
  help_until(is_over, base::now() + kFarewell);
  if (!is_done()) {
    driver_.take_over();
    const HandOver after(*this);
    latch(failure_.announced());  // unless the announcement has come back
  }
  while (!is_done()) help_until(is_done, base::now() + kFarewell);
}

/// Delivers what is still to be said, ends the background thread, and fails what is open.
void Engine::stop(const Status& status) {
  if (!ending_.stop()) return;
  if (leader_) {
    drive_until([this]() KOLO_REQUIRES(driver_.mutex()) { return !leader_->blocked(); }, base::now() + kFarewell);
  }
  driver_.end();
  driver_.take_over();
  const base::MutexLock lock(driver_.mutex(), std::adopt_lock);
  // In peace nothing is open, and a device's communicators end together with their peers'.
  const bool in_peace = ending_.is_closed() && !faulted() && executor_.open() == 0 && !device_moves();
  if (!in_peace) executor_.abort();
  executor_.forget();
  if (device_) device_->close();
  while (std::optional<Submission> item = mailbox_.try_pop()) {
    if (item->command != Command::submit) tell_calls();
    if (item->command == Command::submit) admit(std::move(item->operation), base::now());
    if (item->command == Command::join || item->command == Command::join_counted) {
      begin_join(std::move(item->operation), false, base::now());
    }
    if (item->command == Command::make_set) static_cast<void>(take_in(*item->operation, false, base::now()));
    if (item->command == Command::copy) admit_message(static_cast<MessageOperation&>(*item->operation));
  }
  const Status outcome = faulted() ? failure_.status() : status;
  fail_open(outcome);
  executor_.drop();
  failure_.abort_due = false;
  settle_pass();
  run_errands();
}

}  // namespace kolo::engine
