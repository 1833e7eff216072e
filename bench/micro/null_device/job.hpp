// SPDX-License-Identifier: Apache-2.0
//
// This process's place in the job that is measured, and kolo_torch in it, in a build that has that with CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace kolo_bench {

/// Joins the job and binds this rank to its device. While it lives, calls without a context use its own.
class Job {
 public:
  Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  /// An all-reduce of so many bytes by kolo_torch's process group, and its `wait()`. It lives as long as the job. Empty
  /// in a build without kolo_torch.
  [[nodiscard]] std::function<void()> by_torch(std::int64_t bytes);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace kolo_bench
