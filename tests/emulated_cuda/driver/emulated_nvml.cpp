// SPDX-License-Identifier: Apache-2.0
#include "emulated_nvml.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>

using kolo::emulated::nvml_machine;
using kolo::emulated::NvmlGpu;
using kolo::emulated::NvmlMachine;
using kolo::emulated::NvmlPart;

namespace {
std::atomic<int> sessions{0};
}

namespace kolo::emulated {

int nvml_sessions() { return sessions; }

std::string nvml_uuid(int number) { return "GPU-3" + std::to_string(number) + "656d75-6c61-7465-6420-646576696365"; }

NvmlMachine nvml_machine_of(int gpus) {
  NvmlMachine machine;
  for (int number = 0; number < gpus; ++number) {
    NvmlGpu gpu;
    gpu.uuid = nvml_uuid(number);
    machine.gpus.push_back(gpu);
  }
  return machine;
}

NvmlMachine& nvml_machine() {
  static NvmlMachine machine = nvml_machine_of(4);
  return machine;
}

}  // namespace kolo::emulated

namespace {

enum : int {
  kSuccess = 0,
  kInvalid = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kTooSmall = 7,
  kNotLoaded = 9,
  kUnknown = 999
};

/// Handles: 1 + 16 * the GPU's number, and for a part 1 + its number more.
using Handle = std::uintptr_t;

const NvmlGpu* gpu_of(Handle handle) {
  const std::size_t number = (handle - 1) / 16;
  return handle != 0 && number < nvml_machine().gpus.size() ? &nvml_machine().gpus[number] : nullptr;
}
const NvmlPart* part_of(Handle handle) {
  const std::size_t number = (handle - 1) % 16;
  return number == 0 ? nullptr : &gpu_of(handle)->parts.at(number - 1);
}

int write(const std::string& from, char* to, unsigned room) {
  if (from.size() >= room) return kTooSmall;
  std::memcpy(to, from.c_str(), from.size() + 1);
  return kSuccess;
}

/// What every call between init and shutdown returns first.
int refusal(const char* call) {
  if (nvml_machine().fails == call) return kUnknown;
  return sessions.load() > 0 ? kSuccess : 1;  // NVML_ERROR_UNINITIALIZED
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  NvmlMachine& machine = nvml_machine();
  if (!machine.driver) return kNotLoaded;
  if (machine.fails == "nvmlInit_v2") return kUnknown;
  ++sessions;
  return kSuccess;
}

int nvmlShutdown() {
  if (const int refused = refusal("nvmlShutdown")) return refused;
  --sessions;
  return kSuccess;
}

const char* nvmlErrorString(int result) { return result == kUnknown ? "Unknown Error" : "Another Error"; }

int nvmlSystemGetDriverVersion(char* text, unsigned room) {
  if (const int refused = refusal("nvmlSystemGetDriverVersion")) return refused;
  return write("580.82.07", text, room);
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  if (const int refused = refusal("nvmlDeviceGetCount_v2")) return refused;
  *count = static_cast<unsigned>(nvml_machine().gpus.size());
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* handle) {
  if (const int refused = refusal("nvmlDeviceGetHandleByIndex_v2")) return refused;
  if (index >= nvml_machine().gpus.size()) return kInvalid;
  if (!nvml_machine().gpus[index].is_permitted) return kNoPermission;
  *handle = 1 + Handle{16} * index;
  return kSuccess;
}

int nvmlDeviceGetName(Handle handle, char* text, unsigned room) {
  if (const int refused = refusal("nvmlDeviceGetName")) return refused;
  const NvmlGpu* const gpu = gpu_of(handle);
  if (gpu == nullptr) return kInvalid;
  return write(gpu->name + (part_of(handle) != nullptr ? " MIG 1g" : ""), text, room);
}

int nvmlDeviceGetUUID(Handle handle, char* text, unsigned room) {
  if (const int refused = refusal("nvmlDeviceGetUUID")) return refused;
  const NvmlGpu* const gpu = gpu_of(handle);
  if (gpu == nullptr) return kInvalid;
  const NvmlPart* const part = part_of(handle);
  return write(part != nullptr ? part->uuid : gpu->uuid, text, room);
}

int nvmlDeviceGetMemoryInfo(Handle handle, unsigned long long* total_free_used) {
  if (const int refused = refusal("nvmlDeviceGetMemoryInfo")) return refused;
  const NvmlGpu* const gpu = gpu_of(handle);
  if (gpu == nullptr) return kInvalid;
  if (!gpu->says_memory) return kNotSupported;
  total_free_used[0] = part_of(handle) != nullptr ? gpu->bytes / 8 : gpu->bytes;
  total_free_used[1] = total_free_used[0] / 2;
  total_free_used[2] = total_free_used[0] - total_free_used[1];
  return kSuccess;
}

int nvmlDeviceGetMigMode(Handle handle, unsigned* current, unsigned* pending) {
  if (const int refused = refusal("nvmlDeviceGetMigMode")) return refused;
  const NvmlGpu* const gpu = gpu_of(handle);
  if (gpu == nullptr) return kInvalid;
  if (gpu->parts.empty()) return kNotSupported;
  *current = *pending = 1;
  return kSuccess;
}

int nvmlDeviceGetMaxMigDeviceCount(Handle /*handle*/, unsigned* count) {
  if (const int refused = refusal("nvmlDeviceGetMaxMigDeviceCount")) return refused;
  *count = 7;
  return kSuccess;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Handle handle, unsigned index, Handle* part) {
  if (const int refused = refusal("nvmlDeviceGetMigDeviceHandleByIndex")) return refused;
  if (index >= gpu_of(handle)->parts.size()) return kNotFound;
  *part = handle + 1 + index;
  return kSuccess;
}

int nvmlDeviceGetGpuInstanceId(Handle handle, unsigned* id) {
  if (const int refused = refusal("nvmlDeviceGetGpuInstanceId")) return refused;
  if (part_of(handle) == nullptr) return kInvalid;
  *id = part_of(handle)->gpu_instance;
  return kSuccess;
}

int nvmlDeviceGetComputeInstanceId(Handle handle, unsigned* id) {
  if (const int refused = refusal("nvmlDeviceGetComputeInstanceId")) return refused;
  if (part_of(handle) == nullptr) return kInvalid;
  *id = part_of(handle)->compute_instance;
  return kSuccess;
}

}  // extern "C"
