// SPDX-License-Identifier: Apache-2.0
//
// The members of a set that have joined, and the submissions of each that the log has neither run nor failed yet. The
// sequencer and all participants update it from the same log, so they get the same ranks. Plain data, no threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control {

class Absentees {
 public:
  /// By name. A participant knows only the names.
  using Submissions = std::map<std::string, Joined::Submission>;

  [[nodiscard]] bool empty() const noexcept { return submissions_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return submissions_.size(); }
  [[nodiscard]] bool has(std::int32_t rank) const { return submissions_.count(rank) != 0; }
  [[nodiscard]] bool any_of(const std::vector<std::int32_t>& ranks) const {
    return !empty() && std::any_of(ranks.begin(), ranks.end(), [this](std::int32_t rank) { return has(rank); });
  }

  /// `counts`: averages count this rank.
  void add(std::int32_t rank, Submissions submissions, bool counts) {
    submissions_.emplace(rank, std::move(submissions));
    if (counts) counted_.insert(rank);
  }
  void clear() {
    submissions_.clear();
    counted_.clear();
  }
  /// How many of these ranks, which contribute nothing, averages do not count.
  [[nodiscard]] std::size_t uncounted(const std::vector<std::int32_t>& ranks) const {
    return static_cast<std::size_t>(
        std::count_if(ranks.begin(), ranks.end(), [this](std::int32_t rank) { return counted_.count(rank) == 0; }));
  }

  /// The ranks that contribute nothing to this name's next round, ascending.
  [[nodiscard]] std::vector<std::int32_t> without(const std::string& name) const {
    std::vector<std::int32_t> ranks;
    for (const auto& [rank, submissions] : submissions_) {
      if (submissions.count(name) == 0) ranks.push_back(rank);
    }
    return ranks;
  }
  /// The round of this name that they have in flight; 0: none.
  [[nodiscard]] core::Round round_of(const std::string& name) const {
    for (const auto& [rank, submissions] : submissions_) {
      const auto found = submissions.find(name);
      if (found != submissions.end()) return found->second.round;
    }
    return 0;
  }
  /// The log has run or failed that round.
  void consume(const std::string& name) {
    for (auto& [rank, submissions] : submissions_) submissions.erase(name);
  }
  /// The name's id was evicted: the submission in flight becomes its first round.
  void restart(const std::string& name) {
    for (auto& [rank, submissions] : submissions_) {
      const auto found = submissions.find(name);
      if (found != submissions.end()) found->second.round = 1;
    }
  }
  /// Whether none of their submissions is left.
  [[nodiscard]] bool are_done() const {
    return std::all_of(submissions_.begin(), submissions_.end(), [](const auto& one) { return one.second.empty(); });
  }
  [[nodiscard]] const std::map<std::int32_t, Submissions>& submissions() const noexcept { return submissions_; }

 private:
  std::map<std::int32_t, Submissions> submissions_;  ///< by rank
  std::set<std::int32_t> counted_;
};

/// For a set's sequence: the last call that each absent rank had given to the log.
class AbsentCallers {
 public:
  [[nodiscard]] bool empty() const noexcept { return calls_.empty(); }
  void add(std::int32_t rank, core::Round calls) { calls_[rank] = calls; }
  void clear() noexcept { calls_.clear(); }
  /// The ranks that have not made this call, ascending.
  [[nodiscard]] std::vector<std::int32_t> without(core::Round call) const {
    std::vector<std::int32_t> ranks;
    for (const auto& [rank, calls] : calls_) {
      if (calls < call) ranks.push_back(rank);
    }
    return ranks;
  }
  /// Whether this rank has not made the call.
  [[nodiscard]] bool lacks(std::int32_t rank, core::Round call) const {
    const auto found = calls_.find(rank);
    return found != calls_.end() && found->second < call;
  }
  /// The number of calls from this one on (from 1 to `most`) to which the same ranks contribute.
  [[nodiscard]] std::uint64_t alike(core::Round call, std::uint64_t most) const {
    for (const auto& [rank, calls] : calls_) {
      if (calls >= call) most = std::min(most, calls - call + 1);
    }
    return most;
  }
  /// Whether no absent rank has made a call beyond this number.
  [[nodiscard]] bool are_done(core::Round call) const {
    return std::all_of(calls_.begin(), calls_.end(), [call](const auto& one) { return one.second <= call; });
  }

 private:
  std::map<std::int32_t, core::Round> calls_;  ///< by rank
};

}  // namespace kolo::control
