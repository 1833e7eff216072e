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
// A driver marks its rank asleep on the board when no thread drives, because peers wake only sleeping ranks. Before a
// driver leaves for good, it does that (`fall`, `leave`), looks once more, and then goes. A publisher first writes, and
// then looks at the mark. All accesses are sequentially consistent (Board::mark_asleep), so at least one side sees the
// other. Threads of this rank that submit do the same by `nobody_looks`.
//
// The place is what clang checks (base/mutex.hpp): functions take it, let go of it, or require it (`kDriving`), and
// what it guards in the engine cannot be touched without it.
//
// A driver also releases the lock for a short time: for callbacks (`step_aside`), and for threads that want the place
// (`give_way`). Another thread may take the place meanwhile, and mark the rank asleep at its end; the driver that
// comes back takes that mark away.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/poller.hpp"
#include "control/board.hpp"
#include "transport/node_link.hpp"

namespace kolo::engine {

/// The driver's place, for clang. One name stands for the places of all engines, so that the parts of an engine need
/// not tell it whose lock they mean.
struct KOLO_CAPABILITY("driver's place") DriversPlace {};
inline constexpr DriversPlace kDriving;

// What the poller watches, by tag (Driver::kWakes).
inline constexpr std::uint64_t kNoTag = 0;
inline constexpr std::uint64_t kWakeTag = 1;
inline constexpr std::uint64_t kControlTag = 2;
inline constexpr std::uint64_t kAlarmTag = 3;
inline constexpr std::uint64_t kTransportTag = 4;
inline constexpr std::uint64_t kLivenessTag = 16;  ///< and the local rank on top

class Driver {
 public:
  using Events = std::vector<base::Poller::Event>;

  enum class State : std::uint8_t {
    asleep,      ///< no thread drives; the background thread sleeps until it is rung or a deadline comes
    napping,     ///< the same, but it will look at the mailbox soon by itself, so submissions do not ring it
    beside,      ///< it sleeps, and has left the place to threads that seek it
    background,  ///< the background thread drives
    falling,     ///< the background thread has marked the rank asleep, and looks once more
    called,      ///< a thread inside a call drives
    leaving,     ///< that thread has marked the rank asleep, and looks once more
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
      {State::falling, State::background, "Something has come before the mark was seen."},
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

