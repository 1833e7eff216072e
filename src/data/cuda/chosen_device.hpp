// SPDX-License-Identifier: Apache-2.0
//
// The one device that a rank uses: that of its first tensor, or its turn among the visible ones. Once chosen it does
// not change. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "data/cuda/contexts.hpp"
#include "data/cuda/cuda_api.hpp"
#include "data/cuda/events.hpp"

namespace kolo::cuda {

class ChosenDevice {
 public:
  /// `machine_rank`: the rank's place among those of its machine. `may_share`: with another rank.
  ChosenDevice(int machine_rank, bool may_share) noexcept : machine_rank_(machine_rank), may_share_(may_share) {}

  /// Chooses this one; `how`, for sentences. Throws Error (unsupported): it cannot be had, or another one was chosen.
  void choose(int device, const char* how) {
    const base::MutexLock lock(mutex_);
    choose_locked(device, how);
  }
  /// Chooses the rank's own, unless one was chosen; returns which.
  int choose_in_turn(const char* how);
  [[nodiscard]] bool is_chosen() const {
    const base::MutexLock lock(mutex_);
    return index_ >= 0;
  }
  /// Once chosen. Without the mutex: they do not change any more.
  [[nodiscard]] int index() const noexcept KOLO_NO_THREAD_SAFETY_ANALYSIS { return index_; }
  [[nodiscard]] const PrimaryContextPtr& context() const noexcept KOLO_NO_THREAD_SAFETY_ANALYSIS { return context_; }
  [[nodiscard]] EventPool& events() const noexcept KOLO_NO_THREAD_SAFETY_ANALYSIS { return *events_; }
  /// `cuda:1 (NVIDIA H200) of 8 visible`: that, or what it will be; `no CUDA device: ...`, and false.
  [[nodiscard]] bool describe(std::string& text) const;

 private:
  void choose_locked(int device, const char* how) KOLO_REQUIRES(mutex_);
  [[nodiscard]] int turn(int devices) const noexcept;

  const int machine_rank_;
  const bool may_share_;
  mutable base::Mutex mutex_;
  int index_ KOLO_GUARDED_BY(mutex_) = -1;
  std::string by_ KOLO_GUARDED_BY(mutex_);
  PrimaryContextPtr context_ KOLO_GUARDED_BY(mutex_);
  std::shared_ptr<EventPool> events_ KOLO_GUARDED_BY(mutex_);
  std::optional<DeviceCount> count_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo::cuda
