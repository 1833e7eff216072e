// SPDX-License-Identifier: Apache-2.0
//
// All ranks fail, or none: each says how its own part went.
#pragma once

#include <chrono>
#include <new>
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

/// Collective calls of one save or load: under names that begin with `caller`, and with a deadline that leaves the
/// slowest rank time to read or write its part.
class Ranks {
 public:
  Ranks(const Group& group, std::string caller, std::chrono::nanoseconds timeout);

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
  /// Rank 0's text, on every rank.
  [[nodiscard]] std::string from_root(const std::string& text) const;
  /// All ranks' texts, on rank 0; nothing on the others.
  [[nodiscard]] std::vector<std::string> at_root(const std::string& text) const;
  /// For each of some conditions whether it holds on all ranks. The same number everywhere.
  void all_of(std::vector<std::uint8_t>& conditions) const;
  /// `check_agreement`.
  void compare(const std::vector<std::string>& entries) const;

 private:
  Group group_;
  std::string caller_;
  std::chrono::nanoseconds timeout_;
  int rank_;
  int size_;
};

}  // namespace kolo::checkpoint
