// SPDX-License-Identifier: Apache-2.0
//
// Threads on which futures complete, and objects that a forked process inherits. A program's callback of a future may
// take long, and may wait for another future. While there is work, there is therefore always one more thread than tasks
// that run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace kolo::c10d {

/// The objects of a class that there are in this process, in the order in which they were made. It is never destroyed:
/// some of them may be static. Any thread.
template <class Object>
class Registry {
 public:
  static Registry& get() {
    static auto* registry = new Registry;
    return *registry;
  }
  void add(const std::shared_ptr<Object>& object) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto has_gone = [](const auto& each) { return each.expired(); };
    objects_.erase(std::remove_if(objects_.begin(), objects_.end(), has_gone), objects_.end());
    objects_.push_back(object);
  }
  [[nodiscard]] std::vector<std::weak_ptr<Object>> all() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return objects_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Object>> objects_;  // under the mutex
};

/// All members may be called from any thread.
class Threads {
 public:
  using Task = std::function<void()>;

  Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  /// What has not begun is dropped; what runs goes on by itself, for it may be the caller.
  ~Threads();

  /// Starts the first thread, unless it runs. To be called before a task is given. Throws `std::system_error`.
  void start();
  /// Runs the task soon. Tasks must not throw. Where no further thread can be started, they wait for one another.
  void run(Task task);
  /// Waits until the tasks have ended that were given to `run`. A task may call it: it waits
  /// for the others, but for those that wait here, too. What tasks need, as Python's lock, must be free.
  void finish();
  /// The same for all objects of the process, also for tasks whose object has gone.
  static void finish_all();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Objects that a process inherits when it is forked, as data loaders' workers do. Their threads and their place in the
/// job are the parent's: in the child their destructors do nothing. This is a member of such an object. Any thread may
/// ask.
class Origin {
 public:
  Origin() noexcept : forks_(forks()) {}
  /// Whether this process has been forked since.
  [[nodiscard]] bool is_inherited() const noexcept { return forks_ != forks(); }

 private:
  /// Between the first process and this one.
  static std::uint32_t forks() noexcept;
  std::uint32_t forks_;
};

}  // namespace kolo::c10d
