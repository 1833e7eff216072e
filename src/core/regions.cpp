// SPDX-License-Identifier: Apache-2.0
#include "core/regions.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace kolo::core {

void Regions::add(Number number, std::shared_ptr<SharedRegion> region) {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) KOLO_CHECK(entry.number != number) << "two regions have number " << number;
  KOLO_CHECK(number != 0);
  entries_.push_back({number, std::move(region), false});
  generation_.fetch_add(1, std::memory_order_release);
}

void Regions::retire(Number number, bool release) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.number == number; });
  KOLO_CHECK(found != entries_.end()) << "no region has number " << number;
  found->retired = true;
  if (release) found->region->release_own();
  generation_.fetch_add(1, std::memory_order_release);
}

void Regions::detach_all() noexcept {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) entry.region->detach();
}

void RegionTable::copy() {
  const std::lock_guard lock(regions_->mutex_);
  generation_ = regions_->generation_.load(std::memory_order_relaxed);
  own_.clear();
  by_number_.clear();
  for (const Regions::Entry& entry : regions_->entries_) {
    if (by_number_.size() <= entry.number) by_number_.resize(std::size_t{entry.number} + 1);
    by_number_[entry.number] = entry.region;
    if (!entry.retired)
      own_.push_back({entry.region->own(), entry.region->own() + entry.region->bytes(), entry.number});
  }
}

}  // namespace kolo::core
