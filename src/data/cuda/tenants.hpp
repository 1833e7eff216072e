// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs the contexts of this process reduce on by NCCL. NCCL wants the launches on one GPU in an order that is the
// same on every rank; the contexts' logs know nothing of one another, so two of them on one GPU can deadlock: a kernel
// of one may wait on the GPU for a peer whose GPU is full of kernels of the other that wait for this one.
//
// Any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.hpp"

namespace kolo::cuda {

class Tenants {
 public:
  /// That one context is there, for as long as this lives.
  class Tenancy {
   public:
    Tenancy(std::shared_ptr<Tenants> tenants, std::string uuid)
        : tenants_(std::move(tenants)), uuid_(std::move(uuid)), is_first_(tenants_->add(uuid_, 1) == 1) {}
    Tenancy(const Tenancy&) = delete;
    Tenancy& operator=(const Tenancy&) = delete;
    ~Tenancy() { tenants_->add(uuid_, -1); }
    /// Nobody else was there when it began.
    [[nodiscard]] bool is_first() const noexcept { return is_first_; }

   private:
    const std::shared_ptr<Tenants> tenants_;
    const std::string uuid_;
    const bool is_first_;
  };

 private:
  int add(const std::string& uuid, int count) {
    const base::MutexLock lock(mutex_);
    return there_[uuid] += count;
  }

  base::Mutex mutex_;
  std::map<std::string, int> there_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo::cuda
