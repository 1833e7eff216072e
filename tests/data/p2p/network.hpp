// SPDX-License-Identifier: Apache-2.0
//
// Ranks that speak the protocol over channels of a few frames each, which a test delivers when it likes.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/p2p/channels.hpp"
#include "data/p2p/protocol.hpp"

namespace kolo::p2p {

class Network {
 public:
  struct Shape {
    int ranks = 2;
    std::size_t room = 2;  ///< frames that a channel holds
    std::size_t frame_bytes = 8000;
    bool reads = false;                  ///< ranks can read each other's memory,
    std::uint64_t read_bytes = 1 << 20;  ///< so much at a time
    KeptLimits limits = {};
  };
  explicit Network(const Shape& shape) : shape_(shape), queues_(static_cast<std::size_t>(shape.ranks * shape.ranks)) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      channels_.push_back(std::make_unique<End>(*this, rank));
      protocols_.push_back(std::make_unique<Protocol>(rank, shape.ranks, *channels_.back(), shape.limits));
    }
  }

  /// That rank begins these, in this order.
  template <class... Letters>
  void start(int rank, Letters&... letters) {
    ((*this)[rank].start(letters.message), ...);
  }
  [[nodiscard]] Protocol& operator[](int rank) { return *protocols_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int ranks() const noexcept { return shape_.ranks; }
  /// Lets that rank move; whether it did.
  bool step(int rank) { return (*this)[rank].progress(); }
  /// Until nobody moves.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < shape_.ranks; ++rank) moved |= step(rank);
    }
  }
  /// Frames that nobody has taken.
  [[nodiscard]] std::size_t under_way() const {
    std::size_t frames = 0;
    for (const auto& queue : queues_) frames += queue.size();
    return frames;
  }
  /// Permits that were given and not taken back, by ranks that live.
  [[nodiscard]] std::size_t permits() const { return permits_.size(); }
  /// A rank is no more: nobody can read its memory. What it has put into its channels comes.
  void kill(int rank) {
    dead_.insert(rank);
    for (auto permit = permits_.begin(); permit != permits_.end();)
      permit = permit->second == rank ? permits_.erase(permit) : std::next(permit);
  }
  /// Puts a frame into a channel that the rank's protocol would not send.
  void forge(int from, int to, const Frame& frame) { queue(from, to).push_back({frame, {}}); }
  int puts_without_memory = 0;  ///< so many of the next ones throw
  bool memory_fails = false;    ///< it cannot be read after all
  bool permits_reading = true;  ///< else messages are sent

 private:
  struct Sent {
    Frame frame;
    std::vector<std::byte> data;
  };

  class End final : public Channels {
   public:
    End(Network& network, int rank) : network_(network), rank_(rank) {}
    [[nodiscard]] std::size_t frame_bytes(int) const override { return network_.shape_.frame_bytes; }
    [[nodiscard]] bool put(int rank, const Frame& frame, const std::byte* data, std::size_t bytes) override {
      if (network_.puts_without_memory > 0) {
        --network_.puts_without_memory;
        throw std::bad_alloc();
      }
      auto& queue = network_.queue(rank_, rank);
      if (queue.size() >= network_.shape_.room) return false;
      queue.push_back({frame, bytes > 0 ? std::vector<std::byte>(data, data + bytes) : std::vector<std::byte>{}});
      return true;
    }
    bool take(FrameHandler& handler) override {
      bool moved = false;
      for (int source = 0; source < network_.shape_.ranks; ++source) {
        auto& queue = network_.queue(source, rank_);
        if (queue.empty() || !handler.wants(source)) continue;
        const Sent sent = std::move(queue.front());
        queue.pop_front();
        handler.on_frame(source, sent.frame, sent.data.data(), sent.data.size());
        moved = true;
      }
      return moved;
    }
    [[nodiscard]] std::uint32_t permit(int, std::size_t) override {
      if (!network_.shape_.reads || !network_.permits_reading) return 0;
      network_.permits_[++network_.last_permit_] = rank_;
      return network_.last_permit_;
    }
    void end(std::uint32_t permit) noexcept override { network_.permits_.erase(permit); }
    [[nodiscard]] std::uint64_t read_bytes() const noexcept override { return network_.shape_.read_bytes; }
    [[nodiscard]] Read read(int source, std::uint32_t permit, std::byte* to, std::uint64_t from,
                            std::size_t bytes) override {
      if (network_.dead_.count(source) > 0) return Read::failed;
      if (network_.permits_.count(permit) == 0) return Read::withdrawn;
      if (network_.memory_fails) return Read::failed;
      std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
      return Read::done;
    }
    void note_wait(int rank) noexcept override { network_.waits_[rank_] = rank; }
    [[nodiscard]] int wait_of(int rank) const noexcept override {
      const auto found = network_.waits_.find(rank);
      return found == network_.waits_.end() ? kNobody : found->second;
    }

   private:
    Network& network_;
    const int rank_;
  };

  [[nodiscard]] std::deque<Sent>& queue(int from, int to) {
    return queues_[static_cast<std::size_t>(from * shape_.ranks + to)];
  }

  const Shape shape_;
  std::vector<std::deque<Sent>> queues_;
  std::unordered_map<std::uint32_t, int> permits_;  // and whose
  std::set<int> dead_;
  std::uint32_t last_permit_ = 0;
  std::unordered_map<int, int> waits_;
  std::vector<std::unique_ptr<End>> channels_;
  std::vector<std::unique_ptr<Protocol>> protocols_;
};

/// A message with memory of its own.
struct Letter {
  std::vector<std::byte> memory;
  Message message;

  Letter(Message::Role role, int peer, std::int32_t tag, std::size_t bytes, std::byte fill = std::byte{0xEE})
      : memory(bytes, fill) {
    message.role = role;
    message.peer = peer;
    message.tag = tag;
    message.data = memory.data();
    message.bytes = bytes;
  }
  Letter(const Letter&) = delete;
  [[nodiscard]] bool done() const { return message.done(); }
  [[nodiscard]] bool succeeded() const { return message.done() && message.status.ok(); }
  /// Its error's sentence.
  [[nodiscard]] const std::string& said() const { return message.status.message(); }
  Letter& operator=(const Letter&) = delete;
};

}  // namespace kolo::p2p
