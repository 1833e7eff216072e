// SPDX-License-Identifier: Apache-2.0
//
// Channels to the ranks of other nodes: a frame is a message of the transport. It is copied into staging memory, so a
// send is done while the transport still carries it; so many may be under way to a rank that its link is full.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "data/p2p/channels.hpp"
#include "transport/inter_node.hpp"

namespace kolo::p2p {

/// The engine's driver alone: the transport is its own. Others may ask for `frame_bytes`.
class NetChannels {
 public:
  explicit NetChannels(std::shared_ptr<transport::InterNode> transport) noexcept : transport_(std::move(transport)) {}

  [[nodiscard]] static constexpr std::size_t frame_bytes() noexcept { return kPartBytes; }
  [[nodiscard]] bool put(int rank, const Frame& frame, const std::byte* data, std::size_t bytes);
  bool take(FrameHandler& handler);
  /// Frames are wanted: the transport looks for them. The first time it begins to listen.
  void expect(bool expects);
  /// Looks which frames have gone; whether any has.
  bool look();
  /// Whether the transport still carries frames.
  [[nodiscard]] bool has_unsent() const noexcept { return !sending_.empty(); }

 private:
  static constexpr std::size_t kPartBytes = 64 << 10;
  struct Sending {
    transport::InterNode::Operation operation = 0;
    int rank = 0;
    std::byte* staging = nullptr;
  };

  const std::shared_ptr<transport::InterNode> transport_;
  bool listens_ = false;
  std::vector<Sending> sending_;
  std::unordered_map<int, int> under_way_;  // frames, by rank
  std::vector<std::byte*> free_;
};

}  // namespace kolo::p2p
