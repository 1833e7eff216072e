// SPDX-License-Identifier: Apache-2.0
//
// NVML: what NVIDIA's driver says of the machine's GPUs, whichever of them CUDA shows this process, and without
// starting CUDA. Its library comes with the driver, so it is opened when it is asked for, and its header with neither:
// the entry points that Kolo calls are spelled out here as nvml.h declares them (NVML API Reference). Results are
// checked.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::cuda {

/// `nvmlReturn_t`: those that are an answer. Others are failures, which NVML has sentences for.
enum NvmlResult : int {
  kNvmlSuccess = 0,
  kNvmlNotSupported = 3,
  kNvmlNoPermission = 4,
  kNvmlNotFound = 6,
  kNvmlDriverNotLoaded = 9,
  kNvmlLibraryNotFound = 12,
};

/// `nvmlDevice_t`.
using NvmlDevice = struct NvmlDeviceOfTheDriver*;

/// `nvmlMemory_t`, in bytes.
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

/// The entry points, by the names that the library has for them (nvml_api.cpp). Tests put those of an
/// emulated machine here.
struct NvmlEntries {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*mig_mode)(NvmlDevice, unsigned* current, unsigned* pending) = nullptr;
  int (*mig_count)(NvmlDevice, unsigned*) = nullptr;
  int (*mig_by_index)(NvmlDevice, unsigned, NvmlDevice*) = nullptr;
  int (*gpu_instance)(NvmlDevice, unsigned*) = nullptr;
  int (*compute_instance)(NvmlDevice, unsigned*) = nullptr;
};

/// A part of a GPU that is divided (MIG): a device of its own for CUDA.
struct GpuPart {
  std::string name;  ///< "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
  std::string uuid;  ///< "MIG-" and 8-4-4-4-12 hexadecimal digits
  /// What drivers before R470 called it: "MIG-GPU-<its GPU's>/<GPU instance>/<compute instance>".
  std::string old_name;
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;
};

struct Gpu {
  unsigned number = 0;             ///< the machine's, as nvidia-smi has it
  std::string name;                ///< "NVIDIA H200"
  std::string uuid;                ///< "GPU-" and 8-4-4-4-12 hexadecimal digits
  std::uint64_t memory_bytes = 0;  ///< 0 where the driver does not say, as for memory that is the CPU's, too
  std::uint64_t free_bytes = 0;
  std::vector<GpuPart> parts;
};

struct Gpus {
  std::vector<Gpu> all;  ///< that this process may use, by number
  std::string driver;    ///< "580.82.07"
  std::string why;       ///< with none: the reason
};

/// Asks an NVML. Never throws for a machine without a driver or a GPU: that is an answer. Throws Error (unsupported)
/// when a call fails, with its name, the GPU and NVML's sentence.
[[nodiscard]] Gpus list_gpus(const NvmlEntries& entries);
/// Asks the driver's. Throws Error (unsupported), also for a library that lacks an entry point.
[[nodiscard]] Gpus list_gpus();

}  // namespace kolo::cuda
