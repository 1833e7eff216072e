// SPDX-License-Identifier: Apache-2.0
#include "engine/driving.hpp"

#include <algorithm>
#include <thread>

#include "base/machine.hpp"
#include "base/thread.hpp"
#include "data/kernels/float_mode.hpp"

namespace kolo::engine {
namespace {

/// A submitting thread moves this many bytes by itself: that takes a fraction of the time of waking another thread.
constexpr std::int64_t kSmallBytes = 16 << 10;
/// How many fruitless passes lie between two looks at the descriptors, each of which is a system call.
constexpr std::uint64_t kPassesPerPoll = 64;
/// A leader's sockets carry what the ranks below wait for.
constexpr std::uint64_t kPassesPerSocketPoll = 4;
/// If a transport can wake the background thread, a waiting thread leaves driving to it when nothing has moved for
/// `kLittlePatience`: a thread that waits for at least this many bytes, or that has driven for `kLongDrive`. Otherwise
/// it would poll for several milliseconds while a slow link brings a message now and then, which was a quarter of the
/// CPU time of 16 MiB at 1 Gbit/s.
constexpr std::int64_t kManyBytes = std::int64_t{4} << 20;
constexpr std::chrono::milliseconds kLongDrive{2};
constexpr std::chrono::microseconds kLittlePatience{200};
/// If ranks share CPUs, a sender polls for as long as a peer needs to read the message at 1 GB/s (at most its first 128
/// MiB), and yields its CPU after every look. If it slept, the two ranks of a CPU would be woken together and alternate
/// in reading (messages.cpp); messages of 64 MiB between 4 ranks on 2 CPUs took a quarter longer.
constexpr std::chrono::nanoseconds kReadingOfByte{1};
constexpr std::uint64_t kMostWaitedFor = 128 << 20;

/// Records that a thread sleeps, and until when, and counts how long. Of the operation it looks only at its name, which
/// is constant: another thread may give it its number while this one sleeps (`Sequence::try_end`).
class WaitRecord {
 public:
  WaitRecord(EngineState& engine, const Operation& operation) noexcept
      : engine_(engine), id_(operation.name_hash),
        sleeper_(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(this) / alignof(WaitRecord))) {
    engine_.recorder->record_caller_at(begun_, recorder::Kind::wait_begun, 0, id_, sleeper_);
  }
  ~WaitRecord() {
    const base::Time now = base::now();
    engine_.recorder->record_caller_at(now, recorder::Kind::wait_ended, 0, id_, sleeper_);
    engine_.sleeps_of_callers.add(static_cast<std::uint64_t>((now - begun_).count()));
  }
  WaitRecord(const WaitRecord&) = delete;
  WaitRecord& operator=(const WaitRecord&) = delete;

 private:
  EngineState& engine_;
  const base::Time begun_ = base::now();
  const std::uint64_t id_;
  const std::uint32_t sleeper_;  ///< the same number twice, and no other sleeper's: where this object lies
};

}  // namespace

// ---------------------------------------------------------------- a pass

bool Driving::progress() noexcept {
  bool moved = guarded([&]() KOLO_REQUIRES(kDriving) { return pass(Depth::whole); });
  if (engine_.driver.is_poll_due(moved, engine_.channel ? kPassesPerSocketPoll : kPassesPerPoll))
    moved = poll_descriptors();
  if (moved) engine_.open.waiters.note_change();
  end_pass();
  return moved;
}

/// On a device a thread gives work of any size, and does not wait for it, nor for what the device does meanwhile.
bool Driving::has_lone_small() const noexcept {
  const Operation* const operation = engine_.open.only_not_given();
  return operation != nullptr && (operation->signature->device != DeviceKind::cpu || operation->bytes() <= kSmallBytes);
}

bool Driving::pass(Depth depth) {
  const kernels::FloatMode float_mode;  // also if a program's thread drives
  const bool is_whole = depth == Depth::whole;
  const base::Time now = base::now();
  engine_.recorder->at(now);
  const bool awaited = engine_.open.waiters.look();
  bool moved = control_loop_.take_submissions(now);
  engine_.participant.set_awaiting(awaited);
  moved |= control_loop_.publish();
  const bool goes_on = is_whole || has_lone_small();
  if (engine_.leader) moved |= engine_.leader->step(now);
  if (goes_on) moved |= control_loop_.read_log();
  if (engine_.leader) engine_.leader->wake_ranks();
  const bool advanced = goes_on && execution_.move(now);
  while (advanced && !is_whole && execution_.move(now)) {
  }
  if (goes_on) moved |= messages_.move(now);  // a short pass has moved the transport, which may have brought some
  if (is_whole) {
    moved |= control_loop_.judge_losses();
    deadlines_.answer_questions(advanced, now);
    if (deadlines_.are_due(now)) deadlines_.check(now);
  }
  moved |= control_loop_.publish();  // last: publishes all that arose in this pass before the thread sleeps
  return is_whole ? moved || advanced : goes_on;
}

