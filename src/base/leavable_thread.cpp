// SPDX-License-Identifier: Apache-2.0
#include "base/leavable_thread.hpp"

#include <exception>
#include <utility>

#include "base/start_thread.hpp"

namespace kolo::base {

LeavableThread::LeavableThread(std::string_view what, std::function<void()> body) : end_(std::make_shared<End>()) {
  thread_ = start_thread(what, [end = end_, body = std::move(body)] {
    body();
    {
      const MutexLock lock(end->mutex);
      end->is_over = true;
    }
    end->changed.notify_all();
  });
}

LeavableThread::~LeavableThread() {
  if (thread_.joinable()) thread_.detach();
}

bool LeavableThread::ends_by(Time deadline) noexcept {
  if (!thread_.joinable()) return true;
  {
    const MutexLock lock(end_->mutex);
    while (!end_->is_over && end_->changed.wait_until(end_->mutex, deadline)) {
    }
    if (!end_->is_over) return false;
  }
  thread_.join();
  return true;
}

bool run_within(Duration patience, std::string_view what, std::function<void()> body) {
  const auto failure = std::make_shared<std::exception_ptr>();
  LeavableThread thread(what, [failure, body = std::move(body)] {
    try {
      body();
    } catch (...) {
      *failure = std::current_exception();
    }
  });
  if (!thread.ends_by(after(now(), patience))) return false;
  if (*failure) std::rethrow_exception(*failure);
  return true;
}

}  // namespace kolo::base
