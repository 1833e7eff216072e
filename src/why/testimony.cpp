// SPDX-License-Identifier: Apache-2.0
#include "why/testimony.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include <kolo/error.hpp>

#include "why/words.hpp"

namespace kolo::why {
namespace {

ErrorCode code_of(const Heard& heard) { return static_cast<ErrorCode>(heard.code); }

/// Of the ranks that were considered, the one of the earliest time.
class Earliest {
 public:
  void consider(int rank, std::int64_t time) {
    if (rank_ >= 0 && time >= time_) return;
    rank_ = rank;
    time_ = time;
  }
  /// -1: none was considered.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_ = -1;
  std::int64_t time_ = 0;
};

}  // namespace

bool Testimony::is_decided() const {
  const std::vector<Facts>& all = history_.facts();
  return std::any_of(all.begin(), all.end(),
                     [this](const Facts& facts) { return facts.blamed >= 0 && facts.blamed < history_.size(); });
}

int Testimony::named() const {
  for (const Facts& facts : history_.facts()) {
    const int blamed = facts.blamed;
    if (blamed >= 0 && blamed < history_.size() && !history_.of(blamed).ends_with_failure()) return blamed;
  }
  // The end of one brings that of others: the first.
  std::map<int, std::int64_t> seen;
  for (const int rank : history_.recorded()) {
    for (const Heard& death : history_.of(rank).deaths) {
      if (death.rank < 0 || death.rank >= history_.size() || death.rank == rank) continue;
      const Facts& its = history_.of(death.rank);
      const bool left_in_order = history_.of(rank).left.count(death.rank) > 0 || its.has_closed();
      if (its.ends_with_failure() || left_in_order) continue;
      const std::int64_t time = history_.time_of(rank, death.time);
      const auto known = seen.emplace(death.rank, time).first;
      known->second = std::min(known->second, time);
    }
  }
  Earliest first;
  for (const auto& [rank, time] : seen) first.consider(rank, time);
  return first.rank() >= 0 ? first.rank() : named_by_sentence();
}

// Where neither the log nor the system has said it: as the first fatal error says.
int Testimony::named_by_sentence() const {
  Earliest first;
  for (const int rank : history_.recorded()) {
    const std::optional<Heard>& fault = history_.of(rank).fault;
    if (!fault) continue;
    const int blamed = rank_blamed_by(fault->sentence, history_.size());
    if (blamed < 0 || history_.of(blamed).ends_with_failure()) continue;
    first.consider(blamed, history_.time_of(rank, fault->time));
  }
  return first.rank();
}

std::vector<int> Testimony::silent_ranks() const {
  std::set<int> left;
  for (const int rank : history_.recorded()) {
    for (const auto& [other, time] : history_.of(rank).left) left.insert(other);
  }
  return history_.ranks_where(
      [&left](const Facts& facts, int rank) { return facts.recording == nullptr && left.count(rank) == 0; });
}

int Testimony::first_to_give_up() const {
  Earliest first;
  for (const int rank : history_.recorded()) {
    const std::optional<Heard>& reported = history_.of(rank).reported;
    if (reported && reported->rank == rank) first.consider(rank, history_.time_of(rank, reported->time));
  }
  return first.rank();
}

bool Testimony::is_called_late(int rank) const {
  const std::vector<Facts>& all = history_.facts();
  return std::any_of(all.begin(), all.end(), [rank](const Facts& facts) {
    return std::any_of(facts.late.begin(), facts.late.end(), [rank](const Heard& one) { return one.rank == rank; });
  });
}

bool Testimony::is_late(int rank) const {
  const std::vector<Facts>& all = history_.facts();
  return is_called_late(rank) || std::any_of(all.begin(), all.end(), [](const Facts& facts) {
           return facts.fault && code_of(*facts.fault) == ErrorCode::timeout;
         });
}

bool Testimony::has_left(int rank) const {
  const Facts& facts = history_.of(rank);
  if (facts.leaving != 0) return !facts.fault || facts.leaving < facts.fault->time;
  const std::vector<int>& recorded = history_.recorded();
  return std::any_of(recorded.begin(), recorded.end(),
                     [this, rank](int other) { return history_.of(other).left.count(rank) > 0; });
}

int Testimony::deserter() const {
  // A message that expired may have waited for a rank that has left: its sentence says so.
  const auto tells = [this](const Heard& one) {
    return code_of(one) == ErrorCode::rank_lost ||
           (code_of(one) == ErrorCode::expired && rank_blamed_by(one.sentence, history_.size()) >= 0);
  };
  const std::vector<int> deserted = history_.ranks_where([&tells](const Facts& facts, int) {
    return (facts.fault && tells(*facts.fault)) || std::any_of(facts.failures.begin(), facts.failures.end(), tells);
  });
  if (deserted.empty()) return -1;
  const int left = left_by_first_failure(deserted);
  return left >= 0 ? left : first_to_leave();
}

// A sentence names the first rank of a chain (control/messages.hpp, "First causes"), and a rank that is in the middle
// of one fails earlier.
int Testimony::left_by_first_failure(const std::vector<int>& ranks) const {
  Earliest first;
  for (const int rank : ranks) {
    for (const Heard& failure : history_.of(rank).failures) {
      const int named = rank_blamed_by(failure.sentence, history_.size());
      if (named >= 0) first.consider(named, history_.time_of(rank, failure.time));
    }
  }
  return first.rank();
}

// By its own file, or as others heard.
int Testimony::first_to_leave() const {
  Earliest first;
  for (const int rank : history_.recorded()) {
    const Facts& facts = history_.of(rank);
    if (facts.leaving != 0) first.consider(rank, history_.time_of(rank, facts.leaving));
    for (const auto& [other, time] : facts.left) {
      if (other >= 0 && other < history_.size() && history_.of(other).leaving == 0)
        first.consider(other, history_.time_of(rank, time));
    }
  }
  return first.rank();
}

}  // namespace kolo::why
