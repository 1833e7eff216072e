// SPDX-License-Identifier: Apache-2.0
//
// The driver of an engine: which thread it is, how the place changes hands, and how threads go to sleep.
//
// One thread at a time has the driver's place, and with it the lock: the background thread, or a thread inside a call
// that waits, submits or asks. What a driver does is the engine's; this file knows how the place changes hands, and
// what the background thread sleeps in: one poller, where every socket, this rank's eventfd and an alarm end.
//
// The state says who has the place, and how the background thread sleeps where it does. It is written with the lock
// held, and it changes by the moves of one table, `kMoves`, alone. It may be read without the lock, where what is read
// only decides whether to try, or whether to ring once more.
//
// That nobody drives is announced on the board, because peers ring who sleeps: before a driver lets go for good it
// announces that (`fall`, `leave`), looks once more, and then goes. Whoever publishes something writes it first and
// looks at the announcement then; both sides are sequentially consistent (Board::announce_sleep), so one of them sees
// the other. Threads of this rank that submit do the same by `nobody_looks`.
//
// A driver lets go of the lock for a moment, too: for callbacks (`step_aside`), and for threads that want the place
// (`give_way`). Another one may take the place meanwhile, and announce at its end that nobody drives; who comes back
// takes the announcement back.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/poller.hpp"
#include "base/timer_fd.hpp"
#include "control/board.hpp"
#include "transport/node_link.hpp"

namespace kolo::engine {

class Driver {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using Events = std::vector<base::Poller::Event>;

  enum class State : std::uint8_t {
    asleep,      ///< nobody drives; the background thread sleeps until it is rung or something is due
    napping,     ///< the same, but it looks at the mailbox soon by itself: submissions do not ring it
    beside,      ///< it sleeps, and has left the place to threads that seek it
    background,  ///< the background thread drives
    falling,     ///< the background thread has announced that nobody drives, and looks once more
    called,      ///< a thread inside a call drives
    leaving,     ///< that thread has announced that nobody drives, and looks once more
  };
  static constexpr std::size_t kStates = 7;

  struct Move {
    State from;
    State to;
    std::string_view why;
  };
  static constexpr std::array<Move, 17> kMoves{{
      {State::asleep, State::background, "The background thread was rung, or something is due."},
      {State::napping, State::background, "Its nap is over, or a peer has rung."},
      {State::beside, State::background, "The thread that it left the place to never came, or left something behind."},
      {State::background, State::beside, "A waiting thread seeks the place: waking it costs more than leaving it."},
      {State::background, State::falling, "There was nothing to do for as long as its patience lasts."},
      {State::falling, State::background, "Something has come before the announcement was seen."},
      {State::falling, State::asleep, "Nothing has come: it sleeps."},
      {State::falling, State::napping, "Nothing has come, but submissions come in bursts: it looks again soon."},
      {State::asleep, State::napping, "A thread that submits amid a burst has set the alarm instead of ringing."},
      {State::asleep, State::called, "A thread inside a call takes the place that nobody has."},
      {State::napping, State::called, "A thread inside a call takes the place during the nap."},
      {State::beside, State::called, "The thread that sought the place has it."},
      {State::background, State::called, "The background thread has stepped aside, and a thread inside a call came."},
      {State::called, State::background, "A thread inside a call has stepped aside, and the background thread came."},
      {State::called, State::leaving, "A thread inside a call has what it wanted, or its patience is over."},
      {State::leaving, State::asleep, "It goes; what is left is due later, or was rung for."},
      {State::leaving, State::napping, "It goes, and the background thread's nap has not ended."},
  }};

  /// All that may fail: throws Error (transport) where the system lacks descriptors. `board` and `link` outlive it.
  Driver(control::Board& board, transport::NodeLink& link);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // -- the background thread's life
  /// Makes it; it runs `body` once `begin` is called. Throws Error (transport).
  void start(std::function<void()> body);
  void begin() noexcept;
  /// Has `body` return, and waits for that. Also when it was never started, or has not begun.
  void end();
  [[nodiscard]] bool is_ending() const noexcept { return ending_.load(std::memory_order_acquire); }

