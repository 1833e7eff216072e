// SPDX-License-Identifier: Apache-2.0
#include "c10d/threads.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include <pthread.h>

namespace kolo::c10d {

struct Threads::State : std::enable_shared_from_this<State> {
  const Origin origin;
  std::mutex mutex;
  std::condition_variable changed;
  std::condition_variable ended;  // a task, or it waits for the others
  // All below under the mutex.
  std::deque<Task> tasks;
  int threads = 0;
  int idle = 0;       // of these
  int open = 0;       // tasks that wait or run, until what they hold has gone
  int finishing = 0;  // of these, those that wait for the others
  bool stopped = false;

  void wake_one(std::unique_lock<std::mutex>& lock) {
    if (idle == 0) {
      start_another();
      return;
    }
    lock.unlock();
    changed.notify_one();
  }

  /// Counted as idle from here on, so that two tasks in a row do not start two.
  void start_thread() {
    std::thread([self = shared_from_this()] { self->work(); }).detach();
    ++threads;
    ++idle;
  }

  void start_another() {
    try {
      start_thread();
    } catch (const std::system_error&) {  // those that run will come to it
    }
  }

  void work() {
    here() = this;
    std::unique_lock<std::mutex> lock(mutex);
    while (!stopped) {
      if (tasks.empty()) {
        if (idle > 1) break;
        changed.wait(lock);
        continue;
      }
      Task task = std::move(tasks.front());
      tasks.pop_front();
      --idle;
      if (idle == 0 && !tasks.empty()) start_another();
      lock.unlock();
      task();
      task = nullptr;  // what it holds goes without the lock
      lock.lock();
      ++idle;
      --open;
      ended.notify_all();
    }
    --idle;
    --threads;
  }

  void finish() {
    std::unique_lock<std::mutex> lock(mutex);
    const bool is_task = here() == this;
    if (is_task) ++finishing;
    ended.notify_all();
    ended.wait(lock, [&] { return open == (is_task ? finishing : 0); });
    if (is_task) --finishing;
  }

  /// Whose tasks the calling thread runs.
  static State*& here() {
    thread_local State* state = nullptr;
    return state;
  }
};

// The last task of an object may outlive it: at the end of the process its state is still there.
Threads::Threads() : state_(std::make_shared<State>()) { Registry<State>::get().add(state_); }

Threads::~Threads() {
  std::deque<Task> tasks;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopped = true;
    tasks.swap(state_->tasks);
    state_->open -= static_cast<int>(tasks.size());
  }
  state_->changed.notify_all();
  state_->ended.notify_all();
}

void Threads::start() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->threads == 0) state_->start_thread();
}

void Threads::run(Task task) {
  const std::shared_ptr<State> state = state_;  // the task may end the world, and this object with it
  std::unique_lock<std::mutex> lock(state->mutex);
  if (state->stopped) return;
  state->tasks.push_back(std::move(task));
  ++state->open;
  state->wake_one(lock);
}

void Threads::finish() {
  const std::shared_ptr<State> state = state_;
  state->finish();
}

void Threads::finish_all() {
  for (const auto& each : Registry<State>::get().all()) {
    const std::shared_ptr<State> state = each.lock();
    if (state && !state->origin.is_inherited()) state->finish();
  }
}

std::uint32_t Origin::forks() noexcept {
  static std::atomic<std::uint32_t> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });
  static_cast<void>(registered);
  return count.load(std::memory_order_relaxed);
}

}  // namespace kolo::c10d
