// SPDX-License-Identifier: Apache-2.0
#include "transport/regions.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.hpp"
#include "core/topology.hpp"

namespace kolo::transport {

Regions::Serial Regions::new_serial(int rank) {
  constexpr int kBitsOfOne = 40;
  const base::MutexLock lock(mutex_);
  return static_cast<Serial>(rank) << kBitsOfOne | ++serials_;
}

std::vector<Regions::Number> Regions::taken() const {
  const base::MutexLock lock(mutex_);
  std::vector<Number> numbers;
  numbers.reserve(entries_.size());
  for (const Entry& entry : entries_) numbers.push_back(entry.id.number);
  return numbers;
}

Regions::Number Regions::first_free(const std::vector<std::vector<Number>>& lists) {
  std::vector<bool> is_taken{true};
  for (const std::vector<Number>& list : lists) {
    for (const Number number : list) {
      if (number >= is_taken.size()) is_taken.resize(std::size_t{number} + 1);
      is_taken[number] = true;
    }
  }
  const auto free = std::find(is_taken.begin(), is_taken.end(), false) - is_taken.begin();
  return free > std::numeric_limits<Number>::max() ? Number{0} : static_cast<Number>(free);
}

bool Regions::reserve(const Id& id) {
  const base::MutexLock lock(mutex_);
  KOLO_CHECK(id.number != 0);
  const bool is_taken =
      std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.id.number == id.number; });
  if (!is_taken) entries_.push_back({id, nullptr, {}, State::reserved});
  return !is_taken;
}

void Regions::withdraw(const Id& id) noexcept {
  const base::MutexLock lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.id.serial == id.serial && entry.state == State::reserved;
  });
  if (found != entries_.end()) entries_.erase(found);
}

void Regions::add(const Id& id, std::shared_ptr<SharedRegion> region, std::vector<int> members) {
  const base::MutexLock lock(mutex_);
  const auto reserved =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.id.number == id.number; });
  KOLO_CHECK(reserved != entries_.end() && reserved->state == State::reserved && reserved->id.serial == id.serial)
      << "number " << id.number << " was not reserved for this region";
  *reserved = {id, std::move(region), std::move(members), State::alive};
  generation_.fetch_add(1, std::memory_order_release);
}

void Regions::retire(const Id& id, bool release) {
  const base::MutexLock lock(mutex_);
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.id.serial == id.serial; });
  KOLO_CHECK(found != entries_.end() && found->state == State::alive) << "no region has number " << id.number;
  found->state = release ? State::retired : State::kept;
  if (release && found->region) found->region->release_own();
  generation_.fetch_add(1, std::memory_order_release);
}

std::vector<Regions::Serial> Regions::retired() const {
  const base::MutexLock lock(mutex_);
  std::vector<Serial> serials;
  for (const Entry& entry : entries_) {
    if (entry.state == State::retired) serials.push_back(entry.id.serial);
  }
  return serials;
}

void Regions::forget_common(const std::vector<std::vector<Serial>>& lists, const std::vector<int>& ranks) {
  const base::MutexLock lock(mutex_);
  const auto all_have_retired = [&](const Entry& entry) {
    if (entry.state != State::retired || !core::are_among(entry.members, ranks)) return false;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const std::vector<Serial>& list = lists[i];
      const bool has = std::find(list.begin(), list.end(), entry.id.serial) != list.end();
      if (!has && core::are_among({ranks[i]}, entry.members)) return false;
    }
    return true;
  };
  if (std::erase_if(entries_, all_have_retired) > 0) generation_.fetch_add(1, std::memory_order_release);
}

std::size_t Regions::size() const {
  const base::MutexLock lock(mutex_);
  return entries_.size();
}

void Regions::detach_all() noexcept {
  const base::MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.region) entry.region->detach();
  }
}

void RegionTable::copy() {
  const base::MutexLock lock(regions_->mutex_);
  generation_ = regions_->generation_.load(std::memory_order_relaxed);
  own_.clear();
  by_number_.clear();
  for (const Regions::Entry& entry : regions_->entries_) {
    if (!entry.region) continue;
    const Regions::Number number = entry.id.number;
    if (by_number_.size() <= number) by_number_.resize(std::size_t{number} + 1);
    by_number_[number] = entry.region;
    if (entry.state == Regions::State::alive && core::are_among(ranks_, entry.members))
      own_.push_back({entry.region->own(), entry.region->own() + entry.region->bytes(), number});
  }
}

}  // namespace kolo::transport
