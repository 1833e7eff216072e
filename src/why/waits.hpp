// SPDX-License-Identifier: Apache-2.0
//
// What some ranks wait for, and who is behind: requests that not all have submitted, batches that not all have begun.
// Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "why/history.hpp"

namespace kolo::why {

class Waits {
 public:
  struct Group {
    std::vector<int> recorded;  ///< members that have a file, ascending
    std::vector<int> unknown;   ///< and those without
  };
  /// A request that some ranks have had open for long.
  struct Waited {
    std::int64_t since = 0;       ///< the first
    std::vector<int> waiting;     ///< ranks, ascending
    std::vector<int> missing;     ///< ranks that have not submitted it
    const Group* group = none();  ///< whose request it is
    Open open;
  };
  /// A batch that some ranks have run for long.
  struct Batch {
    std::int64_t since = 0;
    std::vector<int> running;
    std::vector<int> behind;  ///< have not begun it
    const Group* group = none();
    Running what;
  };

  /// `history` outlives it.
  explicit Waits(const History& history);
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  [[nodiscard]] const std::map<Request, Waited>& requests() const noexcept { return requests_; }
  /// By set and number.
  [[nodiscard]] const std::map<std::pair<std::uint32_t, std::uint32_t>, Batch>& batches() const noexcept {
    return batches_;
  }

  /// @name sentences, and names
  /// @{
  /// Each request that some ranks wait for, and for whom.
  [[nodiscard]] std::vector<std::string> request_sentences() const;
  /// Each batch in flight; then each rank's oldest message that waits.
  [[nodiscard]] std::vector<std::string> flight_sentences() const;
  /// Of what is in flight, ascending.
  [[nodiscard]] std::vector<std::string> names() const;
  /// @}

 private:
  static const Group* none();
  [[nodiscard]] Group group_of(std::vector<int> members) const;
  const Group& group_of_set(std::uint32_t set);
  [[nodiscard]] bool is_long(int rank, std::int64_t since) const;
  void collect_requests();
  void find_missing(const Request& request, Waited& one, const Group& group) const;
  void collect_batches();
  [[nodiscard]] std::string message_sentence(int rank) const;

  const History& history_;
  std::map<Request, Waited> requests_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Batch> batches_;
  std::map<std::uint32_t, Group> groups_;  ///< by set
  std::deque<Group> makings_;              ///< groups that are being made
};

}  // namespace kolo::why
