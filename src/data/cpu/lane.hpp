// SPDX-License-Identifier: Apache-2.0
//
// A lane's part of the way between nodes.
//
// A *lane* is one rank of every node: lane j is made of the ranks with local rank j, and there are as many lanes as the
// smallest node has ranks. Chunks are divided among the lanes, so that all of a node's lane ranks send at the same
// time. An *exchange* brings the lane's share of one chunk to all nodes; as many are open at once as there are slots,
// each at its own step. A link between hosts is full only while as many bytes are under way as it carries in the time
// of two steps, and a step takes as long as the slowest rank takes to look.
//
// A reduction is direct. The share is cut into one *segment* a node. Every node sends each other node its partial sums
// of that node's segment, adds what it receives for its own, finishes it - divided, scaled, rounded, once for each
// element - and sends the finished bytes to all. Two steps, whatever the number of nodes, and each element goes over a
// node's link as often as around a ring: 2 (N-1)/N times. A ring was there before, and takes 2 (N-1) steps, each as
// long as the slowest rank takes to look; its merit, one neighbour a node, is that of networks which are wired so.
//
// Small shares, and all shares between two nodes, go *whole*: every node sends all its partial sums to all others, and
// each adds and finishes all for itself. One step; between two nodes it carries no more bytes than two steps would.
// Nothing of that is sent on, so where the types allow it is added straight into the outputs.
//
// Where one node alone wants the result (a reduce), finished elements are sent to that node only, and so are partial
// sums that go whole. Which of the two is better is decided as for an all-reduce: by what comes to one node.
//
// Partial sums are added in the order of the nodes, so together with the order inside a node (allreduce.hpp) a sum
// depends on nothing but the ranks' inputs, neither on how chunks and shares were cut nor on who adds: all nodes that
// finish an element for themselves get the same bits (data/kernels/reduction.hpp). Partial sums travel as they
// are, finished ones encoded as in the slots (wire_format.hpp).
//
// Broadcast is a chain from the root's node through all others in ring order; a node passes a chunk on as soon as it
// has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/cpu/chunk.hpp"
#include "data/cpu/wire_format.hpp"
#include "data/kernels/reduction.hpp"
#include "transport/inter_node.hpp"

namespace kolo::data::cpu {

/// Where this rank stands in its lane.
struct LanePlace {
  int node = 0;
  std::vector<int> ranks;  ///< of the lane, as InterNode numbers them, by node
};

/// The same on all ranks.
struct LaneShape {
  std::size_t exchanges = 0;
  std::size_t slot_bytes = 0;  ///< of the chunks that are exchanged
  int lanes = 1;
  std::size_t step_bytes = 0;  ///< as Tuning has it
};

/// The exchanges of one rank. One driver. Whatever calls the transport says so; the rest may be called where the
/// transport is not usable.
class Lane final : public Exchanges {
 public:
  /// Exchange i uses tag `first_tag + i`, for the same chunks on all nodes. Takes all its memory from the transport,
  /// here.
  Lane(std::shared_ptr<transport::InterNode> transport, LanePlace place, int first_tag, const LaneShape& shape);
  /// The memory goes back unless messages are open.
  ~Lane() override;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// The exchange's memory for the node's partial sums, to be filled before `start_reduce`.
  [[nodiscard]] std::byte* partial(std::size_t exchange) noexcept { return exchanges_[exchange].partial; }
  /// The elements of a broadcast: to be filled on the root's node before `start_broadcast`, to be read elsewhere when
  /// ready.
  [[nodiscard]] std::byte* result(std::size_t exchange) noexcept { return exchanges_[exchange].result; }

  static constexpr int kAllNodes = -1;
  /// With the result on one node alone it is ready elsewhere when nothing more will come.
  void start_reduce(std::size_t exchange, const WireFormat& format, const kernels::Reduction& reduction,
                    std::int64_t elements, int to_node);
  void start_broadcast(std::size_t exchange, std::size_t bytes, int root_node);
  bool advance(std::size_t exchange) override;
  [[nodiscard]] bool ready(std::size_t exchange) const noexcept override {
    return exchanges_[exchange].phase >= Phase::rest;
  }
  [[nodiscard]] bool done(std::size_t exchange) const noexcept override {
    return exchanges_[exchange].phase == Phase::done;
  }
  void add_awaited(std::size_t exchange, std::vector<int>& ranks) const override;
  /// Of a reduction that is ready, where its result is wanted: finished elements from `first` on, into each of `copies`
  /// arrays.
  void deliver(std::size_t exchange, std::int64_t first, std::int64_t elements, void* const* outputs, int copies);

 private:
  /// An open message to or from another node.
  struct Message {
    transport::InterNode::Operation operation = 0;
    int node = 0;
  };

  /// start -> add -> collect -> rest -> done for a reduction, start -> pass_on -> rest -> done for a broadcast.
  enum class Phase : std::uint8_t {
    start,    ///< nothing has been sent
    add,      ///< partial sums of the own segment are coming
    collect,  ///< finished elements are coming
    pass_on,  ///< a broadcast is coming
    rest,     ///< what is sent need only complete
    done
  };
  struct Exchange {
    std::byte* partial = nullptr;   // of the whole share, partial sums
    std::byte* incoming = nullptr;  // the other nodes' partial sums of the own segment, one behind another
    std::byte* result = nullptr;    // of the whole share, encoded
    WireFormat format;
    kernels::Reduction reduction;
    std::size_t sum_bytes = 0;  // of a partial sum of one element
    std::int64_t elements = 0;
    bool broadcast = false;
    std::size_t broadcast_bytes = 0;
    int root_node = 0;
    int to_node = kAllNodes;  // of a reduction: who wants the result
    bool whole = false;
    Phase phase = Phase::done;
    bool adds_late = false;        // sums are made when they are delivered
    std::vector<Message> parts;    // open: partial sums that come
    std::vector<Message> results;  // finished elements that come
    std::vector<Message> sent;     // all that goes
  };

  [[nodiscard]] int nodes() const noexcept { return static_cast<int>(place_.ranks.size()); }
  [[nodiscard]] int ring(int node) const noexcept { return (node % nodes() + nodes()) % nodes(); }
  [[nodiscard]] static bool is_wanted(const Exchange& exchange, int node) noexcept {
    return exchange.to_node == kAllNodes || exchange.to_node == node;
  }
  [[nodiscard]] bool goes_whole(const Exchange& exchange) const noexcept;
  [[nodiscard]] Part segment(const Exchange& exchange, int node) const noexcept;
  [[nodiscard]] std::byte* incoming(const Exchange& exchange, int node) const noexcept;
  bool go_on(Exchange& exchange, int tag);
  void send_parts(Exchange& exchange, int tag);
  void add_up(Exchange& exchange);
  void point_at_sums(const Exchange& exchange, std::int64_t first);
  void send_result(Exchange& exchange, int tag);
  void receive_broadcast(Exchange& exchange, int tag);
  void pass_on(Exchange& exchange, int tag);
  bool complete(std::vector<Message>& messages);
  void send(Exchange& exchange, int node, int tag, const std::byte* data, std::size_t bytes);
  void receive(std::vector<Message>& messages, int node, int tag, std::byte* data, std::size_t bytes);

  std::shared_ptr<transport::InterNode> transport_;
  LanePlace place_;
  int first_tag_;
  std::size_t step_bytes_;
  std::size_t incoming_bytes_;  // of each exchange
  std::vector<Exchange> exchanges_;
  std::byte* memory_ = nullptr;      // the exchanges'
  std::vector<const void*> inputs_;  // of add_up, by node
};

}  // namespace kolo::data::cpu
