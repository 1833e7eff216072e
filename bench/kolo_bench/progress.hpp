// SPDX-License-Identifier: Apache-2.0
//
// A line on the terminal that says what is being measured, and is gone when the row is printed.
#pragma once

#include <cstddef>
#include <string>

namespace kolo_bench {

/// One thread. Writes to standard error, and only where a person sees it: when that is a terminal, or mpirun's is.
class Progress {
 public:
  explicit Progress(bool shown);
  void begin(std::string what) { what_ = std::move(what); }
  void show(std::size_t samples, double seconds) const;
  void clear() const;

 private:
  const bool shown_;
  std::string what_;
};

}  // namespace kolo_bench
