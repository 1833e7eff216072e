// SPDX-License-Identifier: Apache-2.0
//
// What this process gave to CUDA and what ran on the device, with times of one clock, as CUPTI records it. One trace a
// process. Tracing makes each call into CUDA a microsecond or two slower.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kolo_bench {

/// Nanoseconds of the trace's clock.
using Nanoseconds = std::uint64_t;

/// A call into CUDA's runtime or driver.
struct TracedCall {
  Nanoseconds begin = 0, end = 0;
  pid_t thread = 0;
  std::uint32_t correlation = 0;
};

/// A kernel, or a copy within the device ("copy").
struct TracedWork {
  Nanoseconds begin = 0, end = 0;
  std::uint32_t correlation = 0;  ///< that of the call which launched it
  std::string name;
};

struct Traced {
  std::vector<TracedCall> calls;  ///< both in the order in which they began
  std::vector<TracedWork> work;
};

/// Begins to trace. Returns an empty string, or why it cannot: `trace_now` is then another clock's, and nothing is
/// traced.
[[nodiscard]] std::string begin_trace();
[[nodiscard]] Nanoseconds trace_now();
/// Everything since the last call of this function. To be called when the device has nothing to do. Throws
/// std::runtime_error with CUPTI's words.
[[nodiscard]] Traced take_trace();

}  // namespace kolo_bench
