// SPDX-License-Identifier: Apache-2.0
//
// An NVML: a library of the driver's own name (libnvidia-ml.so.1) for programs that look for that, and what a program
// that links it says to it. From the beginning it knows a machine of four GPUs, those of the emulated device.
#pragma once

#include <string>
#include <vector>

namespace kolo::emulated {

struct NvmlPart {
  std::string uuid;
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
};

struct NvmlGpu {
  std::string name = "Emulated device";
  std::string uuid;
  unsigned long long bytes = 1ULL << 30;
  bool is_permitted = true;
  bool says_memory = true;
  std::vector<NvmlPart> parts;  ///< the first; there could be seven
};

struct NvmlMachine {
  bool driver = true;
  std::vector<NvmlGpu> gpus;
  std::string fails;  ///< the entry point that returns NVML_ERROR_UNKNOWN
};

/// "GPU-30656d75-6c61-7465-6420-646576696365" for device 0 of the emulated machine.
std::string nvml_uuid(int number);
/// Of this many GPUs.
NvmlMachine nvml_machine_of(int gpus);
/// The one that the library speaks of. Not while another thread asks it.
NvmlMachine& nvml_machine();
/// Inits without a shutdown.
int nvml_sessions();

}  // namespace kolo::emulated
