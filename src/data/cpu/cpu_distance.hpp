// SPDX-License-Identifier: Apache-2.0
//
// Whether the CPUs of a node's ranks share a cache: what a rank writes and its peers read then goes through the cache,
// else past it (data/kernels/copy.hpp). No program is told that: a virtual machine hides it. So it is measured, at
// the start, by ranks 2i and 2i + 1 of a node: both write a slot, wait for each other, read the other's slot, and wait
// again, some rounds through the cache and some past it. A rank times its own writing alone. Rounds in which both
// were on one CPU do not count: processes that have just been started often are, until the system moves one.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "transport/intra_node.hpp"

namespace kolo::data::cpu {

enum class CpuDistance : std::uint8_t {
  unknown,  ///< no peer, small slots, or the peer did not keep step: it may have no CPU of its own
  near,     ///< a cache is shared
  far,
};

/// Collective over the ranks of a node. `intra`: zeroed, and used by nothing else meanwhile; its slots hold anything
/// afterwards. Takes at most `patience`, and some 0.5 ms where each rank has a CPU.
[[nodiscard]] CpuDistance measure_cpu_distance(const transport::IntraNode& intra, base::Duration patience);

/// By what timing some writes of the same bytes gave, both ways.
[[nodiscard]] CpuDistance judge_cpu_distance(base::Duration through_cache, base::Duration past_cache) noexcept;

}  // namespace kolo::data::cpu
