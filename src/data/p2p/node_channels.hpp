// SPDX-License-Identifier: Apache-2.0
//
// Channels between the ranks of a node, in its shared memory.
//
// Memory. Each rank of the node has a part of it, in which stand what others look at when they have something for it,
// and a ring for each rank that may send to it. Rings that nobody uses are never touched, and take no memory. A sender
// that uses a ring first sets its bit in the receiver's word `opened`; a receiver looks at rings with a bit alone.
//
// A ring has one writer and one reader; how frames lie in it is said in ring.hpp. The reader says in a line of its own
// how far it has read.
//
// Bells. A rank that is about to sleep with messages open sets its bell (`arm`), and looks once more. Who has put a
// frame into one of its rings, or made room in a ring that it writes and has found full, looks at the bell then, and
// rings its engine. Both sides store, then look, sequentially consistent: one of them sees the other. A rank that is
// awake has no bell set, and nobody rings.
//
// Permits. A sender whose memory its peers can read has a word for each message that may be read: a generation, and a
// state. A sender that takes its memory back sets it to `closed`.
// Between processes it need not wait for who reads just then: the system reads, and who reads looks at the word
// afterwards. If that is not `open` any more, what was read may be anything, and is dropped.
// Between threads a copy of memory that has gone would crash. So who reads sets the word from `open` to `reading`, and
// back when the piece has been read; who finds it otherwise does not read; and a sender that closes it amid a piece
// waits until that has been read.
//
// Whole. Of a message that is sent whole the receiver copies nothing before the sender has copied all: 16 KiB took 5.7
// us to and fro, and 3.6 where they were read. Where ranks share CPUs they are sent whole: two that send to each other
// at once would change places for each frame.
//
// Which way. Longer messages than a threshold are read where they lie, if the system permits it. Reading is one copy
// instead of two. Between processes the system does it, page by page, with one CPU: 5 GB/s where that was measured.
// Through the ring two CPUs copy at once. That is faster where they share a cache (15 GB/s), and 2 to 4 times slower
// where they do not. Where ranks share a CPU the ring costs a change of thread for each time that it is full.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/topology.hpp"
#include "data/kernels/copy.hpp"
#include "data/p2p/channels.hpp"
#include "data/p2p/ring.hpp"
#include "transport/node_link.hpp"

namespace kolo::p2p {

/// One thread at a time.
class NodeChannels final : public Channels {
 public:
  /// `memory`: of the node, zeroed, of `bytes`, cache-line aligned; it outlives this, as do topology and link. `peers`:
  /// null where ranks cannot read each other's memory. `read_above`: messages of more bytes are read.
  /// `cpu_of_its_own`: this rank shares its CPU with no other. `to_peers`: how it writes into rings.
  NodeChannels(const core::Topology& topology, std::byte* memory, transport::NodeLink& link,
               std::shared_ptr<transport::PeerMemory> peers, std::uint64_t read_above, bool cpu_of_its_own,
               kernels::PeerCopy to_peers);
  /// Of all ranks of a node; a multiple of the page size.
  [[nodiscard]] static std::size_t bytes(int local_size) noexcept;

  [[nodiscard]] std::size_t frame_bytes(int /*rank*/) const override { return Ring::kPartBytes; }
  [[nodiscard]] std::size_t whole_bytes(int /*rank*/) const override {
    return peers_ != nullptr && cpu_of_its_own_ ? kWholeBytes : kMostWholeBytes;
  }
  [[nodiscard]] bool put(int rank, const Frame& frame, const std::byte* data, std::size_t bytes) override;
  bool take(FrameHandler& handler) override;
  /// Whether `take` would find something.
  [[nodiscard]] bool has_come() const noexcept;
  [[nodiscard]] std::uint32_t permit(int rank, std::size_t bytes) override;
  void end(std::uint32_t permit) noexcept override;
  [[nodiscard]] std::uint64_t read_bytes() const noexcept override;
  [[nodiscard]] Read read(int source, std::uint32_t permit, std::byte* to, std::uint64_t from,
                          std::size_t bytes) override;
  void note_wait(int rank) noexcept override;
  [[nodiscard]] int wait_of(int rank) const noexcept override;

  /// From now on this rank is rung when something comes, once. The caller looks once more.
  void arm() noexcept;
  /// It is awake.
  void disarm() noexcept;

 private:
  struct Head;
  /// The writer's end of a ring.
  struct Writing {
    std::uint64_t written = 0;
    std::uint64_t read = 0;  ///< as far as it was seen
    bool used = false;
    bool waits = false;  ///< has said that it waits for room
  };
  /// The reader's.
  struct Reading {
    int local_rank = 0;
    std::uint64_t read = 0;
  };

  [[nodiscard]] std::byte* part(int local_rank) const noexcept;
  [[nodiscard]] Head& head(int local_rank) const noexcept;
  [[nodiscard]] std::atomic<std::uint64_t>& opened(int local_rank, int word) const noexcept;
  [[nodiscard]] Ring& ring(int receiver, int sender) const noexcept;
  [[nodiscard]] int local(int rank) const noexcept;
  void ring_bell(int local_rank) noexcept;
  [[nodiscard]] bool has_room(Ring& ring, Writing& writing, std::size_t need) noexcept;
  void open(int receiver) noexcept;
  bool take_from(Reading& reading, FrameHandler& handler);
  void find_opened();

  const core::Topology& topology_;
  const std::vector<int>& here_;  // the node's ranks, by local rank
  std::byte* const memory_;
  transport::NodeLink& link_;
  const std::shared_ptr<transport::PeerMemory> peers_;
  const std::size_t part_bytes_;
  std::vector<Writing> writing_;     // by local rank
  std::vector<Reading> reading_;     // of rings that have been used
  std::vector<std::uint64_t> seen_;  // of `opened`, by word
  std::vector<std::uint32_t> free_permits_;
  std::vector<std::uint64_t> generations_;  // by permit
  const std::uint64_t read_above_;
  const bool cpu_of_its_own_;
  const kernels::PeerCopy to_peers_;
  bool armed_ = false;
};

}  // namespace kolo::p2p
