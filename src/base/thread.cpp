// SPDX-License-Identifier: Apache-2.0
#include "base/thread.hpp"

#include <array>
#include <string>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <unistd.h>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/system_error.hpp"

namespace kolo::base {

void set_thread_name(std::string_view name) {
  const std::string kept(name.substr(0, 15));
  const int error = ::pthread_setname_np(::pthread_self(), kept.c_str());
  KOLO_CHECK(error == 0) << "pthread_setname_np: errno " << error;
}

std::string thread_name() {
  std::array<char, 16> name{};
  const int error = ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  KOLO_CHECK(error == 0) << "pthread_getname_np: errno " << error;
  return name.data();
}

std::thread start_thread(std::string_view what, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    throw Error(ErrorCode::transport,
                std::string(what) + " cannot be started: " + errno_text(code) + start_remedy(code));
  }
}

LeavableThread::LeavableThread(std::string_view what, std::function<void()> body) {
  const auto task = std::make_shared<std::packaged_task<void()>>(std::move(body));
  over_ = task->get_future();
  thread_ = start_thread(what, [task] { (*task)(); });
}

LeavableThread::~LeavableThread() {
  if (thread_.joinable()) thread_.detach();
}

bool LeavableThread::ends_by(Time deadline) {
  if (over_.wait_until(deadline) != std::future_status::ready) return false;
  thread_.join();
  over_.get();
  return true;
}

bool run_within(Duration patience, std::string_view what, std::function<void()> body) {
  return LeavableThread(what, std::move(body)).ends_by(after(now(), patience));
}

Watchdog::Watchdog(Duration patience, std::string last_words, int status) {
  try {
    thread_ = std::thread([this, patience, words = std::move(last_words) + "\n", status] {
      set_thread_name("kolo-watchdog");
      watch(patience, words, status);
    });
  } catch (const std::system_error&) {
    // There is no deadline then: the caller's work is more important.
  }
}

Watchdog::~Watchdog() {
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  called_off_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::watch(Duration patience, const std::string& last_words, int status) {
  constexpr int kLooks = 8;
  int looks = 0;  // in a row that saw the same call
  std::uint64_t seen = 0;
  const MutexLock lock(mutex_);
  while (true) {
    const Time until = after(now(), patience / kLooks);
    bool in_time = true;
    while (in_time && !over_) in_time = called_off_.wait_until(mutex_, until);
    if (over_) return;
    const std::uint64_t passes = passes_.load(std::memory_order_relaxed);
    const bool is_inside = passes % 2 == 1;
    looks = is_inside && passes == seen ? looks + 1 : 0;
    seen = passes;
    if (looks < kLooks) continue;
    // The process ends whether or not this can be written.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, last_words.data(), last_words.size());
    ::_exit(status);
  }
}

}  // namespace kolo::base
