// SPDX-License-Identifier: Apache-2.0
#include "transport/regions.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.hpp"

namespace kolo::transport {

Regions::Id Regions::propose() {
  const base::MutexLock lock(mutex_);
  std::vector<bool> taken(entries_.size() + 2);  // one more than can be
  taken[0] = true;
  for (const Entry& entry : entries_) {
    if (entry.id.number < taken.size()) taken[entry.id.number] = true;
  }
  const auto free = std::find(taken.begin(), taken.end(), false) - taken.begin();
  if (free > std::numeric_limits<Number>::max()) return {};
  const Id id{static_cast<Number>(free), ++serials_};
  entries_.push_back({id, nullptr, State::proposed});
  return id;
}

void Regions::withdraw(const Id& id) noexcept {
  const base::MutexLock lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.id.serial == id.serial && entry.state == State::proposed;
  });
  if (found != entries_.end()) entries_.erase(found);
}

void Regions::add(const Id& id, std::shared_ptr<SharedRegion> region) {
  const base::MutexLock lock(mutex_);
  KOLO_CHECK(id.number != 0);
  const auto same =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.id.number == id.number; });
  if (same == entries_.end()) {
    entries_.push_back({id, std::move(region), State::alive});
  } else {
    // This rank's own proposal, or a region that all have retired: another thread is about to forget it.
    const bool own = same->state == State::proposed && same->id.serial == id.serial;
    KOLO_CHECK(own || same->state == State::retired) << "two regions have number " << id.number;
    *same = {id, std::move(region), State::alive};
  }
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

void Regions::forget_common(const std::vector<std::vector<Serial>>& lists) {
  const base::MutexLock lock(mutex_);
  const auto stands_in_all = [&](const Entry& entry) {
    return entry.state == State::retired && std::all_of(lists.begin(), lists.end(), [&](const auto& list) {
             return std::find(list.begin(), list.end(), entry.id.serial) != list.end();
           });
  };
  const auto gone = std::remove_if(entries_.begin(), entries_.end(), stands_in_all);
  if (gone == entries_.end()) return;
  entries_.erase(gone, entries_.end());
  generation_.fetch_add(1, std::memory_order_release);
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
    if (entry.state == Regions::State::alive)
      own_.push_back({entry.region->own(), entry.region->own() + entry.region->bytes(), number});
  }
}

}  // namespace kolo::transport
