// SPDX-License-Identifier: Apache-2.0
//
// Point to point of one rank: the protocol, its channels, and the lock around both.
//
// Two kinds of threads move messages. The engine's driver moves all of them, in its passes. A thread inside a
// synchronous call moves those of its node by itself, for as long as a peer takes that is on its way or data moves:
// such a message needs neither the driver's place nor another thread. The transport between nodes is the driver's
// alone, so frames for other nodes wait for it.
//
// A message has an owner, or is looked at by the thread that made the call. Of those with an owner the driver is told
// when they are done (`take_news`), whoever has moved them; `has_news` says so.
//
// Sleeping. Before a rank's engine sleeps it calls `arm`: from then on peers ring it when there is something. A thread
// that moves messages takes that back. When it goes while others' messages are open it has the engine look again soon.
//
// The lock is taken inside the driver's, never the other way round.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <kolo/types.hpp>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "core/topology.hpp"
#include "data/p2p/message.hpp"
#include "data/p2p/net_channels.hpp"
#include "data/p2p/node_channels.hpp"
#include "data/p2p/protocol.hpp"
#include "transport/inter_node.hpp"
#include "transport/node_link.hpp"

namespace kolo::p2p {

/// Thread-safe, but for what is the driver's.
class Messenger {
 public:
  /// As NodeChannels. `inter`: null where there is one node. What is referred to outlives it.
  Messenger(const core::Topology& topology, std::byte* memory, transport::NodeLink& link,
            std::shared_ptr<transport::PeerMemory> peers, std::uint64_t read_above, bool cpu_of_its_own,
            kernels::PeerCopy to_peers, std::shared_ptr<transport::InterNode> inter);
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // -- any thread
  /// Begins a message; whether it is done.
  bool start(Message& message);
  /// Begins messages of this node, and looks at once as `look` does; whether all are done.
  bool start(Span<Message* const> messages, int pauses);
  /// See Protocol.
  [[nodiscard]] bool try_send(const Message& send);
  /// Moves messages of this node. If nothing has come it first pauses, so often at most. It holds the lock meanwhile,
  /// and stops pausing when another thread waits for the lock. This rank is not rung from then on (see above).
  enum class Look : std::uint8_t { nothing, moved, done };  ///< `done`: the one that is asked for
  [[nodiscard]] Look look(Message& message, int pauses);
  /// Gives an open message an owner, a deadline, and a time after which a warning says that it waits; false: it is
  /// done.
  [[nodiscard]] bool hand_over(Message& message, void* owner, base::Time begun, std::chrono::nanoseconds patience,
                               base::Duration warn_after);
  /// See Protocol. `provide` does nothing where the send is done.
  void provide(Message& send, std::uint64_t bytes);
  bool cancel(Message& receive);
  void await(Message& receive);
  void give_up(Message& message, const Status& status, int because = -1);
  /// Whether the transport between nodes has a part in a message.
  [[nodiscard]] bool leaves_node(const Message& message) const noexcept;
  /// Whether this message is sent to a peer that reads it where it lies, unless it is short.
  [[nodiscard]] bool is_read_by_peer(const Message& message) const noexcept;
  /// Whether other threads wait for the lock. A thread that looks in a loop lets them go first.
  [[nodiscard]] bool is_awaited() const noexcept { return mutex_.is_awaited(); }
  /// Whether there is anything to be moved.
  [[nodiscard]] bool is_busy() const noexcept { return busy_.load(std::memory_order_acquire); }
  /// Whether there is something of which the driver has not been told.
  [[nodiscard]] bool has_news() const noexcept { return news_.load(std::memory_order_acquire); }
  /// Whether frames are on their way that peers wait for.
  [[nodiscard]] bool has_unsent();
  /// Whether the tensor of an open message begins in this memory.
  [[nodiscard]] bool uses(const std::byte* begin, std::size_t bytes);
  [[nodiscard]] MessageCounters counters();
  /// When a deadline or a warning is due.
  [[nodiscard]] base::Time next_due() { return is_busy() ? next_due_of_open() : base::Time::max(); }

