// SPDX-License-Identifier: Apache-2.0

/// @file
/// The GPUs of this machine, and which of them CUDA shows this process. Needs no context, and does not start CUDA.
#ifndef KOLO_DEVICES_HPP
#define KOLO_DEVICES_HPP

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kolo/export.hpp>

namespace kolo {

/// A GPU of the machine, or a part of one that is divided (MIG).
struct DeviceInfo {
  int machine_number = 0;             ///< nvidia-smi's number; for a part, that of its GPU
  std::optional<int> process_number;  ///< CUDA's number in this process (`cuda:0`); empty if CUDA_VISIBLE_DEVICES hides
                                      ///< the GPU
  std::string name;                   ///< "NVIDIA H200"
  std::string uuid;                   ///< "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"; of a part "MIG-..."
  std::uint64_t memory_bytes = 0;     ///< 0 if the driver does not say, as for memory that the GPU shares with the CPU
  std::uint64_t free_bytes = 0;       ///< now
  std::string driver;                 ///< the driver's version: "580.82.07"
};

/// The machine's GPUs in the order of `machine_number`, each followed by its parts. Asks NVIDIA's driver (NVML). Empty
/// if there is no driver, no GPU that this process may use, or no CUDA part in this build. `process_number` is what
/// CUDA_VISIBLE_DEVICES gives a process whose CUDA starts now. (GPUs of several models are numbered by CUDA in an order
/// of its own unless CUDA_DEVICE_ORDER is PCI_BUS_ID.) Any thread. Throws `Error` (unsupported) when the driver cannot
/// answer.
[[nodiscard]] KOLO_API std::vector<DeviceInfo> devices();

/// The same as text of several lines, with what CUDA_VISIBLE_DEVICES says; without a GPU "No CUDA-compatible GPU
/// found." and the reason. `kolo-info --devices` prints it.
[[nodiscard]] KOLO_API std::string describe_devices();

}  // namespace kolo

#endif  // KOLO_DEVICES_HPP
