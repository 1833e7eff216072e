// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/chosen_device.hpp"

#include <algorithm>

#include <kolo/error.hpp>

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

void ChosenDevice::choose_locked(int device, const char* how) {
  if (!count_) count_ = count_devices();
  if (count_->devices == 0) {
    throw Error(ErrorCode::unsupported, "there is no CUDA device: " + count_->why + visibility_in_brackets());
  }
  if (index_ >= 0 && device == index_) return;
  if (index_ >= 0) {
    throw Error(ErrorCode::unsupported, "this rank uses cuda:" + std::to_string(index_) + ", which " + by_ +
                                            " chose; one rank uses one device");
  }
  if (device < 0 || device >= count_->devices) {
    throw Error(ErrorCode::unsupported, "there is no such CUDA device: " + std::to_string(count_->devices) +
                                            (count_->devices == 1 ? " is visible" : " are visible") +
                                            visibility_in_brackets());
  }
  context_ = std::make_shared<const PrimaryContext>(device);
  events_ = std::make_shared<EventPool>(context_);
  by_ = how;
  index_ = device;
}

/// Which of the visible devices is this rank's; -1 when there are more ranks than devices. One device: the launcher
/// gave each rank its own, or there is no other. Whether two ranks got the same one is seen when they meet.
int ChosenDevice::turn(int devices) const noexcept {
  if (devices > 1 && machine_rank_ >= devices && !may_share_) return -1;
  return machine_rank_ % devices;
}

int ChosenDevice::choose_in_turn(const char* how) {
  const base::MutexLock lock(mutex_);
  if (index_ >= 0) return index_;
  if (!count_) count_ = count_devices();
  const int devices = std::max(count_->devices, 1);
  const int device = turn(devices);
  if (device < 0) {
    throw Error(ErrorCode::unsupported, "rank " + std::to_string(machine_rank_) +
                                            " of this machine has no device: only " + std::to_string(devices) +
                                            " are visible" + visibility_in_brackets() +
                                            "; KOLO_SHARE_DEVICE=1 lets ranks share them");
  }
  choose_locked(device, how);
  return index_;
}

bool ChosenDevice::describe(std::string& text) const {
  const base::MutexLock lock(mutex_);
  const DeviceCount count = count_ ? *count_ : count_devices();
  if (count.devices == 0) {
    text = "no CUDA device: " + count.why;
    return false;
  }
  const int device = index_ >= 0 ? index_ : turn(count.devices);
  text = device < 0 ? "no device for this rank" : "cuda:" + std::to_string(device) + name_in_brackets(device);
  text += " of " + std::to_string(count.devices) + " visible";
  return true;
}

}  // namespace kolo::cuda
