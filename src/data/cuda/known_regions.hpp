// SPDX-License-Identifier: Apache-2.0
//
// The arenas on a rank's device: asked for by callers, allocated and given back by the driver. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "data/cuda/carrier.hpp"
#include "data/cuda/device_region.hpp"
#include "data/cuda/worker.hpp"

namespace kolo::cuda {

class KnownRegions {
 public:
  // -- callers
  void add(std::shared_ptr<Region> region) {
    const base::MutexLock lock(mutex_);
    regions_.push_back({std::move(region)});
    asked_.store(true);
  }
  /// Its memory means nothing any more; `release`: it is given back.
  void retire(const data::DeviceRegion& region, bool release) noexcept {
    const base::MutexLock lock(mutex_);
    for (Known& known : regions_) {
      if (known.region.get() != &region) continue;
      known.retired = true;
      known.released = release;
      if (release) released_.store(true);
    }
  }
  [[nodiscard]] std::uint64_t place_of(const std::byte* data, std::size_t bytes, const std::vector<int>& ranks) const {
    const base::MutexLock lock(mutex_);
    for (const Known& known : regions_) {
      const std::uint64_t place = known.retired ? 0 : known.region->place_of(data, bytes);
      if (place == 0) continue;
      return known.region->is_shared_by(ranks) ? place : 0;
    }
    return 0;
  }
  /// Of those that are allocated.
  [[nodiscard]] std::uint64_t bytes() const {
    const base::MutexLock lock(mutex_);
    std::uint64_t sum = 0;
    for (const Known& known : regions_) sum += known.region->is_there() ? known.region->bytes() : 0;
    return sum;
  }

  // -- the driver
  [[nodiscard]] bool are_asked() const noexcept { return asked_.load(); }
  /// Those that have been asked for and not been answered.
  [[nodiscard]] std::vector<std::shared_ptr<Region>> take_asked() {
    const base::MutexLock lock(mutex_);
    asked_.store(false);
    std::vector<std::shared_ptr<Region>> asked;
    for (const Known& known : regions_) {
      if (!known.region->answered() && !known.retired) asked.push_back(known.region);
    }
    return asked;
  }
  /// Those that are given back; `carrier` (null: there is none) forgets them. No batch is open that might lie there.
  /// Freeing one waits for the device, which may be busy for the program for as long as that likes, so a thread does
  /// it.
  void free_released(Carrier* carrier, const PrimaryContextPtr& context) {
    for (std::shared_ptr<Region>& region : take_released()) {
      if (carrier != nullptr) carrier->forget(*region);
      if (!freeing_) freeing_ = std::make_unique<Worker>("kolo-free", context);
      freeing_->run([held = std::move(region)]() mutable { held.reset(); });
    }
  }
  /// All of them, and the thread that frees some: none is given back any more.
  [[nodiscard]] std::vector<std::shared_ptr<void>> take_all() {
    std::vector<std::shared_ptr<void>> all;
    const base::MutexLock lock(mutex_);
    for (Known& known : regions_) all.push_back(std::move(known.region));
    regions_.clear();
    all.push_back(std::shared_ptr<Worker>(std::move(freeing_)));
    return all;
  }
  void clear() {
    freeing_.reset();
    std::vector<Known> regions;  // whose memory may go with them, without the lock
    const base::MutexLock lock(mutex_);
    regions.swap(regions_);
  }

 private:
  struct Known {
    std::shared_ptr<Region> region;
    bool retired = false;
    bool released = false;
  };

  /// They are forgotten here.
  [[nodiscard]] std::vector<std::shared_ptr<Region>> take_released() {
    std::vector<std::shared_ptr<Region>> released;
    if (!released_.load()) return released;
    const base::MutexLock lock(mutex_);
    released_.store(false);
    const auto kept =
        std::stable_partition(regions_.begin(), regions_.end(), [](const Known& known) { return !known.released; });
    for (auto known = kept; known != regions_.end(); ++known) released.push_back(std::move(known->region));
    regions_.erase(kept, regions_.end());
    return released;
  }

  mutable base::Mutex mutex_;
  std::vector<Known> regions_ KOLO_GUARDED_BY(mutex_);
  std::atomic<bool> asked_{false};
  std::atomic<bool> released_{false};
  std::unique_ptr<Worker> freeing_;  // the driver's: waits for the device
};

}  // namespace kolo::cuda
