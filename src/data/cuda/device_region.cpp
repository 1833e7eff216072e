// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/device_region.hpp"

#include "core/device_place.hpp"
#include "data/cuda/device.hpp"

namespace kolo::cuda {

Region::~Region() {
  if (plain_memory_.data() == nullptr && nccl_memory_.data() == nullptr) return;
  try {
    const DeviceGuard guard(*context_);
    plain_memory_.free_when_idle();  // kernels of the program may read the arena; NCCL frees without waiting for them
    nccl_memory_ = CollectiveMemory();
  } catch (const Error&) {
    // The device has failed, and its memory with it.
  }
}

void Region::allocate(bool for_nccl, cudaStream_t stream) noexcept {
  try {
    counted_.emplace(limit_, bytes_, "the arena", "make the arena smaller");
    std::byte* data = nullptr;
    if (for_nccl) {
      nccl_memory_ = CollectiveMemory(bytes_);
      plain_memory_ = DeviceMemory(1);
      data = nccl_memory_.data();
    } else {
      plain_memory_ = DeviceMemory(bytes_);
      data = plain_memory_.data();
    }
    zero_async(data, bytes_, stream);
    data_.store(data, std::memory_order_release);
  } catch (const Error& error) {
    failure_ = error.status();
    counted_.reset();
  }
  answered_.store(true, std::memory_order_release);
}

std::byte* Region::memory() const {
  if (std::byte* data = data_.load(std::memory_order_acquire)) {
    host_was_told();
    return data;
  }
  if (answered() && !failure_.ok()) throw Error(failure_);
  throw Error(ErrorCode::transport, "the context ended before the device had allocated the arena");
}

void Region::note_end(std::size_t offset) {
  const base::MutexLock lock(mutex_);
  ends_.insert(offset);
}

std::uint64_t Region::place_of(const std::byte* data, std::size_t bytes) const {
  const std::byte* const begin = data_.load(std::memory_order_acquire);
  if (begin == nullptr || data < begin || bytes == 0 || data >= begin + bytes_) return 0;
  core::DevicePlace place;
  place.region = number_;
  place.offset = static_cast<std::uint64_t>(data - begin);
  if (bytes > bytes_ - place.offset) return 0;
  const base::MutexLock lock(mutex_);
  place.ends = ends_.count(place.offset + bytes) > 0;
  return place.number();
}

}  // namespace kolo::cuda
