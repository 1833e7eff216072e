// SPDX-License-Identifier: Apache-2.0
//
// The engine's counters and histograms, and the counters of the open step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

#include "base/buckets.hpp"
#include "core/collectives.hpp"

namespace kolo::engine {

/// Calls and their bytes, by kind of collective.
using CountsByKind = std::array<CollectiveCount, core::kCollectiveCount>;

/// Adds them to those of the collectives as programs know them.
inline void add(const CountsByKind& counts, Metrics& to) noexcept {
  const auto count = [&](core::CollectiveKind kind, CollectiveCount& its) {
    its.calls += counts[static_cast<std::size_t>(kind)].calls;
    its.bytes += counts[static_cast<std::size_t>(kind)].bytes;
    its.ns += counts[static_cast<std::size_t>(kind)].ns;
  };
  using Kind = core::CollectiveKind;
  count(Kind::allreduce, to.allreduce);
  count(Kind::reduce, to.reduce);
  count(Kind::broadcast, to.broadcast);
  count(Kind::allgather, to.allgather);
  count(Kind::allgather_equal, to.allgather);
  count(Kind::gather, to.gather);
  count(Kind::scatter, to.scatter);
  count(Kind::alltoall, to.alltoall);
  count(Kind::alltoall_splits, to.alltoall);
  count(Kind::alltoall_known, to.alltoall);
  count(Kind::reduce_scatter, to.reduce_scatter);
  count(Kind::barrier, to.barrier);
}

/// One thread at a time (the engine's driver).
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
  /// A batch is over.
  void note_batch(core::CollectiveKind kind, std::uint64_t ns) {
    executions.add(ns);
    by_kind_[static_cast<std::size_t>(kind)].ns += ns;
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