  // -- the driver
  /// One pass; whether anything moved. Adds what is to be said of messages that have waited for long.
  bool progress(base::Time now, std::vector<std::string>& warnings);
  /// The news since the last call. Valid until the next call.
  [[nodiscard]] const News& take_news();
  void on_found(const Direction& direction);
  /// The engine is about to sleep. False: something has come, and it makes another pass.
  [[nodiscard]] bool arm();
  void on_set(std::uint64_t set);
  void on_set_gone(std::uint64_t set);
  /// Ranks that have left, ascending; more and more. What they have sent from other nodes may come until then.
  /// `because`: the first causes of those of `ranks` that have left because of another one's end.
  void on_departed(const std::vector<std::int32_t>& ranks, const std::map<std::int32_t, std::int32_t>& because,
                   base::Time until);
  void close(const Status& status);

 private:
  /// To ranks of this node and of others.
  class Routes final : public Channels {
   public:
    Routes(const core::Topology& topology, NodeChannels& node, NetChannels* net) noexcept
        : topology_(topology), node_(node), net_(net) {}
    [[nodiscard]] bool is_here(int rank) const noexcept {
      return topology_.node_of[static_cast<std::size_t>(rank)] == topology_.node;
    }
    [[nodiscard]] std::size_t frame_bytes(int rank) const override {
      return is_here(rank) ? node_.frame_bytes(rank) : NetChannels::frame_bytes();
    }
    [[nodiscard]] std::size_t whole_bytes(int rank) const override {
      return is_here(rank) ? node_.whole_bytes(rank) : kMostWholeBytes;
    }
    [[nodiscard]] bool put(int rank, const Frame& frame, const std::byte* data, std::size_t bytes) override {
      if (is_here(rank)) return node_.put(rank, frame, data, bytes);
      return drives && net_->put(rank, frame, data, bytes);
    }
    bool take(FrameHandler& handler) override {
      bool moved = node_.take(handler);
      if (drives && net_ != nullptr) moved |= net_->take(handler);
      return moved;
    }
    [[nodiscard]] std::uint32_t permit(int rank, std::size_t bytes) override {
      return is_here(rank) ? node_.permit(rank, bytes) : 0;
    }
    void end(std::uint32_t permit) noexcept override { node_.end(permit); }
    [[nodiscard]] std::uint64_t read_bytes() const noexcept override { return node_.read_bytes(); }
    [[nodiscard]] Read read(int source, std::uint32_t permit, std::byte* to, std::uint64_t from,
                            std::size_t bytes) override {
      return is_here(source) ? node_.read(source, permit, to, from, bytes) : Read::failed;
    }
    void note_wait(int rank) noexcept override { node_.note_wait(rank); }
    [[nodiscard]] int wait_of(int rank) const noexcept override { return node_.wait_of(rank); }

    bool drives = false;  ///< the driver calls, so that the transport may be used

   private:
    const core::Topology& topology_;
    NodeChannels& node_;
    NetChannels* const net_;
  };

  [[nodiscard]] base::Time next_due_of_open();
  void update() KOLO_REQUIRES(mutex_);
  bool look(int pauses) KOLO_REQUIRES(mutex_);
  [[nodiscard]] bool moves_net() const KOLO_REQUIRES(mutex_);

  const core::Topology& topology_;
  const std::uint64_t read_above_;  // longer messages are read
  std::atomic<bool> busy_{false};
  std::atomic<bool> news_{false};

  base::AwaitedMutex mutex_;
  NodeChannels node_ KOLO_GUARDED_BY(mutex_);
  const std::unique_ptr<NetChannels> net_ KOLO_PT_GUARDED_BY(mutex_);  // null: there is one node
  Routes routes_ KOLO_GUARDED_BY(mutex_);
  Protocol protocol_ KOLO_GUARDED_BY(mutex_);
  std::size_t departed_ KOLO_GUARDED_BY(mutex_) = 0;  // ranks known to have
  bool closed_ KOLO_GUARDED_BY(mutex_) = false;
  News told_;  // the driver's
};

}  // namespace kolo::p2p
