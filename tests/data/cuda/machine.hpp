// SPDX-License-Identifier: Apache-2.0
//
// The machine under these tests: the emulated one, or, in gpu_test, a real device, of which nothing can be asked.
#pragma once

#ifndef KOLO_ON_REAL_DEVICE

#include "tests/emulated_cuda/emulator.hpp"

namespace kolo::emulated {
inline constexpr bool kIsReal = false;
}

#else

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::emulated {

inline constexpr bool kIsReal = true;

struct Config {
  int devices = 1;
  std::uint64_t seed = 1;
};
struct Report {
  enum class Kind { none };
  Kind kind = Kind::none;
  std::string text;
};
inline std::string to_string(Report::Kind /*kind*/) { return {}; }
inline void reset(const Config& /*config*/ = {}) {}
inline void drain() {}
inline void acquire_all() {}
inline std::vector<Report> take_reports() { return {}; }
inline std::vector<std::string> live_objects() { return {}; }

}  // namespace kolo::emulated

#endif
