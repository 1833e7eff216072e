// SPDX-License-Identifier: Apache-2.0
//
// All ranks fail, or none: each says how its own part went.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/error.hpp>

namespace kolo::checkpoint {

/// Calls `body`, and returns the error that it threw.
template <class Body>
[[nodiscard]] Status attempt(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "there is not enough memory"};
  } catch (const std::exception& error) {
    return {ErrorCode::io, error.what()};
  }
  return {};
}

/// Collective calls of one save or load, under names that begin with `caller`. `timeout` is that of each call; the
/// context's if it is empty.
class Ranks {
 public:
  Ranks(const Group& group, std::string caller, std::optional<std::chrono::nanoseconds> timeout);

  [[nodiscard]] const Group& group() const noexcept { return group_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// If a rank failed, throws on every rank the same `Error`, the first one's: "<caller>: rank 2: <its sentence>".
  void agree(const Status& mine) const;
  /// `attempt` and `agree`. The second: on rank 0 alone.
  template <class Body>
  void all(const Body& body) const {
    agree(attempt(body));
  }
  template <class Body>
  void on_root(const Body& body) const {
    agree(rank_ == 0 ? attempt(body) : Status());
  }
  /// Reads or writes for long: calls `step` until it returns false. All ranks meet every second or so, each in
  /// between two of its steps, until no rank has one left. So a deadline passes when a rank has been in one step for so
  /// long. If a rank fails, all stop, and throw its error as `agree` does.
  void in_steps(const std::function<bool()>& step) const;
  /// Rank 0's text, on every rank.
  [[nodiscard]] std::string from_root(const std::string& text) const;
  /// All ranks' texts, on rank 0; nothing on the others.
  [[nodiscard]] std::vector<std::string> at_root(const std::string& text) const;
  /// For each of some conditions whether it holds on all ranks. The same number everywhere.
  void all_of(std::vector<std::uint8_t>& conditions) const;
  /// `check_agreement`.
  void compare(const std::vector<std::string>& entries) const;

 private:
  /// How far a rank is; the largest of all ranks counts.
  enum class Progress : std::uint8_t { done, goes_on, failed };
  [[nodiscard]] Progress latest(Progress mine) const;
  [[noreturn]] void throw_first(const Status& mine) const;

  Group group_;
  std::string caller_;
  std::optional<std::chrono::nanoseconds> timeout_;
  int rank_;
  int size_;
};

}  // namespace kolo::checkpoint
