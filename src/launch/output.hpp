// SPDX-License-Identifier: Apache-2.0
//
// Passes on what child processes write to this process's standard output and standard error. Nothing here blocks: the
// reader of this process's output may be slow or stopped, and deaths and signals must still be noticed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace kolo::launch {

/// A descriptor of this process, and the text that is not written yet.
class Target {
 public:
  explicit Target(int fd) : fd_(fd) {}

  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Whether text waits for the descriptor to become writable.
  [[nodiscard]] bool waits() const noexcept { return !unsent_.empty(); }
  /// False: the caller must not read more text for it.
  [[nodiscard]] bool has_room() const noexcept;
  /// Writes the text now, or keeps it. Text that cannot be written is lost, as if the child had written it there.
  void put(std::string_view text);
  /// Writes what is possible now.
  void write_some();
  /// Why text was lost first; 0: none was.
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  const int fd_;
  int error_ = 0;
  std::string unsent_;
};

/// One pipe of a process.
class ChildOutput {
 public:
  /// `target`: where whole lines go; null: the text is kept for `take`.
  ChildOutput(base::UniqueFd source, Target* target) : source_(std::move(source)), target_(target) {}

  [[nodiscard]] int fd() const noexcept { return source_.get(); }
  [[nodiscard]] bool over() const noexcept { return !source_.valid(); }
  [[nodiscard]] bool wants_more() const noexcept { return !over() && (target_ == nullptr || target_->has_room()); }
  [[nodiscard]] std::string take() noexcept { return std::move(text_); }

  /// Call it when there is something to read, or an end. Reads once, so that other pipes get their turn.
  void serve();
  /// The process has ended: reads what is there now, and passes it on, also a last line without an end. Later text of
  /// other processes that hold the pipe is ignored, because they may never end.
  void finish();

 private:
  /// How many bytes came.
  std::size_t read_some(std::size_t most);
  void pass_on(std::size_t bytes);

  base::UniqueFd source_;
  Target* target_;
  std::string text_;
};

}  // namespace kolo::launch
