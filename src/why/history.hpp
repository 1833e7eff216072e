// SPDX-License-Identifier: Apache-2.0
//
// A job's history: the facts of its ranks on one axis of time, and words for what stands in its recorders. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "why/facts.hpp"

namespace kolo::why {

class History {
 public:
  /// Of the job of the first observed rank; others' files are left out. `observed` outlives it. `now_ns`:
  /// CLOCK_MONOTONIC of the boot of that rank. If all ranks are known to have ended, the last event is now.
  History(const std::vector<Observed>& observed, std::int64_t now_ns);

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const Facts& of(int rank) const { return facts_[static_cast<std::size_t>(rank)]; }
  /// By rank.
  [[nodiscard]] const std::vector<Facts>& facts() const noexcept { return facts_; }
  [[nodiscard]] bool has_file(int rank) const { return of(rank).recording != nullptr; }
  /// Ranks that have a file, ascending.
  [[nodiscard]] const std::vector<int>& recorded() const noexcept { return recorded_; }
  /// Ascending; `condition(facts, rank)`.
  template <class Condition>
  [[nodiscard]] std::vector<int> ranks_where(const Condition& condition) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (condition(of(rank), rank)) ranks.push_back(rank);
    }
    return ranks;
  }
  /// World's, or of a group that a recorder knows; empty: none does. Not sorted.
  [[nodiscard]] std::vector<int> members_of(std::uint32_t set) const;

  /// @name time, in nanoseconds of the first observed rank's clock
  /// @{
  [[nodiscard]] std::int64_t time_of(int rank, std::uint64_t time) const;
  /// When the rank's work ended: with its fatal error, else now.
  [[nodiscard]] std::int64_t end_of(int rank) const;
  /// Since the job's first event.
  [[nodiscard]] double seconds_since_begin(std::int64_t time) const;
  /// "at 1.234 s", of a time in the rank's file.
  [[nodiscard]] std::string at(int rank, std::uint64_t time) const;
  /// Hosts whose times are placed by their clock of the day, and hosts whose clock of the day is wrong.
  [[nodiscard]] const std::set<std::string>& other_clocks() const noexcept { return other_clocks_; }
  [[nodiscard]] const std::set<std::string>& wrong_clocks() const noexcept { return wrong_clocks_; }
  /// @}

  /// @name words
  /// @{
  /// A tensor's name, or "#1a2b" where no recorder knows it.
  [[nodiscard]] std::string name_of(std::uint64_t id) const;
  /// "allreduce of "w" in the group ...".
  [[nodiscard]] std::string text_of(const Request& request, const Open& open) const;
  /// "the batch of "w" and 3 more".
  [[nodiscard]] std::string text_of(std::uint32_t set, const Running& batch) const;
  /// "4711 on node3".
  [[nodiscard]] std::string process_text(int rank) const;
  /// "it last finished a batch, at 1.234 s".
  [[nodiscard]] std::string last_text(int rank) const;
  /// The same without the time.
  [[nodiscard]] std::string last_words(const Facts& facts) const;
  /// @}

 private:
  void align(const recorder::Recording& reference);
  [[nodiscard]] std::int64_t shift_of(const recorder::Recording& its, const recorder::Recording& reference);
  [[nodiscard]] const recorder::RecordedSet* set_of(std::uint32_t set) const;
  [[nodiscard]] std::string in_set(std::uint32_t set) const;

  const int size_;
  std::vector<Facts> facts_;
  std::vector<int> recorded_;
  std::map<int, std::int64_t> shifts_;  ///< of clocks of other boots
  std::set<std::string> other_clocks_;
  std::set<std::string> wrong_clocks_;
  std::int64_t now_;
  std::int64_t first_ = 0;
  std::int64_t last_ = 0;
};

/// Whether it is a group's making, not an operation on tensors.
[[nodiscard]] bool makes_set(const Open& open) noexcept;

}  // namespace kolo::why