/// True when something has been heard that another pass must deal with before anybody sleeps.
bool Driving::poll_descriptors() noexcept {
  return guarded([&]() KOLO_REQUIRES(kDriving) {
    const bool is_news = handle_events(engine_.driver.poll());
    return is_news || (engine_.leader && engine_.leader->has_news());
  });
}

/// Whether a ring or a death was among them. A ring is heard once, and what it was for may have come after the last
/// look at that.
bool Driving::handle_events(const std::vector<base::Poller::Event>& events) {
  bool is_news = false;
  bool sockets = false;
  for (const base::Poller::Event& event : events) {
    if (event.tag == kWakeTag) {
      engine_.driver.hear_ring();
      is_news = true;
    } else if (event.tag == kAlarmTag) {
      engine_.driver.hear_alarm();  // the pass that follows looks at the deadlines
    } else if (event.tag == kTransportTag) {
      // The pass that follows takes what has come. It is reported once for each time that the transport was armed.
    } else if (event.tag == kControlTag) {
      sockets = true;
    } else {
      control_loop_.on_death(static_cast<int>(event.tag - kLivenessTag));
      is_news = true;
    }
  }
  if (sockets && engine_.leader) engine_.leader->service_sockets();
  return is_news;
}

// ---------------------------------------------------------------- the background thread

void Driving::run_background() {
  base::set_thread_name("kolo-engine");
  engine_.driver.wake_up();
  const DriverLock lock(engine_.driver);
  base::Waiter waiter(engine_.wait_policy);
  int pauses = 0;
  bool burst = false;  // something has moved since the thread slept, and many operations are open
  while (!engine_.driver.is_ending()) {
    const bool moved = progress();
    run_deferred();
    if (std::exchange(engine_.ending.device_abort_due, false)) abort_on_device();
    engine_.driver.give_way();
    if (const Driver::Events* events = engine_.driver.leave_to_seekers()) {
      hear(*events);
      continue;
    }
    if (moved) {
      waiter.reset();
      pauses = 0;
      burst = engine_.open.size() >= OpenOperations::kBurst;
    } else if (!engine_.ending.faulted() &&
               engine_.executor.expects_soon()) {  // once faulted, another thread may be ending the backends
      waiter.step();
    } else if (execution_.can_move() && pauses++ < engine_.wait_policy.background_pauses) {
      base::cpu_relax();
    } else {
      sleep(std::exchange(burst, false));
      waiter.reset();
      pauses = 0;
    }
  }
}

bool Driving::has_work() const noexcept {
  return !control_loop_.mailbox.empty() ||
         (!engine_.ending.faulted() && !engine_.ending.is_closed() && engine_.board.has_log_entry()) ||
         (engine_.leader && (engine_.leader->board_rang() || engine_.leader->has_news())) ||
         engine_.open.waiters.has_news() || (engine_.executor.has_ready() && engine_.ending.may_use_backends()) ||
         engine_.messenger.has_news();
}

/// What makes a driver go on instead of sleeping.
bool Driving::has_duties() const noexcept {
  return has_work() || !engine_.deferred.empty() || engine_.ending.abort_due || engine_.ending.device_abort_due ||
         deadlines_.has_questions();
}

/// Whether something waits that rings nobody when it can go on: a ring or a socket without space.
bool Driving::is_held_up() const noexcept {
  return !engine_.to_leader.empty() || (engine_.leader && engine_.leader->blocked());
}

/// When a pass is due though nothing rings.
base::Time Driving::next_due() noexcept {
  base::Time due = std::min(engine_.ending.due, engine_.messenger.next_due());
  if (!engine_.open.empty()) due = std::min(due, engine_.open.next_due());
  if (engine_.leader) due = std::min(due, engine_.leader->next_deadline());
  return due;
}

