// SPDX-License-Identifier: Apache-2.0
//
// What a rank holds of its node: the shared segment, the means to wake a peer, and the means to learn of its death.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/topology.hpp"
#include "transport/peer_memory.hpp"
#include "transport/regions.hpp"

namespace kolo::transport {

/// Who shares a region: all ranks of the world, or some.
struct Sharers {
  core::Topology topology;       ///< theirs: its ranks are places in `members`
  std::vector<int> members;      ///< as ranks of the world
  std::vector<int> local_ranks;  ///< by local rank of the topology: that in the world

  [[nodiscard]] static Sharers all(const core::Topology& world);
  /// Of these, in their order, this rank among them.
  [[nodiscard]] static Sharers of(const core::Topology& world, const std::vector<int>& members);
};

/// Thread-safe, except construction and destruction. The segment is mapped once per process, is not inherited by
/// fork, has no name in any file system, and vanishes with the last process that maps it.
class NodeLink {
 public:
  virtual ~NodeLink() = default;

  /// The shared segment: zeroed when the first rank sees it, page aligned, at the same time valid in all ranks.
  [[nodiscard]] virtual std::byte* memory() const noexcept = 0;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;

  /// Makes the peer's `wake_fd` readable. Async-signal-cheap: one write(2), never blocks, never fails visibly (a peer
  /// that is gone needs no waking).
  virtual void wake(int local_rank) noexcept = 0;
  /// This rank's own: an eventfd, non-blocking, readable after a wake until it is read.
  [[nodiscard]] virtual int wake_fd() const noexcept = 0;

  /// A descriptor that becomes readable (end of file, hang-up or an exited process) when that peer is gone. Every rank
  /// watches the leader (local rank 0), the leader watches all. A peer may have several; the first to speak counts.
  /// Empty for ranks as threads.
  struct Liveness {
    int fd = -1;
    int local_rank = 0;
  };
  [[nodiscard]] virtual std::vector<Liveness> liveness() const = 0;

  /// A region with a part of `bytes` (more than 0) for each of the sharers, this rank among them. All of them call it,
  /// with the same number, and meet several times in `meet`. If it fails for one rank it fails for all: Error
  /// (transport). While it waits for a peer it calls `check` several times a second, and ends by what that throws.
  virtual std::shared_ptr<SharedRegion> share(const Sharers& sharers, std::size_t bytes, const Meeting& meet,
                                              const std::function<void()>& check) = 0;

  /// The means to read the memory of the node's other ranks; null, on all ranks of the world, unless the system lets
  /// every rank read that of all others of its node. All ranks call it, and meet in `meet`.
  virtual std::shared_ptr<PeerMemory> peer_memory(const Meeting& meet) = 0;
};

}  // namespace kolo::transport
