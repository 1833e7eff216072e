// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's streams and events on CUDA devices, by its interface to devices of any kind: none of CUDA's headers is
// needed, and what implements it may be anything (in tests an emulated device). Without Kolo's CUDA part, and with
// PyTorch before 2.11, no tensor of a CUDA device gets here.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <kolo/handle.hpp>
#include <kolo/types.hpp>

#include "c10d/tensor_memory.hpp"
#include "c10d/versions.hpp"

namespace kolo::c10d {

/// Whether this build takes tensors of CUDA devices.
[[nodiscard]] bool takes_cuda() noexcept;

/// The calling thread's current stream on this device, for a view.
[[nodiscard]] Stream current_stream(at::Device device);

/// Blocks the host until the current stream there has done what it was given.
void wait_for_current_stream(at::Device device);

/// Tells the allocator that the tensor's memory is in use on the current stream of its device.
void note_use_on_current_stream(const at::Tensor& tensor);

/// `cuda::wait_given`.
[[nodiscard]] bool wait_given(Handle& handle, std::chrono::nanoseconds duration);

/// What is given to the current stream of the device from now on runs behind the operations, all of whose work has been
/// given to the device. Throws as `cuda::wait_on`.
void follow_on_current_stream(at::Device device, const std::vector<std::shared_ptr<Handle>>& handles);

/// A stream of PyTorch's pool that is current while this lives.
class OwnStream {
 public:
  explicit OwnStream(at::Device device);
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A point in the work of a stream.
class Point {
 public:
  /// What the current stream of the device has been given so far.
  explicit Point(at::Device device);
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;
  ~Point();
  /// What is given to the current stream from now on runs behind it.
  void hold_back_current_stream() const;
  [[nodiscard]] bool is_reached() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::c10d