bool Driving::may_use_transport() const noexcept {
  return engine_.inter != nullptr && engine_.ending.may_use_backends();
}

/// The root of a single node, with nothing open, need not be woken by submissions in the world: none can complete
/// before it has submitted, too, and then it looks at all of them. Deadlines and leaving ranks come as messages.
/// Submissions of groups, of which it may be no member, wake it.
control::Board::Sleep Driving::sleep_state() const noexcept {
  control::Board::Sleep sleep;
  sleep.has_batches = engine_.executor.open() > 0;
  sleep.hears_quiet = engine_.leader && engine_.leader->hears_quiet();
  sleep.hears_counts = engine_.leader && (engine_.topology.node_count() > 1 || !engine_.open.empty());
  return sleep;
}

/// How long to look away from the transport; nothing: it rings, or has nothing open. Messages are waited for each.
std::optional<std::chrono::nanoseconds> Driving::transport_nap() noexcept {
  if (!may_use_transport() || (engine_.inter->event_fd() >= 0 && engine_.messenger.is_busy())) return std::nullopt;
  return engine_.inter->nap();
}

/// `hears`: peers ring when they have brought an open batch further, or need not be heard before the nap is over.
std::optional<std::chrono::nanoseconds> Driving::sleep_time(std::optional<std::chrono::nanoseconds> nap, bool hears,
                                                            base::Time now) noexcept {
  const bool looks = execution_.moves_unheard() && !hears;
  const bool naps = looks || device_moves() || is_held_up();
  if (nap) return naps ? std::min<std::chrono::nanoseconds>(*nap, kNap) : *nap;
  if (naps) return kNap;
  const base::Time due = next_due();
  if (due == base::Time::max()) return std::nullopt;
  return std::max(due - now, base::Duration::zero());
}

/// Has the transport ring the poller from now on, where batches are open that may wait for it, or peers may. False: it
/// has something already.
bool Driving::arm_transport() noexcept {
  if (!may_use_transport() || engine_.inter->event_fd() < 0) return true;
  const bool is_used =
      engine_.executor.open() > 0 || device_moves() || engine_.messenger.is_busy() || engine_.inter->serves_peers();
  if (!is_used) return true;
  return !guarded([this]() KOLO_REQUIRES(kDriving) {
    if (!engine_.inter->arm()) return true;
    engine_.driver.poller().add(engine_.inter->event_fd(), kTransportTag,
                                base::Poller::kReadable | base::Poller::kOnce);
    return false;
  });
}

/// The background thread sleeps until something rings or is due. The driver's place is free meanwhile.
void Driving::sleep(bool burst) {
  const std::optional<std::chrono::nanoseconds> nap = transport_nap();
  const bool looks_away = nap && engine_.inter->event_fd() >= 0;
  control::Board::Sleep state = sleep_state();
  state.has_batches = state.has_batches && !looks_away;
  engine_.driver.fall(state);
  const bool can_hear = engine_.has_barriers && engine_.is_rung();
  const bool hears = looks_away || (execution_.moves_unheard() && can_hear && base::process_barrier());
  // The pass first: it may take a ring, a death or a deadline, and the questions behind it see what came of that.
  if ((execution_.can_move() && progress()) || has_duties() || engine_.driver.is_ending() ||
      !(looks_away || arm_transport()) || !messages_.arm()) {
    engine_.driver.stay();
    return;
  }
  std::optional<std::chrono::nanoseconds> timeout = sleep_time(nap, hears, base::now());
  if (burst) timeout = timeout ? std::min<std::chrono::nanoseconds>(*timeout, kNap) : kNap;
  ++engine_.tally.sleeps;
  hear(engine_.driver.sleep(timeout, burst));
}

/// After a sleep.
void Driving::hear(const Driver::Events& events) {
  engine_.recorder->at(base::now());
  guarded([&]() KOLO_REQUIRES(kDriving) {
    handle_events(events);
    return true;
  });
  end_pass();
}

// ---------------------------------------------------------------- threads inside a call