  // -- any thread, without the lock
  /// Whether what was published just now waits for somebody to drive: nobody does, and nobody looks soon. The mailbox's
  /// push and this look are sequentially consistent, as are the announcement of sleep and the look that follows it.
  [[nodiscard]] bool nobody_looks() const noexcept {
    return board_.asleep(board_.local_rank()) && state_.load(std::memory_order_acquire) != State::napping;
  }
  /// Rings the background thread where nobody looks.
  void ring_if_asleep() noexcept {
    if (nobody_looks() && !rung_.exchange(true)) ring();
  }
  void ring() noexcept { link_.wake(board_.local_rank()); }
  /// The place, if it is free.
  [[nodiscard]] Lock try_take();
  /// The lock alone, if it is free: to see whether the place is worth taking. `take` follows, or nothing.
  [[nodiscard]] Lock try_look() { return Lock(mutex_, std::try_to_lock); }
  /// The place, as soon as who has it gives way.
  [[nodiscard]] Lock take_over();
  /// The place, unless another thread inside a call has it; given up once `done`. The background thread leaves it to
  /// who seeks it.
  [[nodiscard]] Lock seek(const std::function<bool()>& done);

  // -- with the lock
  void take() noexcept { resume(State::called); }
  /// Whether it is the background thread that drives.
  [[nodiscard]] bool in_background() const noexcept {
    const State state = state_.load(std::memory_order_relaxed);
    return state == State::background || state == State::falling;
  }
  /// Runs `work` without the lock, and takes the place again.
  template <class Work>
  void step_aside(Lock& lock, Work&& work) {
    const State own = state_.load(std::memory_order_relaxed);
    lock.unlock();
    work();
    lock = wait_for_lock();
    resume(own);
  }
  /// Lets a thread have the place that asked for it (a mutex alone would not: it is not fair).
  void give_way(Lock& lock);
  /// What the background thread sleeps in.
  [[nodiscard]] base::Poller& poller() noexcept { return poller_; }
  /// What the poller has now; valid until the next call.
  [[nodiscard]] const Events& poll();
  /// The two events that are the driver's own have come.
  void hear_ring() noexcept;
  void hear_alarm() noexcept;

  // -- a thread inside a call, at its end
  /// Announces that nobody drives. The caller looks once more, and then lets go.
  void leave(control::Board::Sleep sleep) noexcept;
  /// How a thread lets go.
  struct Rest {
    bool ring = false;                   ///< the background thread has to go on at once; else:
    base::Time due = base::Time::max();  ///< it has to, then
    bool is_nap_over = false;            ///< submissions from now on shall ring it
  };
  void let_go(Lock& lock, const Rest& rest) noexcept;
  /// Submissions come in bursts: instead of being rung, the background thread looks after a nap. The place is not
  /// taken.
  void nap(base::Time until) noexcept;

  // -- the background thread
  [[nodiscard]] Lock wake_up();
  /// Announces that nobody drives. The caller looks once more, and then stays, or sleeps.
  void fall(control::Board::Sleep sleep) noexcept;
  void stay() noexcept { resume(State::background); }
  /// Until something rings or is due. Says what the poller has then; valid until the next call.
  [[nodiscard]] const Events& sleep(Lock& lock, std::optional<std::chrono::nanoseconds> timeout, bool is_nap);
  /// Sleeps while a thread that seeks the place has it. That one rings where it leaves something behind, or never comes
  /// to drive. Null: nobody seeks it.
  [[nodiscard]] const Events* leave_to_seekers(Lock& lock);

  // -- for tests
  [[nodiscard]] State state() const noexcept { return state_.load(); }

 private:
  void move(State to, std::memory_order order = std::memory_order_release) noexcept;
  void resume(State own) noexcept;
  [[nodiscard]] Lock wait_for_lock();
  void set_alarm(base::Time due) noexcept;
  const Events& sleep_unlocked(Lock& lock, std::optional<std::chrono::nanoseconds> timeout);

  control::Board& board_;
  transport::NodeLink& link_;
  base::Poller poller_;
  base::TimerFd alarm_;  ///< for the sleeping background thread
  std::thread thread_;

  std::atomic<bool> begun_{false};
  std::atomic<bool> ending_{false};
  std::atomic<bool> rung_{false};  ///< by a thread of this rank, and not heard yet
  std::atomic<int> seekers_{0};    ///< threads that seek the place
  std::atomic<int> wanted_{0};     ///< threads for which the driver gives way

  std::mutex mutex_;
  // Written under mutex_.
  std::atomic<State> state_{State::asleep};
  base::Time wakes_at_ = base::Time::max();  ///< when the sleeping background thread wakes by itself
  bool naps_ = false;                        ///< its nap has not ended
  Events events_;
};

/// Whether the table has this move.
[[nodiscard]] constexpr bool is_legal(Driver::State from, Driver::State to) noexcept {
  for (const Driver::Move& move : Driver::kMoves) {
    if (move.from == from && move.to == to) return true;
  }
  return false;
}

}  // namespace kolo::engine
