// SPDX-License-Identifier: Apache-2.0
//
// One call of a program's into CUDA or NCCL: counts it, holds the machine's mutex, knows where it was made, and whether
// it was chosen to fail.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <cuda_runtime_api.h>

#include "machine.hpp"

namespace kolo::emulated {

/// Says where this thread's next call is made, for the reports. The strings must outlive the call.
void at_site(const char* file, int line);

/// Notes that a place that synchronises was passed, and makes it the next call's site. False: it is left out.
bool passes(const char* call, const char* file, int line);

class Call {
 public:
  explicit Call(const char* api);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// The failure that was injected for this call, if any; looked up once the rank and the device are known.
  std::optional<Failure> injected(int device, int rank = -1);
  enum class Needs : unsigned char { a_context, no_context };
  /// CUDA's calls begin with this: what they must return at once, or success. One that needs a context makes that of
  /// the current device, where the thread has none.
  cudaError_t refusal(Needs needs = Needs::a_context);
  /// The thread goes into the primary context of its current device.
  void enter_context();
  /// CUDA's calls end with this.
  cudaError_t end(cudaError_t result);
  /// A call that CUDA refuses, with a report that says why.
  cudaError_t misuse(cudaError_t result, const std::string& why);
  /// The stream a handle stands for, of the current device for the default ones; null and reported when it is none.
  StreamPtr stream(cudaStream_t handle);
  /// That it gives something to a stream, for the trace.
  void gives_to(const Stream& stream);
  /// Waits until the stream takes one more operation (Config::most_queued).
  void await_room(const Stream& stream);
  /// Work given to a capturing stream would become part of a graph; none is emulated, so it is refused and reported.
  bool captured(Stream& stream);
  /// What a capture forbids a thread to do even beside the captured stream, by the mode of either: to ask, to wait, to
  /// allocate. It ends the capture. Success where nothing is captured.
  cudaError_t beside_captures();
  /// An operation of this call's name, or of another, with what it needs to be submitted.
  Op op(const Stream& stream, const std::string& what = {}) const;
  bool valid_device(int device) const { return device >= 0 && device < machine.config.devices; }

  Machine& machine;
  Lock lock;
  const char* const api;
  std::string site;

  HostThread& host() { return machine.host(); }
};

}  // namespace kolo::emulated
