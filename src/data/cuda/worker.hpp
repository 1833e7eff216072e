// SPDX-License-Identifier: Apache-2.0
//
// A thread for calls into CUDA and NCCL that may block for long: for the device, or for other ranks. The driver gives
// them to it, and goes on.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "base/mutex.hpp"
#include "data/cuda/contexts.hpp"

namespace kolo::cuda {

/// Runs tasks in order, with a device current. Its thread starts with the first task.
class Worker {
 public:
  /// `name`: the thread's, at most 15 characters.
  Worker(const char* name, PrimaryContextPtr context) noexcept : name_(name), context_(std::move(context)) {}
  /// Waits for all tasks.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Any thread. The task throws nothing. Throws Error (transport) when no thread can be had; the task is not run then.
  void run(std::function<void()> task);

 private:
  void work() noexcept;

  const char* const name_;
  const PrimaryContextPtr context_;
  base::Mutex mutex_;
  base::ConditionVariable changed_;
  std::deque<std::function<void()>> tasks_ KOLO_GUARDED_BY(mutex_);
  bool ends_ KOLO_GUARDED_BY(mutex_) = false;
  std::thread thread_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo::cuda