void Driving::wait_all(Span<Operation* const> operations, std::optional<base::Time> until) {
  std::size_t at = 0;
  const auto skip_done = [&] {
    while (at < operations.size() && operations[at]->done()) ++at;
    return at == operations.size();
  };
  if (skip_done()) return;
  check_may_wait();
  for (const Operation* const one : operations) {
    if (one->message != nullptr && one->message->peer == p2p::kAny) engine_.messenger.await(*one->message);
  }
  // One of them is marked at a time: that somebody waits is all that matters.
  const Operation* marked = nullptr;
  const auto mark = [&](Operation* operation) {
    return operation != std::exchange(marked, operation) && engine_.open.waiters.mark(*operation);
  };
  const auto all_done = [&] {
    if (skip_done()) return true;
    mark(operations[at]);
    return false;
  };
  if (all_done()) return;
  while (!all_done()) {
    if (engine_.driver.seek(all_done)) {
      drive(all_done, until, policy_for(*operations[at]));
    } else {
      engine_.driver.ring_if_asleep();
    }
    if (all_done() || (until && base::now() >= *until)) return;
    // Sleep on the last operation, which is probably the last to complete: a thread that sleeps on the first would be
    // woken for each.
    std::size_t last = operations.size() - 1;
    while (last > at && operations[last]->done()) --last;
    const bool is_news = mark(operations[last]);
    const bool rings = operations[last]->device() != DeviceKind::cpu && operations[last]->note_host_waits();
    if (is_news || rings) engine_.driver.ring_if_asleep();
    const WaitRecord record(engine_, *operations[last]);
    operations[last]->sleep_until(until);
  }
}

bool Driving::wait_given(Operation& operation, std::optional<base::Time> until) {
  check_may_wait();
  const auto is_given = [&operation] { return operation.is_given(); };
  while (!is_given()) {
    const bool is_news = engine_.open.waiters.mark(operation);
    if (engine_.driver.seek(is_given)) {
      drive(is_given, until, policy_for(operation));
    } else if (is_news) {
      engine_.driver.ring_if_asleep();
    }
    if (!is_given() && until && base::now() >= *until) return false;
    if (!is_given()) operation.sleep_until_given(until);
  }
  return true;
}

/// How long a thread that waits for this operation drives while nothing moves.
base::WaitPolicy Driving::policy_for(const Operation& operation) {
  if (engine_.settings.spin_us >= 0) return engine_.wait_policy;
  if (operation.message == nullptr) {
    return may_be_brief() && operation.bytes() >= kManyBytes ? brief_policy() : engine_.wait_policy;
  }
  base::WaitPolicy policy = engine_.wait_policy;
  if (policy.pauses == 0 && engine_.messenger.is_read_by_peer(*operation.message)) {
    const auto bytes = static_cast<std::int64_t>(std::min(operation.message->bytes, kMostWaitedFor));
    policy.active = std::max(policy.active, kReadingOfByte * bytes);
  }
  return policy;
}

/// Whether a thread may leave driving to the background thread, which a transport wakes.
bool Driving::may_be_brief() const noexcept { return engine_.settings.spin_us < 0 && engine_.is_rung(); }

base::WaitPolicy Driving::brief_policy() const noexcept {
  base::WaitPolicy policy = engine_.wait_policy;
  policy.active = std::min<std::chrono::nanoseconds>(policy.active, kLittlePatience);
  return policy;
}

/// Drives until `done`, until the time has come, or until nothing moved for so long that the background thread may as
/// well do it. Lets go of the lock. Empty when done; else what to sleep with until something has changed.
template <class Done>
std::optional<EventCount::Ticket> Driving::drive(const Done& done, std::optional<base::Time> until,
                                                 const base::WaitPolicy& policy) {
  const HandOver after(*this);
  const bool rung = may_be_brief();
  const base::Time began = rung ? base::now() : base::Time();
  base::Waiter waiter(policy);
  while (!done()) {
    const bool moved = progress();
    run_deferred();
    if (moved) {
      waiter.reset();
      if (rung && base::now() - began >= kLongDrive) waiter = base::Waiter(brief_policy());
      continue;
    }
    if (waiter.exhausted() || (until && base::now() >= *until)) break;
    waiter.step();
    engine_.driver.give_way();
  }
  run_deferred();
  std::optional<EventCount::Ticket> ticket;
  if (!done()) ticket = engine_.open.waiters.ticket();
  return ticket;
}

void Driving::drive_until(const std::function<bool()>& done, base::Time until) {
  while (base::now() < until) {
    engine_.driver.take_over();
    const std::optional<EventCount::Ticket> ticket = drive(done, until, engine_.wait_policy);
    if (!ticket) return;
    engine_.open.waiters.sleep(*ticket, until);
  }
}

