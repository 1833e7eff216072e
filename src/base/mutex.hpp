// SPDX-License-Identifier: Apache-2.0
//
// Mutexes whose use clang checks when it compiles (-Wthread-safety). std::mutex does the work: the wrappers are inline
// and add nothing. For other compilers the annotations are empty.
//
//   base::Mutex mutex_;
//   int balance_ KOLO_GUARDED_BY(mutex_) = 0;     // a read or write without the mutex does not compile
//   void deposit(int amount) KOLO_REQUIRES(mutex_);  // nor does such a call
//
// Clang checks one function at a time, and treats a lambda as a function of its own. A lambda that needs a mutex is
// annotated itself, behind its parameters, or begins with `assert_held`. Constructors and destructors are not checked.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/machine.hpp"

#if defined(__clang__)
#define KOLO_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define KOLO_THREAD_SAFETY(attribute)
#endif

/// For a class: a lock, and an object that holds it for a scope.
#define KOLO_CAPABILITY(name) KOLO_THREAD_SAFETY(capability(name))
#define KOLO_SCOPED_CAPABILITY KOLO_THREAD_SAFETY(scoped_lockable)
/// For a variable: it is read and written with the mutex held. For a pointer: so is what it points to.
#define KOLO_GUARDED_BY(mutex) KOLO_THREAD_SAFETY(guarded_by(mutex))
#define KOLO_PT_GUARDED_BY(mutex) KOLO_THREAD_SAFETY(pt_guarded_by(mutex))
/// For a function: the caller holds the mutex, or must not hold it.
#define KOLO_REQUIRES(...) KOLO_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define KOLO_EXCLUDES(...) KOLO_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
/// For a function: it acquires the mutex, releases it, or has acquired it if it returns `result`.
#define KOLO_ACQUIRE(...) KOLO_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define KOLO_RELEASE(...) KOLO_THREAD_SAFETY(release_capability(__VA_ARGS__))
#define KOLO_TRY_ACQUIRE(...) KOLO_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))
/// For a function: it returns the mutex; for a function after whose call the mutex counts as held.
#define KOLO_RETURN_CAPABILITY(mutex) KOLO_THREAD_SAFETY(lock_returned(mutex))
#define KOLO_ASSERT_HELD(...) KOLO_THREAD_SAFETY(assert_capability(__VA_ARGS__))
/// For a function that the analysis cannot follow. Keep it small, and say why in a sentence beside it.
#define KOLO_NO_THREAD_SAFETY_ANALYSIS KOLO_THREAD_SAFETY(no_thread_safety_analysis)

namespace kolo::base {

template <class Standard>
class KOLO_CAPABILITY("mutex") BasicMutex {
 public:
  BasicMutex() = default;
  BasicMutex(const BasicMutex&) = delete;
  BasicMutex& operator=(const BasicMutex&) = delete;

  void lock() KOLO_ACQUIRE() { mutex_.lock(); }
  void unlock() KOLO_RELEASE() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() KOLO_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  /// Only of an AwaitedMutex: whether threads wait for it.
  [[nodiscard]] bool is_awaited() const noexcept { return mutex_.is_awaited(); }
  /// Tells the analysis that the caller holds the mutex. Does nothing at run time.
  void assert_held() const noexcept KOLO_ASSERT_HELD(this) {}

 private:
  friend class ConditionVariable;

  Standard mutex_;
};

/// A mutex that knows whether threads wait for it. A thread that acquires it in a loop can then let them go first.
/// Otherwise it would mostly acquire the mutex again before a waiting thread has woken up.
class CountedMutex {
 public:
  void lock() {
    if (!mutex_.try_lock()) await_and_lock();
  }
  void unlock() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() { return mutex_.try_lock(); }
  [[nodiscard]] bool is_awaited() const noexcept { return waiting_.load(std::memory_order_relaxed) > 0; }

 private:
  /// Pauses before it sleeps: the thread that holds the mutex may see the waiting one, and release it at once. Sleeping
  /// and waking up take longer.
  [[gnu::noinline]] void await_and_lock() {
    constexpr int kPauses = 100;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    bool is_locked = false;
    for (int pauses = 0; pauses < kPauses && !is_locked; ++pauses) {
      cpu_relax();
      is_locked = mutex_.try_lock();
    }
    if (!is_locked) mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::atomic<int> waiting_{0};
};

using Mutex = BasicMutex<std::mutex>;
using AwaitedMutex = BasicMutex<CountedMutex>;
using RecursiveMutex = BasicMutex<std::recursive_mutex>;

/// Holds a mutex until the end of its scope.
template <class Standard>
class KOLO_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(BasicMutex<Standard>& mutex) KOLO_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  /// For a mutex that the caller holds already.
  MutexLock(BasicMutex<Standard>& mutex, std::adopt_lock_t) KOLO_REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() KOLO_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  BasicMutex<Standard>& mutex_;
};

/// Waits may return without a notification, so call them in a loop that checks the condition. (There is no predicate,
/// because the analysis would check the lambda as a function of its own.)
class ConditionVariable {
 public:
  void wait(Mutex& mutex) KOLO_REQUIRES(mutex) {
    // std::condition_variable::wait does the same. But its symbol has a new version in libstdc++ 12, which would make a
    // libkolo that was built there unloadable with an older libstdc++.
    const int error = ::pthread_cond_wait(changed_.native_handle(), mutex.mutex_.native_handle());
    KOLO_CHECK(error == 0) << "pthread_cond_wait: error " << error;
  }
  /// False when the time has come.
  bool wait_until(Mutex& mutex, Time until) KOLO_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = changed_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace kolo::base
