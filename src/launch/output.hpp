// SPDX-License-Identifier: Apache-2.0
//
// What processes write, on its way to the standard output and the standard error of this one. Nothing here blocks: who
// reads this process's output may be slow, or have stopped, and deaths and signals are to be heard all the same.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace kolo::launch {

/// A descriptor of this process, and what it has not taken yet.
class Target {
 public:
  explicit Target(int fd) : fd_(fd) {}

  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Whether something waits for the descriptor to become writable.
  [[nodiscard]] bool waits() const noexcept { return !unsent_.empty(); }
  /// False: more is not to be read for it.
  [[nodiscard]] bool has_room() const noexcept;
  /// Writes it now, or keeps it. What cannot be written is lost, as it would be if its author wrote it here.
  void put(std::string_view text);
  /// Writes what is possible now.
  void write_some();

 private:
  const int fd_;
  std::string unsent_;
};

/// One pipe of a process.
class Output {
 public:
  /// `target`: where whole lines go; null: the text is kept for `take`.
  Output(base::UniqueFd source, Target* target) : source_(std::move(source)), target_(target) {}

  [[nodiscard]] int fd() const noexcept { return source_.get(); }
  [[nodiscard]] bool over() const noexcept { return !source_.valid(); }
  [[nodiscard]] bool wants_more() const noexcept { return !over() && (target_ == nullptr || target_->has_room()); }
  [[nodiscard]] std::string take() noexcept { return std::move(text_); }

  /// Once there is something to read, or an end. One read: others wait, too.
  void serve();
  /// Its process has ended: takes what is there now, and passes on what is no whole line, too. Not what others that
  /// hold the pipe write from now on: they may never end.
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
