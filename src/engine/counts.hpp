// SPDX-License-Identifier: Apache-2.0
//
// Calls and their bytes, by kind of collective.
#pragma once

#include <array>
#include <cstddef>

#include <kolo/info.hpp>

#include "core/collectives.hpp"

namespace kolo::engine {

using CountsByKind = std::array<CollectiveCount, core::kCollectiveCount>;

/// Adds them to those of the collectives as programs know them.
inline void add(const CountsByKind& counts, Metrics& to) noexcept {
  const auto count = [&](core::CollectiveKind kind, CollectiveCount& its) {
    its.calls += counts[static_cast<std::size_t>(kind)].calls;
    its.bytes += counts[static_cast<std::size_t>(kind)].bytes;
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
  count(Kind::reduce_scatter, to.reduce_scatter);
  count(Kind::barrier, to.barrier);
}

}  // namespace kolo::engine
