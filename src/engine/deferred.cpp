// SPDX-License-Identifier: Apache-2.0
#include "engine/deferred.hpp"

#include <algorithm>
#include <exception>

namespace kolo::engine {

void call_back(const std::function<void(const Status&)>& callback, const Status& status,
               const base::Logger& logger) noexcept {
  try {
    callback(status);
  } catch (const std::exception& error) {
    KOLO_LOG(logger, error) << "a callback of on_done threw an exception, which was dropped: " << error.what();
  } catch (...) {
    KOLO_LOG(logger, error) << "a callback of on_done threw an exception, which was dropped";
  }
}

void Deferred::run(Call call) noexcept {
  {
    const base::MutexLock lock(mutex_);
    threads_.push_back(std::this_thread::get_id());
    running_.fetch_add(1);
  }
  if (call.callback) {
    call_back(call.callback, call.status, logger_);
    call.callback = nullptr;
  } else {
    logger_.write(call.level, std::move(call.record));
  }
  const base::MutexLock lock(mutex_);
  threads_.erase(std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()));
  running_.fetch_sub(1);
}

bool Deferred::is_here() {
  if (running_.load() == 0) return false;
  const base::MutexLock lock(mutex_);
  return std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()) != threads_.end();
}

}  // namespace kolo::engine
