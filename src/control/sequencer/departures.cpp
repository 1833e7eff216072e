// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/departures.hpp"

#include <algorithm>
#include <iterator>

namespace kolo::control::sequencer {

Departures::Departures(int size)
    : left_(static_cast<std::size_t>(size), false), gone_(static_cast<std::size_t>(size), false) {}

bool Departures::any_of(const std::vector<std::int32_t>& ranks, const std::vector<bool>& marked) {
  return std::any_of(ranks.begin(), ranks.end(), [&](std::int32_t r) { return marked[static_cast<std::size_t>(r)]; });
}

bool Departures::have_all_left() const { return std::find(left_.begin(), left_.end(), false) == left_.end(); }

std::vector<std::int32_t> Departures::left_of(const std::vector<std::int32_t>& ranks) const {
  std::vector<std::int32_t> left;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(left),
               [this](std::int32_t rank) { return has_left(rank); });
  return left;
}

std::vector<std::int32_t> Departures::first_of(const std::vector<std::int32_t>& ranks) {
  if (first_to_leave_.empty()) {
    for (std::size_t rank = 0; rank < left_.size(); ++rank) {
      if (left_[rank]) first_to_leave_.push_back(static_cast<std::int32_t>(rank));
    }
  }
  std::vector<std::int32_t> culprits;
  std::set_intersection(ranks.begin(), ranks.end(), first_to_leave_.begin(), first_to_leave_.end(),
                        std::back_inserter(culprits));
  return culprits;
}

}  // namespace kolo::control::sequencer
