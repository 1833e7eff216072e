// SPDX-License-Identifier: Apache-2.0
//
// A job on its way: its runs are opened one after another, and cut into chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/backend.hpp"
#include "data/cpu/registry.hpp"

namespace kolo::data::cpu {

/// One driver. Reusable: `open` again after `close`.
class OpenJob {
 public:
  explicit OpenJob(Collectives& collectives) noexcept : collectives_(collectives) {}

  void open(data::Job& job);
  /// Nothing of the job is under way any more.
  void close();
  [[nodiscard]] data::Job& job() const noexcept { return *job_; }

  /// Cuts the next chunk, whose number is there. False when there is none: the job is wholly cut, or (`is_cut()` is
  /// false) waits for what is learned when its last chunk is taken. `taken`: how many chunks this rank has taken.
  bool cut(Chunk& chunk, std::uint64_t taken);
  [[nodiscard]] bool is_cut() const noexcept { return cut_; }
  /// The number of the chunk after the last; once it is cut.
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }

 private:
  Collectives& collectives_;
  data::Job* job_ = nullptr;
  std::vector<Collective*> opened_;  // by run; the last one is being cut
  bool cut_ = false;
  std::uint64_t end_ = 0;
};

}  // namespace kolo::data::cpu
