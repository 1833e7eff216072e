// SPDX-License-Identifier: Apache-2.0
//
// The engine's counters and histograms, and the counters of the open step. One thread at a time (the engine's driver).
#pragma once

#include <cstdint>
#include <utility>

#include <kolo/detail/counters.hpp>

#include "base/buckets.hpp"
#include "core/collectives.hpp"
#include "engine/counts.hpp"

namespace kolo::engine {

struct Tally : detail::Counters {
  base::DurationBuckets<> negotiations;
  base::DurationBuckets<> executions;
  base::CountBuckets requests_of_batches;
  base::ByteBuckets bytes_of_batches;

  /// With the histograms, but for that of waits.
  [[nodiscard]] detail::Counters counted() const {
    const detail::Counters& counters = *this;
    detail::Counters metrics = counters;
    add(by_kind_, metrics);
    metrics.negotiation_ns = negotiations.histogram();
    metrics.execution_ns = executions.histogram();
    metrics.batch_requests = requests_of_batches.histogram();
    metrics.batch_bytes = bytes_of_batches.histogram();
    return metrics;
  }
  /// A call is over.
  void note(core::CollectiveKind kind, std::uint64_t its_tensors, std::uint64_t its_bytes) noexcept {
    tensors += its_tensors;
    bytes += its_bytes;
    CollectiveCount& count = by_kind_[static_cast<std::size_t>(kind)];
    ++count.calls;
    count.bytes += its_bytes;
  }
  /// The batches from here on are the next step's.
  void end_step() noexcept {
    ++steps;
    last_step_digest = std::exchange(batch_digest, 0);
    last_step_batches = batches - std::exchange(batches_before_step_, batches);
  }

 private:
  CountsByKind by_kind_ = {};
  std::uint64_t batches_before_step_ = 0;
};

}  // namespace kolo::engine
