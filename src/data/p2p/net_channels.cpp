// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/net_channels.hpp"

#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include <kolo/error.hpp>

#include "base/machine.hpp"

namespace kolo::p2p {
namespace {

/// No collective's: theirs begin at 0.
constexpr int kTag = std::numeric_limits<int>::max();
/// Of a message: before the data.
constexpr std::size_t kFrameHeadBytes = base::round_up(sizeof(Frame), 64);
/// Frames that may be under way to one rank.
constexpr int kUnderWay = 4;
/// Frames that are taken before others have their turn.
constexpr int kFramesPerTurn = 16;

}  // namespace

bool NetChannels::put(int rank, const Frame& frame, const std::byte* data, std::size_t bytes) {
  if (under_way_[rank] >= kUnderWay && !look()) return false;
  int& under_way = under_way_[rank];
  if (under_way >= kUnderWay) return false;
  if (free_.empty()) free_.push_back(transport_->staging(kFrameHeadBytes + kPartBytes));
  std::byte* const staging = free_.back();
  std::memcpy(staging, &frame, sizeof frame);
  if (bytes > 0) std::memcpy(staging + kFrameHeadBytes, data, bytes);
  const transport::InterNode::Operation operation = transport_->send(rank, kTag, staging, kFrameHeadBytes + bytes);
  free_.pop_back();
  sending_.push_back({operation, rank, staging});
  ++under_way;
  return true;
}

bool NetChannels::look() {
  std::size_t kept = 0;
  const std::size_t before = sending_.size();
  for (std::size_t i = 0; i < before; ++i) {
    const Sending one = sending_[i];
    if (transport_->test(one.operation)) {
      --under_way_[one.rank];
      free_.push_back(one.staging);
    } else {
      sending_[kept++] = one;
    }
  }
  sending_.resize(kept);
  return kept < before;
}

void NetChannels::expect(bool expects) {
  if (expects && !listens_) {
    transport_->listen(kTag, kFrameHeadBytes + kPartBytes);
    listens_ = true;
  }
  transport_->expect(expects);
}

bool NetChannels::take(FrameHandler& handler) {
  bool moved = false;
  for (int frames = 0; frames < kFramesPerTurn; ++frames) {
    const std::optional<transport::InterNode::Heard> heard = transport_->hear();
    if (!heard) break;
    moved = true;
    if (heard->bytes < kFrameHeadBytes)
      blame(heard->rank, "sent a frame of ", heard->bytes, " bytes, less than its head");
    Frame frame;
    std::memcpy(&frame, heard->data, sizeof frame);
    handler.on_frame(heard->rank, frame, heard->data + kFrameHeadBytes, heard->bytes - kFrameHeadBytes);
  }
  return moved;
}

}  // namespace kolo::p2p
