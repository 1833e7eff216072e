// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/nvml_api.hpp"

#include <array>
#include <string>
#include <utility>

#include <dlfcn.h>

#include <kolo/error.hpp>

#include "base/shared_library.hpp"

namespace kolo::cuda {
namespace {

constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";
/// NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE; a driver's version takes fewer.
constexpr unsigned kNvmlText = 96;
constexpr const char* kFailed = " failed";

template <class Entry>
void find_entry(void* library, Entry& entry, const char* name) {
  entry = reinterpret_cast<Entry>(::dlsym(library, name));
  if (entry == nullptr) {
    throw Error(ErrorCode::unsupported,
                std::string(kNvmlLibrary) + " has no " + name +
                    ": this machine's NVIDIA driver is older than those that Kolo knows (R450)");
  }
}

NvmlEntries find_entries(void* library) {
  NvmlEntries entries;
  find_entry(library, entries.init, "nvmlInit_v2");
  find_entry(library, entries.shutdown, "nvmlShutdown");
  find_entry(library, entries.error_string, "nvmlErrorString");
  find_entry(library, entries.driver_version, "nvmlSystemGetDriverVersion");
  find_entry(library, entries.device_count, "nvmlDeviceGetCount_v2");
  find_entry(library, entries.device_by_index, "nvmlDeviceGetHandleByIndex_v2");
  find_entry(library, entries.name, "nvmlDeviceGetName");
  find_entry(library, entries.uuid, "nvmlDeviceGetUUID");
  find_entry(library, entries.memory, "nvmlDeviceGetMemoryInfo");
  find_entry(library, entries.mig_mode, "nvmlDeviceGetMigMode");
  find_entry(library, entries.mig_count, "nvmlDeviceGetMaxMigDeviceCount");
  find_entry(library, entries.mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex");
  find_entry(library, entries.gpu_instance, "nvmlDeviceGetGpuInstanceId");
  find_entry(library, entries.compute_instance, "nvmlDeviceGetComputeInstanceId");
  return entries;
}

/// One use of NVML, from its init to its shutdown.
class NvmlSession {
 public:
  explicit NvmlSession(const NvmlEntries& entries) : nvml_(entries) {}
  ~NvmlSession() {
    if (is_open_) static_cast<void>(nvml_.shutdown());  // nobody could do anything about a failure
  }
  NvmlSession(const NvmlSession&) = delete;
  NvmlSession& operator=(const NvmlSession&) = delete;

  /// Why there is no driver for this process; empty: there is one.
  std::string open() {
    const int result = nvml_.init();
    if (result == kNvmlDriverNotLoaded) return "the NVIDIA driver is not loaded";
    if (result == kNvmlNoPermission || result == kNvmlLibraryNotFound) {  // a container without the devices
      return std::string("this process cannot reach the NVIDIA driver (") + nvml_.error_string(result) + ")";
    }
    check(result, "nvmlInit_v2", kFailed);
    is_open_ = true;
    return {};
  }

  [[nodiscard]] std::string driver() const {
    std::array<char, kNvmlText> text{};
    check(nvml_.driver_version(text.data(), kNvmlText), "nvmlSystemGetDriverVersion", kFailed);
    return text.data();
  }

  [[nodiscard]] unsigned count() const {
    unsigned count = 0;
    check(nvml_.device_count(&count), "nvmlDeviceGetCount_v2", kFailed);
    return count;
  }

  /// False: this process may not use it, and CUDA does not count it.
  bool describe(unsigned number, Gpu& gpu) const {
    const std::string failed = " failed for GPU " + std::to_string(number);
    NvmlDevice device = nullptr;
    const int result = nvml_.device_by_index(number, &device);
    if (result == kNvmlNoPermission) return false;
    check(result, "nvmlDeviceGetHandleByIndex_v2", failed);
    gpu.number = number;
    gpu.name = text_of(nvml_.name, device, "nvmlDeviceGetName", failed);
    gpu.uuid = text_of(nvml_.uuid, device, "nvmlDeviceGetUUID", failed);
    const NvmlMemory memory = memory_of(device, failed);
    gpu.memory_bytes = memory.total;
    gpu.free_bytes = memory.free;
    if (is_divided(device, failed)) gpu.parts = parts_of(device, gpu.uuid, failed);
    return true;
  }

 private:
  using TextEntry = int (*)(NvmlDevice, char*, unsigned);
  using NumberEntry = int (*)(NvmlDevice, unsigned*);

  void check(int result, const char* call, const std::string& failed) const {
    if (result == kNvmlSuccess) return;
    throw Error(ErrorCode::unsupported, std::string(call) + failed + ": " + nvml_.error_string(result));
  }

  [[nodiscard]] std::string text_of(TextEntry entry, NvmlDevice device, const char* call,
                                    const std::string& failed) const {
    std::array<char, kNvmlText> text{};
    check(entry(device, text.data(), kNvmlText), call, failed);
    return text.data();
  }

  [[nodiscard]] unsigned number_of(NumberEntry entry, NvmlDevice device, const char* call,
                                   const std::string& failed) const {
    unsigned number = 0;
    check(entry(device, &number), call, failed);
    return number;
  }

  [[nodiscard]] NvmlMemory memory_of(NvmlDevice device, const std::string& failed) const {
    NvmlMemory memory{};
    const int result = nvml_.memory(device, &memory);
    if (result == kNvmlNotSupported) return {};
    check(result, "nvmlDeviceGetMemoryInfo", failed);
    return memory;
  }

  [[nodiscard]] bool is_divided(NvmlDevice device, const std::string& failed) const {
    unsigned current = 0;
    unsigned pending = 0;
    const int result = nvml_.mig_mode(device, &current, &pending);
    if (result == kNvmlNotSupported) return false;
    check(result, "nvmlDeviceGetMigMode", failed);
    return current == 1;
  }

  [[nodiscard]] std::vector<GpuPart> parts_of(NvmlDevice device, const std::string& uuid,
                                              const std::string& failed) const {
    std::vector<GpuPart> parts;
    const unsigned most = number_of(nvml_.mig_count, device, "nvmlDeviceGetMaxMigDeviceCount", failed);
    for (unsigned i = 0; i < most; ++i) {
      NvmlDevice handle = nullptr;
      const int result = nvml_.mig_by_index(device, i, &handle);
      // Fewer parts than there could be, or another process's.
      if (result == kNvmlNotFound || result == kNvmlNoPermission) continue;
      check(result, "nvmlDeviceGetMigDeviceHandleByIndex", failed);
      GpuPart part;
      part.name = text_of(nvml_.name, handle, "nvmlDeviceGetName", failed);
      part.uuid = text_of(nvml_.uuid, handle, "nvmlDeviceGetUUID", failed);
      part.old_name =
          "MIG-" + uuid + "/" +
          std::to_string(number_of(nvml_.gpu_instance, handle, "nvmlDeviceGetGpuInstanceId", failed)) + "/" +
          std::to_string(number_of(nvml_.compute_instance, handle, "nvmlDeviceGetComputeInstanceId", failed));
      const NvmlMemory memory = memory_of(handle, failed);
      part.memory_bytes = memory.total;
      part.free_bytes = memory.free;
      parts.push_back(std::move(part));
    }
    return parts;
  }

  const NvmlEntries& nvml_;
  bool is_open_ = false;
};

}  // namespace

Gpus list_gpus(const NvmlEntries& entries) {
  Gpus found;
  NvmlSession session(entries);
  found.why = session.open();
  if (!found.why.empty()) return found;
  found.driver = session.driver();
  const unsigned count = session.count();
  for (unsigned number = 0; number < count; ++number) {
    Gpu gpu;
    if (session.describe(number, gpu)) found.all.push_back(std::move(gpu));
  }
  if (found.all.empty()) {
    found.why = count == 0 ? "the NVIDIA driver knows of none" : "this process may use none of this machine's";
  }
  return found;
}

Gpus list_gpus() {
  Gpus none;
  void* const library = base::open_shared_library(kNvmlLibrary, "nvidia", none.why);  // pip has none: the driver's
  if (library != nullptr) return list_gpus(find_entries(library));
  none.why = "no NVIDIA driver is installed (" + none.why + ")";
  return none;
}

}  // namespace kolo::cuda
