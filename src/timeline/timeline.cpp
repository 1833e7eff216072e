// SPDX-License-Identifier: Apache-2.0
#include "timeline/timeline.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "base/start_thread.hpp"
#include "base/system_error.hpp"
#include "base/thread_name.hpp"

namespace kolo::timeline {
namespace {

/// So many events are written at once, or those of so long a time.
constexpr std::size_t kMany = 4096;
constexpr std::chrono::milliseconds kPause{100};

base::UniqueFd open_file(const std::string& path, int flags) {
  base::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666));
  if (!file) base::throw_errno("open " + path, errno);
  return file;
}

/// Takes the last `bytes` off the file again, a line that is not whole, unless another rank has written behind them.
void take_back(int file, std::size_t bytes) {
  const off_t end = ::lseek(file, 0, SEEK_CUR);
  struct stat about {};
  if (end < 0 || ::fstat(file, &about) != 0 || about.st_size != end) return;
  static_cast<void>(::ftruncate(file, end - static_cast<off_t>(bytes)) == 0);
}

/// Whole lines: those of other ranks come between two writes, never amid one. 0, or the error.
int write_all(int file, const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t written = ::write(file, text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      const std::size_t line_end = text.rfind('\n', at);
      const std::size_t line = at == 0 || line_end == at - 1 ? at : line_end == std::string::npos ? 0 : line_end + 1;
      if (line < at) take_back(file, at - line);
      return error;
    }
    at += static_cast<std::size_t>(written);
  }
  return 0;
}

}  // namespace

void create(const std::string& path) {
  const base::UniqueFd file = open_file(path, O_TRUNC);
  if (const int error = write_all(file.get(), "[\n")) base::throw_errno("write to " + path, error);
}

Timeline::Timeline(const Place& place, std::function<void(const std::string&)> report)
    : writer_(place), report_(std::move(report)), path_(place.path), file_(open_file(place.path, 0)) {
  write(writer_.head());
  thread_ = base::start_thread("the timeline's thread", [this] { run(); });
}

void Timeline::end() noexcept {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Timeline::take(const recorder::Record& record) noexcept { put({record, {}}); }

void Timeline::name(std::uint64_t id, std::string_view text) noexcept {
  try {
    Item item;
    item.record.id = id;
    item.text = text.empty() ? std::string_view(" ") : text;
    put(std::move(item));
  } catch (const std::bad_alloc&) {
    const base::MutexLock lock(mutex_);
    ++lost_;
  }
}

void Timeline::put(Item item) noexcept {
  bool wakes = false;
  {
    const base::MutexLock lock(mutex_);
    if (ends_) return;
    try {
      items_.push_back(std::move(item));
      wakes = items_.size() == 1 || items_.size() == kMany;
    } catch (const std::bad_alloc&) {
      ++lost_;
    }
  }
  if (wakes) changed_.notify_one();
}

void Timeline::run() {
  base::set_thread_name("kolo-timeline");
  std::vector<Item> items;
  std::uint64_t told = 0;
  for (bool ends = false; !ends;) {
    std::uint64_t lost = 0;
    {
      const base::MutexLock lock(mutex_);
      while (items_.empty() && !ends_) changed_.wait(mutex_);
      const base::Time until = base::now() + kPause;
      while (items_.size() < kMany && !ends_ && changed_.wait_until(mutex_, until)) {
      }
      ends = ends_;
      lost = lost_;
      items.swap(items_);
    }
    std::string lines;
    for (const Item& item : items) {
      if (!item.text.empty()) {
        writer_.name(item.record.id, item.text);
      } else {
        writer_.add(item.record, lines);
      }
    }
    items.clear();
    write(lines);
    if (lost > told && !has_failed_)
      report_("the timeline lacks " + std::to_string(lost) + " events for want of memory");
    told = lost;
  }
}

void Timeline::write(const std::string& lines) {
  if (has_failed_ || lines.empty()) return;
  const int error = write_all(file_.get(), lines);
  if (error == 0) return;
  has_failed_ = true;
  report_("the timeline ends here: write to " + path_ + ": " + base::errno_text(error));
}

}  // namespace kolo::timeline
