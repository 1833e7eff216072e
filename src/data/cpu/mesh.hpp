// SPDX-License-Identifier: Apache-2.0
//
// Messages between any two ranks of different nodes, a few for each chunk: what all-to-all and reduce-scatter send.
//
// Where a lane (data/cpu/lane.hpp) brings everybody's data to everybody, here each message has one receiver, and goes
// to it directly: no shorter way, and no rank carries what is not its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/cpu/chunk.hpp"
#include "transport/inter_node.hpp"

namespace kolo::data::cpu {

/// How much each exchange of a mesh holds.
struct MeshBytes {
  std::size_t outgoing = 0;
  std::size_t incoming = 0;
};

/// One rank's messages. One driver. `advance` calls the transport; the rest may be called where it is not usable.
class Mesh final : public Exchanges {
 public:
  /// Exchange i uses tag `first_tag + i`. All memory is taken from the transport, here.
  Mesh(std::shared_ptr<transport::InterNode> transport, int first_tag, std::size_t exchanges, const MeshBytes& bytes);
  /// The memory goes back unless messages are open.
  ~Mesh() override;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  /// What is sent lies here, from the moment that it is noted until the exchange is done,
  [[nodiscard]] std::byte* outgoing(std::size_t exchange) noexcept { return exchanges_[exchange].outgoing; }
  /// and what has come lies here, until the next use of the exchange.
  [[nodiscard]] std::byte* incoming(std::size_t exchange) noexcept { return exchanges_[exchange].incoming; }

  /// Notes a message to or from `rank` (as InterNode numbers them), of the bytes at `offset` in the region; of no bytes
  /// is none. At most one each way for a pair of ranks, until the exchange is done.
  void send(std::size_t exchange, int rank, std::size_t offset, std::size_t bytes);
  void receive(std::size_t exchange, int rank, std::size_t offset, std::size_t bytes);

  /// Starts what was noted, and looks what has completed.
  bool advance(std::size_t exchange) override;
  [[nodiscard]] bool ready(std::size_t exchange) const noexcept override { return done(exchange); }
  [[nodiscard]] bool done(std::size_t exchange) const noexcept override {
    return exchanges_[exchange].messages.empty();
  }
  void add_awaited(std::size_t exchange, std::vector<int>& ranks) const override;

 private:
  struct Message {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    int rank = 0;
    bool outgoing = false;
    transport::InterNode::Operation operation = 0;  // 0: not started
  };
  struct Exchange {
    std::byte* outgoing = nullptr;
    std::byte* incoming = nullptr;
    std::vector<Message> messages;
  };

  std::shared_ptr<transport::InterNode> transport_;
  int first_tag_;
  std::vector<Exchange> exchanges_;
  std::byte* const memory_;
};

}  // namespace kolo::data::cpu
