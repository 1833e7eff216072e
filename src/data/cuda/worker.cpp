// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/worker.hpp"

#include <optional>
#include <string>
#include <utility>

#include <kolo/error.hpp>

#include "base/thread.hpp"

namespace kolo::cuda {

Worker::~Worker() {
  std::thread thread;
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
    thread = std::move(thread_);
    changed_.notify_all();
  }
  if (thread.joinable()) thread.join();
}

void Worker::run(std::function<void()> task) {
  const base::MutexLock lock(mutex_);
  if (!thread_.joinable()) {
    thread_ = base::start_thread(std::string("the thread ") + name_, [this] { work(); });
  }
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void Worker::work() noexcept {
  base::set_thread_name(name_);
  std::optional<DeviceGuard> guard;
  try {
    guard.emplace(*context_);
  } catch (const Error&) {
    // The device has failed, and what the tasks call will say so.
  }
  for (;;) {
    std::function<void()> task;
    {
      const base::MutexLock lock(mutex_);
      while (tasks_.empty() && !ends_) changed_.wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace kolo::cuda
