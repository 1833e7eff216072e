// SPDX-License-Identifier: Apache-2.0
//
// Uses of base/mutex.hpp that clang must refuse, each beside one that it must accept. It is compiled by
// annotations_test.py alone: the compiler reports what is expected here, or the test fails.
#include "base/mutex.hpp"

#include <mutex>

using kolo::base::ConditionVariable;
using kolo::base::Mutex;
using kolo::base::MutexLock;
using kolo::base::RecursiveMutex;

class Account {
 public:
  int read() {
    const MutexLock lock(mutex_);
    return balance_;
  }
  int read_without() {
    return balance_;  // expected-error {{reading variable 'balance_' requires holding mutex 'mutex_'}}
  }
  void write_without() {
    balance_ = 1;  // expected-error {{writing variable 'balance_' requires holding mutex 'mutex_' exclusively}}
  }
  void read_afterwards() {
    { const MutexLock lock(mutex_); }
    ++balance_;  // expected-error {{writing variable 'balance_' requires holding mutex 'mutex_' exclusively}}
  }
  void read_with_another() {
    const MutexLock lock(log_mutex_);
    ++balance_;  // expected-error {{writing variable 'balance_' requires holding mutex 'mutex_' exclusively}}
  }

  void add() KOLO_REQUIRES(mutex_) { ++balance_; }
  void call() {
    const MutexLock lock(mutex_);
    add();
  }
  void call_without() {
    add();  // expected-error {{calling function 'add' requires holding mutex 'mutex_' exclusively}}
  }

  void deposit() KOLO_EXCLUDES(mutex_) { call(); }
  void deposit_with() {
    const MutexLock lock(mutex_);
    deposit();  // expected-error {{cannot call function 'deposit' while mutex 'mutex_' is held}}
  }
  void lock_twice() {
    const MutexLock lock(mutex_);  // expected-note {{mutex acquired here}}
    mutex_.lock();                 // expected-error {{acquiring mutex 'mutex_' that is already held}}
  }

  void begin() KOLO_ACQUIRE(mutex_) { mutex_.lock(); }
  void end() KOLO_RELEASE(mutex_) { mutex_.unlock(); }
  bool try_begin() KOLO_TRY_ACQUIRE(true, mutex_) { return mutex_.try_lock(); }
  void adopt() {
    begin();
    const MutexLock lock(mutex_, std::adopt_lock);
    add();
  }
  void try_to_add() {
    if (!try_begin()) return;
    add();
    end();
  }
  void add_untried() {
    if (try_begin()) end();
    add();  // expected-error {{calling function 'add' requires holding mutex 'mutex_' exclusively}}
  }
  void forget_to_end() {
    begin();  // expected-note {{mutex acquired here}}
  }           // expected-error {{mutex 'mutex_' is still held at the end of function}}

  void wait() {
    const MutexLock lock(mutex_);
    while (balance_ == 0) changed_.wait(mutex_);
  }
  void wait_without() {
    changed_.wait(mutex_);  // expected-error {{calling function 'wait' requires holding mutex 'mutex_' exclusively}}
  }

  void in_lambdas() KOLO_REQUIRES(mutex_) {
    const auto annotated = [this]() KOLO_REQUIRES(mutex_) { add(); };
    const auto asserts = [this] {
      mutex_.assert_held();
      add();
    };
    const auto neither = [this] {
      add();  // expected-error {{calling function 'add' requires holding mutex 'mutex_' exclusively}}
    };
    annotated(), asserts(), neither();
  }

  void write_by_pointer() {
    entry_ = nullptr;
    const MutexLock lock(mutex_);
    *entry_ = 1;
  }
  void write_by_pointer_without() {
    *entry_ = 1;  // expected-error {{value pointed to by 'entry_' requires holding mutex 'mutex_' exclusively}}
  }

  Mutex& mutex() KOLO_RETURN_CAPABILITY(mutex_) { return mutex_; }
  void unchecked() KOLO_NO_THREAD_SAFETY_ANALYSIS { ++balance_; }

 private:
  Mutex mutex_;
  RecursiveMutex log_mutex_;
  ConditionVariable changed_;
  int balance_ KOLO_GUARDED_BY(mutex_) = 0;
  int* entry_ KOLO_PT_GUARDED_BY(mutex_) = nullptr;
};

void from_outside(Account& account) {
  {
    const MutexLock lock(account.mutex());
    account.add();
  }
  account.add();  // expected-error {{calling function 'add' requires holding mutex 'account.mutex_' exclusively}}
}
