// SPDX-License-Identifier: Apache-2.0
//
// The job that measures: who is there, and how its ranks agree on what was measured. By Kolo's own collectives, or by
// MPI's where only the peer is measured.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace kolo_bench {

class Job {
 public:
  virtual ~Job() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual int nodes() const = 0;
  virtual void barrier() = 0;
  /// Each replaced by the largest of all ranks.
  virtual void max(std::vector<double>& values) = 0;
  [[nodiscard]] virtual std::int64_t sum(std::int64_t value) = 0;
  /// Everybody gets rank 0's, which are as many.
  virtual void broadcast(std::vector<char>& bytes) = 0;
};

/// Kolo is initialised, and MPI by it when there is a launcher.
std::unique_ptr<Job> make_kolo_job();
/// MPI alone, at MPI_THREAD_SINGLE, or at MPI_THREAD_MULTIPLE; finalised at the end.
std::unique_ptr<Job> make_mpi_job(bool threads);

}  // namespace kolo_bench
