// SPDX-License-Identifier: Apache-2.0
//
// CUDA_VISIBLE_DEVICES: which of the machine's GPUs CUDA shows a process, and under which numbers. The machine's number
// of a GPU is nvidia-smi's; the process's is the place in this list. Pure, but for what says otherwise.
//
// NVIDIA's rule (CUDA Programming Guide, "CUDA Environment Variables"):
//   - not set: all GPUs are visible; set and empty: none;
//   - else a comma-separated list of identifiers, all of one kind. Visible is what it names, in the order of the list;
//   - an integer index is the GPU's number "as determined by nvidia-smi"; "if an invalid index is encountered, only
//     devices with indices that appear before the invalid index in the list are visible" (0,2,-1,1 shows 0 and 2);
//   - a UUID is nvidia-smi's, "GPU-8932f937-..."; as many of its first characters as make it unique will do;
//   - "MIG-..." names a part of a GPU, by its UUID, or "MIG-<GPU's UUID>/<GPU instance>/<compute instance>" as drivers
//     before R470 had it; "only single MIG instance enumeration is supported".
// The guide is silent about the following, which a machine with one GPU showed (driver 580, `visible_devices`):
//   - a device that is named twice, before anything invalid, makes CUDA refuse the whole list (cudaErrorInvalidDevice);
//   - the first identifier says which kind all of them have; one of another kind is invalid, and ends the list;
//   - an index is read as strtoul does: spaces before it, and what follows its digits, do not count ("1gpu" is 1);
//   - "GPU-" alone names nothing, and what follows a whole UUID does not count.
// A divided GPU is not there itself: CUDA shows one part, and nothing beside it (MIG User Guide, "CUDA Device
// Enumeration"). What names the GPU, or no list at all, stands for its first part.
// GPUs that the process has no permission for (a control group's) are not there, and do not count.
// Not known without starting CUDA: CUDA numbers GPUs of several models by their speed, unless CUDA_DEVICE_ORDER is
// PCI_BUS_ID. For GPUs of one model that is nvidia-smi's order; names by UUID do not depend on it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/cuda/nvml_api.hpp"

namespace kolo::cuda {

inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

/// A GPU, or one part of a divided one.
struct VisibleGpu {
  std::size_t gpu = 0;  ///< its place in the list of the machine's
  std::optional<std::size_t> part;
  friend bool operator==(const VisibleGpu&, const VisibleGpu&) = default;
};

struct Visibility {
  std::vector<VisibleGpu> devices;  ///< by the process's number
  std::string remark;               ///< a sentence about what of the list does not count, and why; empty: all does
};

/// What CUDA would show a process that starts with this value; nothing: the variable is not set.
[[nodiscard]] Visibility visible_devices(const std::optional<std::string>& list, const std::vector<Gpu>& gpus);

/// Then their order does not depend on CUDA_DEVICE_ORDER.
[[nodiscard]] bool are_of_one_model(const std::vector<Gpu>& gpus);

/// The process's number of a GPU (with `part`: of that part); nothing: it is not visible.
[[nodiscard]] std::optional<int> number_in_process(const Visibility& visible, std::size_t gpu,
                                                   std::optional<std::size_t> part = {});

/// Whether a process that has started with `now` sees what `wanted` would show, under the same numbers, as far as that
/// is known: `is_by_bus` says that CUDA numbers GPUs as the machine does.
[[nodiscard]] bool shows_the_same(const std::optional<std::string>& now, const std::string& wanted,
                                  const std::vector<Gpu>& gpus, bool is_by_bus);

/// What a program wants to see (Options::visible_devices) as CUDA_VISIBLE_DEVICES should say it: by UUIDs, which mean
/// the same in any order of the devices. The same identifiers, but each must be right: throws Error (invalid_setting)
/// for one that names no device, or several, or one that was named before; (unsupported) where there is no GPU.
[[nodiscard]] std::string list_by_uuid(const std::string& wanted, const Gpus& gpus);

/// Whether CUDA runs in this process, and has read the variable. Asks the driver, without starting it.
[[nodiscard]] bool cuda_has_started();

/// Makes CUDA show this process what the program wants, by its environment. Throws as `list_by_uuid` does, and Error
/// (invalid_setting) when CUDA has started and shows something else. While no other thread uses the environment.
void make_visible(const std::string& wanted);

/// ` (CUDA_VISIBLE_DEVICES is "2,0")`, and what of it does not count; empty where the variable is not set. For
/// messages: never throws.
[[nodiscard]] std::string visibility_in_brackets() noexcept;

/// The machine's number of the GPU that has this UUID (32 hexadecimal digits), itself or a part of it; nothing where
/// the driver does not say. Never throws.
[[nodiscard]] std::optional<unsigned> number_on_machine(std::string_view uuid) noexcept;

}  // namespace kolo::cuda