void Driving::help_until(const std::function<bool()>& done, base::Time until) {
  base::Waiter waiter(engine_.wait_policy);
  while (!done() && base::now() < until) {
    if (engine_.driver.try_take()) {
      drive(done, until, engine_.wait_policy);
    } else {
      waiter.step();
    }
  }
}

void Driving::hand_over(bool look) noexcept {
  engine_.driver.leave(sleep_state());
  Driver::Rest rest;
  if (execution_.can_move() && look) {
    // Where it has a CPU of its own the background thread looks on.
    rest.ring = engine_.wait_policy.background_pauses > 0 || progress();
  }
  rest.ring = rest.ring || has_duties() || !arm_transport() || !messages_.arm() || is_held_up() ||
              engine_.executor.expects_soon();
  if (!rest.ring) {
    rest.due = next_due();
    if (execution_.moves_unheard() || device_moves() || (transport_nap() && engine_.inter->event_fd() < 0))
      rest.due = std::min(rest.due, base::now() + kNap);
    rest.is_nap_over = engine_.open.empty();  // a lone submission does not wait for its end
  }
  engine_.driver.let_go(rest);
}

void Driving::make_space() {
  if (engine_.driver.try_take()) {
    const HandOver after(*this);
    progress();  // callbacks are not for a thread that submits, which may hold a lock that they want
  } else {
    std::this_thread::yield();
  }
}

void Driving::pass_now() {
  if (!engine_.driver.nobody_looks()) return;
  if (!engine_.driver.try_take()) return engine_.driver.ring_if_asleep();
  progress();
  hand_over(false);
}

void Driving::run_deferred() {
  while (!engine_.deferred.empty() || engine_.ending.abort_due) {
    if (engine_.ending.abort_due && engine_.deferred.empty()) {
      abort_on_cpu();
      end_pass();
    }
    std::vector<Deferred::Call> calls = engine_.deferred.take();
    engine_.driver.step_aside([&] {
      for (Deferred::Call& call : calls) engine_.deferred.run(std::move(call));
    });
  }
}

/// After a fatal error, without the lock while the backends end their work. Nobody else uses them meanwhile, which the
/// analysis cannot see.
void Driving::abort_on_cpu() {
  engine_.ending.abort_due = false;
  engine_.driver.step_aside([this]() KOLO_NO_THREAD_SAFETY_ANALYSIS { engine_.executor.abort_on_cpu(); });
  if (!engine_.device) return abort_on_device();
  control_loop_.fail_on_cpu(engine_.ending.status());
  engine_.ending.device_abort_due = true;
}

/// A device may take seconds to end. The background thread waits for that: a thread that waits for an operation on the
/// CPU, or until some time, must not.
void Driving::abort_on_device() {
  engine_.driver.step_aside([this]() KOLO_NO_THREAD_SAFETY_ANALYSIS { engine_.executor.abort_on_device(); });
  engine_.executor.forget();
  control_loop_.fail_open(engine_.ending.status());
  engine_.executor.drop();
}

void Driving::check_may_wait() {
  if (!in_callback()) return;
  throw Error(ErrorCode::invalid_argument,
              "a callback of on_done must not wait for an operation: start it there, and wait elsewhere");
}

void Driving::await_if_deserted(Operation& operation) {
  if (!engine_.ending.was_deserted()) return;
  help_until([&] { return engine_.ending.faulted() || operation.done(); }, base::now() + engine_.open.patience.usual);
}

void Driving::end_now(Operation& operation, const std::string& reason) {
  const auto is_done = [&operation] { return operation.done(); };
  if (operation.message != nullptr) {
    engine_.messenger.give_up(*operation.message, Status(ErrorCode::user_exception, reason),
                              engine_.ending.deserted_by());
    // If it is with the device, that mostly ends it soon; else it is as a collective.
    help_until(is_done, base::now() + engine_.open.patience.usual);
    if (is_done()) return;
  }
  const auto is_over = [&] { return engine_.ending.faulted() || is_done(); };
  if (!is_over()) {
    engine_.driver.take_over();
    const HandOver after(*this);
    if (!is_done()) engine_.ending.report(ErrorCode::user_exception, reason);
  }
  help_until(is_over, base::now() + kFarewell);
  if (!is_done()) {
    engine_.driver.take_over();
    const HandOver after(*this);
    engine_.ending.record(engine_.ending.reported());  // unless the report has come back
  }
  while (!is_done()) help_until(is_done, base::now() + kFarewell);
}

}  // namespace kolo::engine
