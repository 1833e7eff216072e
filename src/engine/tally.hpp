// SPDX-License-Identifier: Apache-2.0
//
// The engine's counters and histograms, and the counters of the open step. One thread at a time (the engine's driver).
#pragma once

#include <cstdint>
#include <utility>

#include <kolo/info.hpp>

#include "base/buckets.hpp"

namespace kolo::engine {

struct Tally : Metrics {
  base::DurationBuckets<> negotiations;
  base::DurationBuckets<> executions;
  base::CountBuckets requests_of_batches;
  base::ByteBuckets bytes_of_batches;

  /// With the histograms, but for that of waits.
  [[nodiscard]] Metrics counted() const {
    const Metrics& counters = *this;
    Metrics metrics = counters;
    metrics.negotiation_ns = negotiations.histogram();
    metrics.execution_ns = executions.histogram();
    metrics.batch_requests = requests_of_batches.histogram();
    metrics.batch_bytes = bytes_of_batches.histogram();
    return metrics;
  }
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
