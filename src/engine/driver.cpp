// SPDX-License-Identifier: Apache-2.0
#include "engine/driver.hpp"

#include <unistd.h>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/thread.hpp"

namespace kolo::engine {
namespace {

/// How often a thread that waits tries to become the driver, and yields, before it sleeps.
constexpr int kTriesBeforeSleep = 64;

/// By state: bit n says that state n may follow.
constexpr auto kMayFollow = [] {
  std::array<std::uint8_t, Driver::kStates> bits{};
  for (const Driver::Move& move : Driver::kMoves) {
    auto& from = bits[static_cast<std::size_t>(move.from)];
    from = static_cast<std::uint8_t>(from | 1U << static_cast<unsigned>(move.to));
  }
  return bits;
}();

/// Empties an eventfd; that it is empty already is no error.
void drain_wake(int fd) noexcept {
  std::uint64_t count = 0;  // one read takes all
  [[maybe_unused]] const ssize_t bytes = ::read(fd, &count, sizeof count);
}

}  // namespace

Driver::Driver(control::Board& board, transport::NodeLink& link) : board_(board), link_(link) {
  poller_.add(link_.wake_fd(), kWakeTag);
  poller_.add(alarm_.fd(), kAlarmTag);
}

// ---------------------------------------------------------------- the background thread's life

void Driver::start(std::function<void()> body) {
  thread_ = base::start_thread("the engine's thread", [this, run = std::move(body)] {
    begun_.wait(false);
    run();
  });
}

void Driver::begin() noexcept {
  begun_.store(true);
  begun_.notify_one();
}

void Driver::end() {
  ending_.store(true, std::memory_order_release);
  begin();  // if it has not begun
  ring();
  if (thread_.joinable()) thread_.join();
}

// ---------------------------------------------------------------- the place

void Driver::move(State to, std::memory_order order) noexcept {
  const State from = state_.load(std::memory_order_relaxed);
  KOLO_CHECK((kMayFollow[static_cast<std::size_t>(from)] >> static_cast<unsigned>(to) & 1) != 0)
      << "a driver in state " << static_cast<int>(from) << " cannot come to state " << static_cast<int>(to);
  state_.store(to, order);
}

/// Takes the place, or takes it again: another one may have had it, and have marked the rank asleep.
void Driver::resume(State own) noexcept {
  if (state_.load(std::memory_order_relaxed) != own) move(own);
  board_.mark_awake();
}

bool Driver::try_take() {
  if (!lock_.try_lock()) return false;
  take();
  return true;
}

/// A driver that finds no reason to sleep gives way because of `wanted_`.
void Driver::wait_for_lock() {
  wanted_.fetch_add(1);
  lock_.lock();
  wanted_.fetch_sub(1);
}

void Driver::take_over() {
  wait_for_lock();
  take();
}

/// The analysis cannot follow a lock that is tried for in a loop.
bool Driver::seek_lock(const std::function<bool()>& done) KOLO_NO_THREAD_SAFETY_ANALYSIS {
  bool has = lock_.try_lock();
  if (has) return true;
  // The background thread will leave the place. Another thread inside a call may keep it.
  const auto may_be_kept = [this] {
    const State state = state_.load(std::memory_order_relaxed);
    return state == State::called || state == State::leaving;
  };
  seekers_.fetch_add(1);
  for (int tries = 0; !has && !done() && (tries < kTriesBeforeSleep || !may_be_kept()); ++tries) {
    std::this_thread::yield();
    has = lock_.try_lock();
  }
  seekers_.fetch_sub(1);
  return has;
}

bool Driver::seek(const std::function<bool()>& done) {
  if (seek_lock(done)) {
    take();
    return true;
  }
  if (state_.load() == State::beside) ring();  // for this thread, which goes; else who has the place rings
  return false;
}

void Driver::give_way() {
  if (wanted_.load() == 0) return;
  const State own = state_.load(std::memory_order_relaxed);
  lock_.unlock();
  while (wanted_.load() > 0) std::this_thread::yield();
  lock_.lock();
  resume(own);
}

const Driver::Events& Driver::poll() {
  poller_.poll(events_);
  return events_;
}

void Driver::hear_ring() noexcept {
  drain_wake(link_.wake_fd());
  rung_.store(false);
}

/// The background thread may sleep on: this driver took its alarm.
void Driver::hear_alarm() noexcept {
  alarm_.drain();
  wakes_at_ = base::Time::max();
  naps_ = false;
}

void Driver::set_alarm(base::Time due) noexcept {
  if (due >= wakes_at_) return;
  alarm_.set(due);
  wakes_at_ = due;
}

// ---------------------------------------------------------------- a thread inside a call, at its end

void Driver::leave(control::Board::Sleep sleep) noexcept {
  move(State::leaving);
  board_.mark_asleep(sleep);
}

void Driver::let_go(const Rest& rest) noexcept {
  if (!rest.ring) {
    if (rest.is_nap_over) naps_ = false;
    set_alarm(rest.due);
  }
  move(naps_ ? State::napping : State::asleep);
  const bool rings = rest.ring || is_ending();  // this driver may have taken the ring of `end`
  lock_.unlock();
  if (rings) ring();
}

void Driver::nap(base::Time until) noexcept {
  const State state = state_.load(std::memory_order_relaxed);
  if (state == State::background || state == State::called) return;  // it has stepped aside, and looks when it is back
  naps_ = true;
  set_alarm(until);
  if (state == State::asleep) move(State::napping);
}

// ---------------------------------------------------------------- the background thread

void Driver::wake_up() {
  lock_.lock();
  naps_ = false;
  resume(State::background);
}

void Driver::fall(control::Board::Sleep sleep) noexcept {
  move(State::falling);
  board_.mark_asleep(sleep);
}

const Driver::Events& Driver::sleep(std::optional<std::chrono::nanoseconds> timeout, bool is_nap) {
  const base::Time now = base::now();
  wakes_at_ = timeout ? base::after(now, *timeout) : base::Time::max();
  naps_ = is_nap;
  move(is_nap ? State::napping : State::asleep);
  return sleep_unlocked(timeout);
}

/// Both sides store, then look (sequentially consistent): the state here, `seekers_` there. One of them sees the other.
const Driver::Events* Driver::leave_to_seekers() {
  if (seekers_.load() == 0) return nullptr;
  move(State::beside, std::memory_order_seq_cst);
  if (seekers_.load() == 0) {
    move(State::background);
    return nullptr;
  }
  wakes_at_ = base::Time::max();
  naps_ = false;
  return &sleep_unlocked(std::nullopt);
}

const Driver::Events& Driver::sleep_unlocked(std::optional<std::chrono::nanoseconds> timeout) {
  lock_.unlock();
  Events events;
  poller_.wait(timeout, events);
  wake_up();
  events_ = std::move(events);
  return events_;
}

}  // namespace kolo::engine
