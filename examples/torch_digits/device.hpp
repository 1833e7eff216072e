// SPDX-License-Identifier: Apache-2.0
//
// The device of --device, for the examples with LibTorch.
#pragma once

#include <stdexcept>
#include <string>

#include <torch/types.h>

#include <kolo/config.hpp>
#if KOLO_WITH_CUDA
#include <kolo/cuda.hpp>
#endif

namespace torch_digits {

/// "cpu", or "cuda": this rank's device, by its place on its machine. Needs a context.
inline torch::Device device_named(const std::string& name) {
  if (name == "cpu") return torch::kCPU;
#if KOLO_WITH_CUDA
  if (name == "cuda") return {torch::kCUDA, static_cast<c10::DeviceIndex>(kolo::cuda::bind())};
#endif
  throw std::invalid_argument("--device is \"" + name + "\"; it must be cpu, or, where Kolo was built with CUDA, cuda");
}

}  // namespace torch_digits
