// SPDX-License-Identifier: Apache-2.0
#include "tests/support/covering.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kolo::testing {
namespace {

/// The combinations of values of some factors, and which of them are done: in a row, or excluded.
class Combinations {
 public:
  Combinations(const Factors& factors, FactorSet set) : set_(std::move(set)) {
    std::size_t all = 1;
    for (const std::size_t factor : set_) all *= static_cast<std::size_t>(factors.values[factor]);
    done_.resize(all);
    values_ = factors.values;
  }

  [[nodiscard]] const FactorSet& set() const { return set_; }
  [[nodiscard]] std::size_t size() const { return done_.size(); }
  [[nodiscard]] bool is_done(std::size_t number) const { return done_[number]; }
  void set_done(std::size_t number) { done_[number] = true; }

  /// Writes its values.
  void put(std::size_t number, Row& row) const {
    for (const std::size_t factor : set_) {
      const auto values = static_cast<std::size_t>(values_[factor]);
      row[factor] = static_cast<int>(number % values);
      number /= values;
    }
  }
  /// Its number in this row; size() where one of its factors is not set.
  [[nodiscard]] std::size_t number_in(const Row& row) const {
    std::size_t number = 0;
    for (auto factor = set_.rbegin(); factor != set_.rend(); ++factor) {
      if (row[*factor] == kUnset) return size();
      number = number * static_cast<std::size_t>(values_[*factor]) + static_cast<std::size_t>(row[*factor]);
    }
    return number;
  }
  [[nodiscard]] bool is_news(const Row& row) const {
    const std::size_t number = number_in(row);
    return number < size() && !done_[number];
  }

 private:
  FactorSet set_;
  std::vector<int> values_;
  std::vector<bool> done_;
};

class Generator {
 public:
  Generator(const Factors& factors, const std::vector<FactorSet>& sets)
      : factors_(factors), of_(factors.values.size()) {
    for (const FactorSet& set : sets) all_.emplace_back(factors, set);
    // Those with many combinations need the most rows, and the others find place in them.
    std::stable_sort(all_.begin(), all_.end(),
                     [](const Combinations& a, const Combinations& b) { return a.size() > b.size(); });
    for (std::size_t i = 0; i < all_.size(); ++i)
      for (const std::size_t factor : all_[i].set()) of_[factor].push_back(i);
  }

  Covering run() {
    for (Combinations& combinations : all_)
      for (std::size_t number = 0; number < combinations.size(); ++number)
        if (!combinations.is_done(number)) add_row_with(combinations, number);
    return std::move(covering_);
  }

 private:
  void add_row_with(Combinations& combinations, std::size_t number) {
    Row row(factors_.values.size(), kUnset);
    combinations.put(number, row);
    const char* reason = factors_.excludes(row);
    if (reason == nullptr && !complete(row, 0)) reason = "what it leaves for the other factors is excluded";
    if (reason != nullptr) {
      combinations.set_done(number);
      ++covering_.excluded[reason];
      return;
    }
    for (Combinations& each : all_) {
      const std::size_t here = each.number_in(row);
      if (each.is_done(here)) continue;
      each.set_done(here);
      ++covering_.combinations;
    }
    covering_.rows.push_back(std::move(row));
  }

  /// Gives every factor from this one on a value: where it can be, the one that brings the most combinations.
  bool complete(Row& row, std::size_t factor) {
    while (factor < row.size() && row[factor] != kUnset) ++factor;
    if (factor == row.size()) return true;
    std::vector<std::pair<std::int64_t, int>> choices;
    for (int i = 0; i < factors_.values[factor]; ++i) {
      // From another one on in each row, so that values which bring the same are chosen equally often.
      row[factor] = (i + static_cast<int>(covering_.rows.size() % 1000)) % factors_.values[factor];
      if (factors_.excludes(row) != nullptr) continue;
      const auto brings = std::count_if(of_[factor].begin(), of_[factor].end(),
                                        [&](std::size_t which) { return all_[which].is_news(row); });
      choices.emplace_back(-brings, row[factor]);
    }
    std::stable_sort(choices.begin(), choices.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [brings, value] : choices) {
      row[factor] = value;
      if (complete(row, factor + 1)) return true;
    }
    row[factor] = kUnset;
    return false;
  }

  const Factors& factors_;
  std::vector<Combinations> all_;
  std::vector<std::vector<std::size_t>> of_;  ///< of a factor: the sets that it is in
  Covering covering_;
};

}  // namespace

std::vector<FactorSet> sets_of(std::size_t factors, std::size_t strength) {
  if (strength == 0) return {{}};
  std::vector<FactorSet> sets;
  for (std::size_t last = strength - 1; last < factors; ++last) {
    for (FactorSet& set : sets_of(last, strength - 1)) {
      set.push_back(last);
      sets.push_back(std::move(set));
    }
  }
  return sets;
}

Covering cover(const Factors& factors, const std::vector<FactorSet>& sets) { return Generator(factors, sets).run(); }

}  // namespace kolo::testing
