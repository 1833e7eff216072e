// SPDX-License-Identifier: Apache-2.0
//
// The engine's counters, and those of the open step. One thread at a time (the engine's driver).
#pragma once

#include <cstdint>
#include <utility>

#include <kolo/info.hpp>

namespace kolo::engine {

struct Tally : Metrics {
  std::uint64_t steps = 0;  ///< that have ended
  [[nodiscard]] const Metrics& counted() const noexcept { return *this; }
  /// The batches from here on are the next step's.
  void end_step() noexcept {
    ++steps;
    last_step_digest = std::exchange(batch_digest, 0);
    last_step_batches = batches - std::exchange(batches_before_step_, batches);
  }

 private:
  std::uint64_t batches_before_step_ = 0;
};

}  // namespace kolo::engine
