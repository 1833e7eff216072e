// SPDX-License-Identifier: Apache-2.0
//
// A rank's GPU, as the measuring needs it. What is called here is work of one stream, the job's; whatever reads results
// back waits for it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <kolo/handle.hpp>
#include <kolo/types.hpp>

namespace kolo_bench {

class Job;
class Peer;
class Timer;

/// One thread. Throws std::runtime_error with CUDA's own words.
class Device {
 public:
  virtual ~Device() = default;
  /// "NVIDIA H200".
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual kolo::Device place() const = 0;
  [[nodiscard]] virtual kolo::Stream stream() const = 0;
  [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// From the host's memory, behind the stream's work so far; done on return.
  virtual void write(void* to, const void* from, std::size_t bytes) = 0;
  /// To the host's memory, likewise.
  virtual void read(void* to, const void* from, std::size_t bytes) = 0;
  [[nodiscard]] virtual kolo::TensorView view(void* data, kolo::DType dtype, const kolo::Shape& shape) const = 0;
  /// The stream goes on behind the operation.
  virtual void follow(kolo::Handle& handle) = 0;
  /// By the device's own events, on the stream.
  [[nodiscard]] virtual std::shared_ptr<Timer> timer() = 0;
  /// NCCL with a communicator of its own, on the stream. Collective.
  [[nodiscard]] virtual std::shared_ptr<Peer> nccl(Job& job) = 0;
};

/// Kolo must be there. Collective: throws BadFlags on all ranks when one has no device, or this build no CUDA.
std::shared_ptr<Device> open_device(Job& job);

}  // namespace kolo_bench
