// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's CUDA part on the emulated device: streams, events, an allocator, and the few operations that the backend
// uses. An allocator that gives memory out again at once, to the stream it was allocated on, would be hard to catch at
// a mistake; this one never does, but writes to what is freed as the next owner would: behind the streams that it has
// been told of, and no others. Whatever still uses the memory then is a race, which the emulated device reports.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <cuda_runtime_api.h>

namespace kolo::c10d::test {

/// For a new machine: forgets streams and memory.
void reset_torch();

/// A new stream of the device.
[[nodiscard]] c10::Stream new_stream(int device);
[[nodiscard]] cudaStream_t native(const c10::Stream& stream);
/// The calling thread's current stream of its current device.
[[nodiscard]] cudaStream_t current();

/// A tensor of these numbers on the current device, written by the current stream.
[[nodiscard]] at::Tensor on_device(const at::Tensor& numbers);
/// The same with gaps between the numbers.
[[nodiscard]] at::Tensor strided_on_device(const at::Tensor& numbers);
/// The numbers behind what the current stream has been given.
[[nodiscard]] at::Tensor on_host(const at::Tensor& tensor);

}  // namespace kolo::c10d::test
