// SPDX-License-Identifier: Apache-2.0
//
// A lane's part of the way between nodes.
//
// A *lane* is one rank of every node: lane j is made of the ranks with local rank j, and there are as many lanes as the
// smallest node has ranks. Chunks are divided among the lanes, so that all of a node's lane ranks send at the same
// time. An *exchange* brings the lane's share of one chunk through all nodes; several are open at once, each at its own
// step.
//
// All-reduce is a ring. The share is cut into one segment a node. In N-1 steps every node sends the segment that it
// added to last to the next node, and adds what it receives to its own partial sums (reduce-scatter): segment k starts
// at node k and ends, complete, at node k-1. There it is finished - divided, scaled, rounded, once for each element -
// and in N-1 more steps the finished bytes go round (all-gather). The order of additions depends on the segment alone,
// and everybody gets the owner's bits. Partial sums travel in the accumulator's type, finished ones in the element's.
//
// Broadcast is a chain from the root's node through all others in ring order; a node passes a chunk on as soon as it
// has it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/inter_node.hpp"
#include "hierarchy/stream.hpp"

namespace kolo::hierarchy {

/// Where this rank stands in its lane.
struct LanePlace {
  int node = 0;
  std::vector<int> ranks;  ///< of the lane, as InterNode numbers them, by node
};

/// The exchanges of one rank. One driver. Whatever calls the transport says so; the rest may be called where the
/// transport is not usable.
class Lane {
 public:
  /// Exchange i uses tag `first_tag + i`, for the same chunks on all nodes. Shares of up to `largest_share` elements of
  /// each element size are exchanged (see `Sizes`). Takes all its memory from the transport, here.
  Lane(std::shared_ptr<core::InterNode> transport, LanePlace place, int first_tag, std::size_t exchanges,
       std::size_t slot_bytes, int lanes);

  /// The exchange's memory for the node's partial sums, to be filled before `start_allreduce`.
  [[nodiscard]] std::byte* partial(std::size_t exchange) noexcept { return exchanges_[exchange].partial; }
  /// The finished elements: to be filled on the root's node before `start_broadcast`, to be read elsewhere when done.
  [[nodiscard]] std::byte* result(std::size_t exchange) noexcept { return exchanges_[exchange].result; }

  void start_allreduce(std::size_t exchange, const kernels::Reduction& reduction, std::int64_t elements);
  void start_broadcast(std::size_t exchange, std::size_t element_bytes, std::int64_t elements, int root_node);
  /// Moves an exchange on; true when something moved. Calls the transport; throws what it throws.
  bool advance(std::size_t exchange);
  [[nodiscard]] bool done(std::size_t exchange) const noexcept {
    return exchanges_[exchange].step == exchanges_[exchange].steps;
  }

 private:
  struct Exchange {
    std::byte* partial = nullptr;   // of the whole share, accumulator type
    std::byte* incoming = nullptr;  // one segment, accumulator type
    std::byte* result = nullptr;    // of the whole share, element type
    kernels::Reduction reduction;
    std::size_t element_bytes = 0;
    std::size_t accumulator_bytes = 0;
    std::int64_t elements = 0;
    bool broadcast = false;
    int root_node = 0;
    int step = 0;
    int steps = 0;
    bool under_way = false;  // the step's operations have been started
    core::InterNode::Operation sending = 0;
    core::InterNode::Operation receiving = 0;
  };

  [[nodiscard]] int nodes() const noexcept { return static_cast<int>(place_.ranks.size()); }
  [[nodiscard]] int ring(int node) const noexcept { return (node % nodes() + nodes()) % nodes(); }
  [[nodiscard]] Part segment(const Exchange& exchange, int which) const noexcept;
  void begin_step(Exchange& exchange, int tag);
  void begin_broadcast_step(Exchange& exchange, int tag);
  void end_step(Exchange& exchange);
  void send(Exchange& exchange, int tag, const std::byte* data, std::size_t bytes);
  void receive(Exchange& exchange, int tag, std::byte* data, std::size_t bytes);

  std::shared_ptr<core::InterNode> transport_;
  LanePlace place_;
  int first_tag_;
  std::vector<Exchange> exchanges_;
};

}  // namespace kolo::hierarchy
