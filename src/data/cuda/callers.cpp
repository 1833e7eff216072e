// SPDX-License-Identifier: Apache-2.0
//
// What callers' threads ask of the device's backend.
#include <algorithm>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "core/reduce_op.hpp"
#include "core/topology.hpp"
#include "data/cuda/cuda_backend.hpp"
#include "data/cuda/nccl_api.hpp"
#include "data/cuda/nccl_carrier.hpp"
#include "data/cuda/visibility.hpp"

namespace kolo::cuda {
namespace {

/// " (NVIDIA H200, GPU 3 of the machine)"; empty where the device does not say, as after a fault.
std::string name_in_brackets(int device) {
  try {
    const DeviceInfo info = device_info(device);
    const std::optional<unsigned> number = number_on_machine(info.uuid);
    return " (" + info.name + (number ? ", GPU " + std::to_string(*number) + " of the machine" : "") + ")";
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

void CudaBackend::choose(int device, const char* how) {
  if (!count_) count_ = count_devices();
  if (count_->devices == 0) {
    throw Error(ErrorCode::unsupported, "there is no CUDA device: " + count_->why + visibility_in_brackets());
  }
  if (device_ >= 0 && device == device_) return;
  if (device_ >= 0) {
    throw Error(ErrorCode::unsupported, "this rank uses cuda:" + std::to_string(device_) + ", which " + chosen_by_ +
                                            " chose; one rank uses one device");
  }
  if (device < 0 || device >= count_->devices) {
    throw Error(ErrorCode::unsupported, "there is no such CUDA device: " + std::to_string(count_->devices) +
                                            (count_->devices == 1 ? " is visible" : " are visible") +
                                            visibility_in_brackets());
  }
  events_ = std::make_shared<EventPool>(device);
  chosen_by_ = how;
  device_ = device;
}

/// Which of the visible devices is this rank's; -1 when there are more ranks than devices. One device: the launcher
/// gave each rank its own, or there is no other. Whether two ranks got the same one is seen when they meet.
int CudaBackend::turn(int devices) const noexcept {
  if (devices > 1 && options_.machine_rank >= devices && !options_.share_device) return -1;
  return options_.machine_rank % devices;
}

int CudaBackend::bind() { return choose_in_turn("kolo::cuda::bind"); }

int CudaBackend::choose_in_turn(const char* how) {
  const base::MutexLock lock(mutex_);
  if (device_ >= 0) return device_;
  if (!count_) count_ = count_devices();
  const int devices = std::max(count_->devices, 1);
  const int device = turn(devices);
  if (device < 0) {
    throw Error(ErrorCode::unsupported, "rank " + std::to_string(options_.machine_rank) +
                                            " of this machine has no device: only " + std::to_string(devices) +
                                            " are visible" + visibility_in_brackets() +
                                            "; KOLO_SHARE_DEVICE=1 lets ranks share them");
  }
  choose(device, how);
  return device_;
}

void CudaBackend::check_usable(Device device) {
  const base::MutexLock lock(mutex_);
  choose(device.index, "its first tensor");
}

void CudaBackend::check_usable(Device device, const core::Signature& signature) {
  check_usable(device);
  if (options_.staged || !core::traits_of(signature.kind).reduces) return;
  for (const core::TensorSignature& tensor : signature.tensors) {
    const bool by_min_or_max = tensor.dtype == DType::boolean && signature.op != ReduceOp::bit_xor;
    if (core::is_bitwise(signature.op) && !by_min_or_max) {
      throw Error(ErrorCode::unsupported, "NCCL has no " + std::string(to_string(signature.op)) + " of " +
                                              std::string(to_string(tensor.dtype)) +
                                              "; use KOLO_GPU_BACKEND=staged, which reduces on the CPU");
    }
    if (nccl_reduces(tensor.dtype)) continue;
    const std::string type(to_string(tensor.dtype));
    throw Error(ErrorCode::unsupported, "NCCL cannot reduce " + type +
                                            "; use a wider integer, or KOLO_GPU_BACKEND=staged, which reduces on the "
                                            "CPU");
  }
}

data::DeviceEventPtr CudaBackend::record(Device device, Stream stream) {
  const DeviceGuard guard(device.index);
  refuse_capture(native(stream));
  std::shared_ptr<EventPool> pool;
  {
    const base::MutexLock lock(mutex_);
    pool = events_;
  }
  std::shared_ptr<const PooledEvent> event = pool->take();
  event->event().record(native(stream));
  return event;
}

std::shared_ptr<data::DeviceRegion> CudaBackend::ask_region(std::uint16_t number, std::size_t bytes,
                                                            std::vector<int> members) {
  const base::MutexLock lock(mutex_);
  KOLO_CHECK(device_ >= 0) << "check_usable comes first";
  if (static_cast<int>(members.size()) == world_size_) members.clear();
  regions_.push_back({std::make_shared<Region>(device_, number, bytes, memory_), std::move(members)});
  regions_asked_.store(true);
  return regions_.back().region;
}

void CudaBackend::retire(const data::DeviceRegion& region, bool release) noexcept {
  const base::MutexLock lock(mutex_);
  for (KnownRegion& known : regions_) {
    if (known.region.get() != &region) continue;
    known.retired = true;
    known.released = release;
    if (release) regions_released_.store(true);
  }
}

std::uint64_t CudaBackend::place_of(const std::byte* data, std::size_t bytes, const std::vector<int>& ranks) const {
  const base::MutexLock lock(mutex_);
  for (const KnownRegion& known : regions_) {
    const std::uint64_t place = known.retired ? 0 : known.region->place_of(data, bytes);
    if (place == 0) continue;
    return known.members.empty() || core::are_among(ranks, known.members) ? place : 0;
  }
  return 0;
}

data::DeviceUsage CudaBackend::usage() const {
  data::DeviceUsage usage;
  usage.batches = counters_.batches;
  usage.steps = counters_.steps;
  usage.bytes_packed = counters_.bytes_packed;
  usage.bytes_in_place = counters_.bytes_in_place;
  usage.collective_calls = counters_.collective_calls;
  usage.slot_bytes = counters_.slot_bytes;
  usage.communicators = counters_.communicators;
  const base::MutexLock lock(mutex_);
  for (const KnownRegion& known : regions_) usage.arena_bytes += known.region->is_there() ? known.region->bytes() : 0;
  return usage;
}

std::string CudaBackend::describe() const {
  const data::DeviceUsage used = usage();
  const base::MutexLock lock(mutex_);
  const DeviceCount count = count_ ? *count_ : count_devices();
  if (count.devices == 0) return "no CUDA device: " + count.why;
  const int device = device_ >= 0 ? device_ : turn(count.devices);
  std::string text =
      device < 0 ? "no device for this rank" : "cuda:" + std::to_string(device) + name_in_brackets(device);
  text +=
      " of " + std::to_string(count.devices) + " visible, " + (used.slot_bytes > 0 ? "in use: " : "not in use yet: ");
  text += (options_.staged ? "pinned memory and the CPU" : "NCCL " + nccl_version()) + ", " +
          std::to_string(options_.slots) + " slots of " + std::to_string(options_.slot_bytes >> 10) + " KiB";
  if (!options_.staged) text += ", tensors from " + std::to_string(options_.direct_bytes >> 10) + " KiB in place";
  if (used.arena_bytes > 0) text += ", arenas of " + std::to_string(used.arena_bytes >> 10) + " KiB";
  return text;
}

}  // namespace kolo::cuda