  /// What ends the background thread's sleep, by the poller's tag.
  struct Wake {
    std::uint64_t tag;
    std::string_view who;
    std::string_view why;
  };
  static constexpr std::array<Wake, 6> kWakes{{
      {kWakeTag, "a rank of the node, or a thread of this rank",
       "It has published an entry, a count, a chunk or a message, or left work, and saw that nobody drives."},
      {kControlTag, "another node's leader", "A frame of the control tree has come, or there is space for one."},
      {kAlarmTag, "a thread of this rank that drove", "What it left behind is due, or the nap that it set is over."},
      {kTransportTag, "the transport between nodes", "Something has come since the transport was armed."},
      {kLivenessTag, "the system", "The process of a rank of the node has ended."},
      {kNoTag, "the time-out of the sleep",
       "A deadline has passed, or a nap is over: what rings no bell is looked at."},
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
  /// Whether a submission that was pushed just now needs a ring: no thread drives, and none will look soon. The
  /// mailbox's push and this look are sequentially consistent, as are the mark and the look that
  /// follows it.
  [[nodiscard]] bool nobody_looks() const noexcept {
    return board_.asleep(board_.local_rank()) && state_.load(std::memory_order_acquire) != State::napping;
  }
  /// Rings the background thread where nobody looks.
  void ring_if_asleep() noexcept {
    if (nobody_looks() && !rung_.exchange(true)) ring();
  }
  void ring() noexcept { link_.wake(board_.local_rank()); }
  /// Takes the place if it is free. Returns whether it was.
  [[nodiscard]] bool try_take() KOLO_TRY_ACQUIRE(true, kDriving);
  /// The lock alone, if it is free: to see whether the place is worth taking. `take` follows, or `look_away`.
  [[nodiscard]] bool try_look() KOLO_TRY_ACQUIRE(true, kDriving) { return lock_.try_lock(); }
  /// Takes the place as soon as the present driver gives way.
  void take_over() KOLO_ACQUIRE(kDriving);
  /// Takes the place, unless another thread inside a call keeps it or `done` is true (then false). The background
  /// thread leaves the place to a thread that seeks it.
  [[nodiscard]] bool seek(const std::function<bool()>& done) KOLO_TRY_ACQUIRE(true, kDriving);

  // -- with the lock
  void take() noexcept KOLO_REQUIRES(kDriving) { resume(State::called); }
  void look_away() KOLO_RELEASE(kDriving) { lock_.unlock(); }
  /// For lambdas, of which the analysis does not know where they are called.
  static void assert_held() noexcept KOLO_ASSERT_HELD(kDriving) {}
  /// Whether it is the background thread that drives.
  [[nodiscard]] bool in_background() const noexcept {
    const State state = state_.load(std::memory_order_relaxed);
    return state == State::background || state == State::falling;
  }
  /// Runs `work` without the lock, and takes the place again.
  template <class Work>
  void step_aside(Work&& work) noexcept KOLO_REQUIRES(kDriving) {
    const State own = state_.load(std::memory_order_relaxed);
    lock_.unlock();
    work();
    wait_for_lock();
    resume(own);
  }
  /// Lets a thread have the place that asked for it (a mutex alone would not: it is not fair).
  void give_way() KOLO_REQUIRES(kDriving);
  /// What the background thread sleeps in.
  [[nodiscard]] base::Poller& poller() noexcept KOLO_REQUIRES(kDriving) { return poller_; }
  /// Whether a pass shall look at the poller, which is a system call: one in so many of those that found nothing.
  [[nodiscard]] bool is_poll_due(bool moved, std::uint64_t passes_per_poll) noexcept KOLO_REQUIRES(kDriving) {
    passes_ = moved ? 0 : passes_ + 1;
    return !moved && passes_ % passes_per_poll == 0;
  }
  /// What the poller has now; valid until the next call.
  [[nodiscard]] const Events& poll() KOLO_REQUIRES(kDriving);
  /// The two events that are the driver's own have come.
  void hear_ring() noexcept KOLO_REQUIRES(kDriving);
  void hear_alarm() noexcept KOLO_REQUIRES(kDriving);

  // -- a thread inside a call, at its end
  /// Marks the rank asleep. The caller looks once more, and then lets go.
  void leave(control::Board::Sleep sleep) noexcept KOLO_REQUIRES(kDriving);
  /// How a thread lets go.
  struct Rest {
    bool ring = false;                   ///< the background thread has to go on at once; else:
    base::Time due = base::Time::max();  ///< it has to, then
    bool is_nap_over = false;            ///< submissions from now on shall ring it
  };
  void let_go(const Rest& rest) noexcept KOLO_RELEASE(kDriving);
  /// Submissions come in bursts: instead of being rung, the background thread looks after a nap. The place is not
  /// taken.
  void nap(base::Time until) noexcept KOLO_REQUIRES(kDriving);

  // -- the background thread
  void wake_up() KOLO_ACQUIRE(kDriving);
  /// Marks the rank asleep. The caller looks once more, and then stays, or sleeps.
  void fall(control::Board::Sleep sleep) noexcept KOLO_REQUIRES(kDriving);
  void stay() noexcept KOLO_REQUIRES(kDriving) { resume(State::background); }
  /// Until something rings or is due. Says what the poller has then; valid until the next call.
  [[nodiscard]] const Events& sleep(std::optional<std::chrono::nanoseconds> timeout, bool is_nap)
      KOLO_REQUIRES(kDriving);
  /// Sleeps while a thread that seeks the place has it. That one rings where it leaves something behind, or never comes
  /// to drive. Null: nobody seeks it.
  [[nodiscard]] const Events* leave_to_seekers() KOLO_REQUIRES(kDriving);

  // -- for tests
  [[nodiscard]] State state() const noexcept { return state_.load(); }

 private:
  void move(State to, std::memory_order order = std::memory_order_release) noexcept KOLO_REQUIRES(kDriving);
  void resume(State own) noexcept KOLO_REQUIRES(kDriving);
  void wait_for_lock() KOLO_ACQUIRE(kDriving);
  [[nodiscard]] bool seek_lock(const std::function<bool()>& done) KOLO_TRY_ACQUIRE(true, kDriving);
  void set_alarm(base::Time due) noexcept KOLO_REQUIRES(kDriving);
  const Events& sleep_unlocked(std::optional<std::chrono::nanoseconds> timeout) KOLO_REQUIRES(kDriving);

  /// A mutex, and for clang the place. The analysis need not know that it is one.
  class Lock {
   public:
    void lock() KOLO_ACQUIRE(kDriving) KOLO_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
    void unlock() KOLO_RELEASE(kDriving) KOLO_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
    [[nodiscard]] bool try_lock() KOLO_TRY_ACQUIRE(true, kDriving) KOLO_NO_THREAD_SAFETY_ANALYSIS {
      return mutex_.try_lock();
    }

   private:
    base::Mutex mutex_;
  };

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

  Lock lock_;
  std::atomic<State> state_{State::asleep};  ///< written with the lock held: `move`
  /// When the sleeping background thread wakes by itself.
  base::Time wakes_at_ KOLO_GUARDED_BY(kDriving) = base::Time::max();
  bool naps_ KOLO_GUARDED_BY(kDriving) = false;  ///< its nap has not ended
  Events events_ KOLO_GUARDED_BY(kDriving);
  std::uint64_t passes_ KOLO_GUARDED_BY(kDriving) = 0;  ///< in a row that found nothing
};

/// Lets go of the lock at the end of its scope, and does nothing else.
class KOLO_SCOPED_CAPABILITY DriverLock {
 public:
  explicit DriverLock(Driver& driver) noexcept KOLO_REQUIRES(kDriving) : driver_(driver) {}
  ~DriverLock() KOLO_RELEASE() { driver_.look_away(); }
  DriverLock(const DriverLock&) = delete;
  DriverLock& operator=(const DriverLock&) = delete;

 private:
  Driver& driver_;
};

}  // namespace kolo::engine
