// SPDX-License-Identifier: Apache-2.0
//
// The part of a timeline that belongs to its thread: what waits to be written, and the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "base/unique_fd.hpp"
#include "recorder/recorder.hpp"
#include "timeline/timeline.hpp"

namespace kolo::timeline {

/// An event, or a name (`text` is not empty then).
struct Item {
  recorder::Record record;
  std::string text;
};

/// A rank's lock on a file: there as long as the rank may write.
class Presence {
 public:
  /// Not there where the file system has no locks.
  Presence(int file, int rank) noexcept;
  /// Calls `write` if no other rank is there any more. Once.
  void leave(const std::function<void()>& write) const;

 private:
  int file_;
  int rank_;
  bool is_there_;
};

class TimelineFile {
 public:
  TimelineFile(const Place& place, base::UniqueFd file, Timeline::Report report);
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  /// Any thread.
  void put(Item item) noexcept;
  void count_lost() noexcept;
  /// Nothing is taken any more, and `run` ends once all is written.
  void end() noexcept;
  /// Nothing is reported any more: the thread is left to itself.
  void leave() noexcept;
  void report(const std::string& what) noexcept;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// The thread's.
  void run() noexcept;

 private:
  /// Waits for items. Whether it was the last time.
  bool take_items(std::vector<Item>& items);
  void write(const std::string& lines);

  const std::string path_;
  Writer writer_;        // the thread's
  base::UniqueFd file_;  // likewise
  const Presence presence_;
  bool has_failed_ = false;  // likewise
  base::Mutex mutex_;
  base::ConditionVariable changed_;
  std::vector<Item> items_ KOLO_GUARDED_BY(mutex_);
  std::uint64_t lost_ KOLO_GUARDED_BY(mutex_) = 0;
  bool ends_ KOLO_GUARDED_BY(mutex_) = false;
  base::Mutex reporting_;
  Timeline::Report report_ KOLO_GUARDED_BY(reporting_);
};

}  // namespace kolo::timeline
