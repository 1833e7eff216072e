// SPDX-License-Identifier: Apache-2.0
//
// Ranges and marks for profilers (Nsight Systems), in NVTX's domain "kolo": what the driver gives to the device for
// which tensors, and when they were submitted. Every call of NVTX that Kolo makes; where no profiler has loaded a
// listener they do nothing. A build without NVTX's headers has none.
#pragma once

#include <string_view>

namespace kolo::cuda {

/// Whether anybody listens: labels need only be made then.
[[nodiscard]] bool profiler_listens() noexcept;

/// From its beginning to its end, on the calling thread: "pack layer1.weight".
class ProfilerRange {
 public:
  ProfilerRange(const char* what, std::string_view label) noexcept;
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  const bool open_;
};

/// A point in time.
void mark_for_profiler(const char* what, std::string_view label) noexcept;

}  // namespace kolo::cuda
