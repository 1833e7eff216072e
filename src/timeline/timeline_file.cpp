// SPDX-License-Identifier: Apache-2.0
#include "timeline/timeline_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "base/files.hpp"
#include "base/quote.hpp"
#include "base/system_error.hpp"
#include "base/thread.hpp"

namespace kolo::timeline {
namespace {

/// So many events are written at once, or those of so long a time.
constexpr std::size_t kMany = 4096;
constexpr std::chrono::milliseconds kPause{100};

/// The locks are beyond every file's end: one that ranks hold while they leave, and behind it one for each rank.
constexpr off_t kLeaving = off_t{1} << 62U;
constexpr off_t kMostRanks = off_t{1} << 32U;

/// F_OFD_SETLK, F_OFD_SETLKW or F_OFD_GETLK, of an open file and not of a process: ranks may be threads.
bool lock_range(int file, int command, short type, off_t first, off_t count, struct flock* found = nullptr) noexcept {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  int done = -1;
  do {
    done = ::fcntl(file, command, &lock);
  } while (done != 0 && errno == EINTR);
  if (found != nullptr) *found = lock;
  return done == 0;
}

/// Takes the last `bytes` off the file again, a line that is not whole, unless another rank has written behind them.
void take_back(int file, std::size_t bytes) {
  const off_t end = ::lseek(file, 0, SEEK_CUR);
  struct stat about {};
  if (end < 0 || ::fstat(file, &about) != 0 || about.st_size != end) return;
  static_cast<void>(::ftruncate(file, end - static_cast<off_t>(bytes)) == 0);
}

/// Whole lines: those of other ranks come between two writes, never amid one. 0, or the error.
int write_lines(int file, const std::string& text) {
  std::size_t written = 0;
  const int error = base::write_all(file, text, &written);
  if (error == 0 || written == 0) return error;
  const std::size_t line_end = text.rfind('\n', written - 1);
  const std::size_t line = line_end == std::string::npos ? 0 : line_end + 1;
  if (line < written) take_back(file, written - line);
  return error;
}

}  // namespace

Presence::Presence(int file, int rank) noexcept
    : file_(file), rank_(rank), is_there_(lock_range(file, F_OFD_SETLK, F_WRLCK, kLeaving + 1 + rank, 1)) {}

void Presence::leave(const std::function<void()>& write) const {
  if (!is_there_ || !lock_range(file_, F_OFD_SETLKW, F_WRLCK, kLeaving, 1)) return;
  struct flock other {};
  const bool is_last = lock_range(file_, F_OFD_SETLK, F_UNLCK, kLeaving + 1 + rank_, 1) &&
                       lock_range(file_, F_OFD_GETLK, F_WRLCK, kLeaving + 1, kMostRanks, &other) &&
                       other.l_type == F_UNLCK;
  if (is_last) write();
  static_cast<void>(lock_range(file_, F_OFD_SETLK, F_UNLCK, kLeaving, 1));  // else it goes with the file
}

TimelineFile::TimelineFile(const Place& place, base::UniqueFd file, Timeline::Report report)
    : path_(place.path), writer_(place), file_(std::move(file)), presence_(file_.get(), place.rank),
      report_(std::move(report)) {}

void TimelineFile::put(Item item) noexcept {
  bool wakes = false;
  {
    const base::MutexLock lock(mutex_);
    if (ends_) return;
    try {
      if (items_.size() < kMostWaiting) {
        items_.push_back(std::move(item));
        wakes = items_.size() == 1 || items_.size() == kMany;
      } else {
        ++lost_;
      }
    } catch (const std::bad_alloc&) {
      ++lost_;
    }
  }
  if (wakes) changed_.notify_one();
}

void TimelineFile::count_lost() noexcept {
  const base::MutexLock lock(mutex_);
  ++lost_;
}

void TimelineFile::end() noexcept {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
}

void TimelineFile::leave() noexcept {
  const base::MutexLock lock(reporting_);
  report_ = nullptr;
}

void TimelineFile::report(const std::string& what) noexcept {
  const base::MutexLock lock(reporting_);
  try {
    if (report_) report_(what);
  } catch (const std::exception&) {  // a job goes on without the sentence
  }
}

bool TimelineFile::take_items(std::vector<Item>& items) {
  const base::MutexLock lock(mutex_);
  while (items_.empty() && !ends_) changed_.wait(mutex_);
  const base::Time until = base::now() + kPause;
  while (items_.size() < kMany && !ends_ && changed_.wait_until(mutex_, until)) {
  }
  items.swap(items_);
  return ends_;
}

void TimelineFile::run() noexcept {
  base::set_thread_name("kolo-timeline");
  try {
    write(writer_.head());
    std::vector<Item> items;
    for (bool ends = false; !ends;) {
      ends = take_items(items);
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
    }
    presence_.leave([this] { write(writer_.tail()); });
  } catch (const std::bad_alloc&) {
    report("the timeline ends here: there is no memory");
    end();
    return;
  }
  std::uint64_t lost = 0;
  {
    const base::MutexLock lock(mutex_);
    lost = lost_;
  }
  if (lost > 0 && !has_failed_) {
    report("the timeline lacks " + std::to_string(lost) +
           " events: they came faster than the file took them, or there was no memory for them");
  }
}

void TimelineFile::write(const std::string& lines) {
  if (has_failed_ || lines.empty()) return;
  const int error = write_lines(file_.get(), lines);
  if (error == 0) return;
  has_failed_ = true;
  report("the timeline ends here: write to " + base::escaped(path_) + ": " + base::errno_text(error));
}

}  // namespace kolo::timeline
