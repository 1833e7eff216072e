// SPDX-License-Identifier: Apache-2.0
//
// A rank's access to its node: the shared segment, a way to wake each peer, one to notice its death, and one to read
// its memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <kolo/error.hpp>

#include "core/topology.hpp"
#include "transport/regions.hpp"

namespace kolo::transport {

/// The ranks that share a region: all ranks of the world, or some.
struct Sharers {
  core::Topology topology;       ///< the sharers' topology: its ranks are places in `members`
  std::vector<int> members;      ///< as ranks of the world
  std::vector<int> local_ranks;  ///< by local rank in the topology: the local rank in the world

  [[nodiscard]] static Sharers all(const core::Topology& world);
  /// The sharers with these members, in their order; this rank is one of them.
  [[nodiscard]] static Sharers of(const core::Topology& world, const std::vector<int>& members);
};

/// Reads from the memory of the node's other ranks, without a copy in between. Thread-safe. The addresses are those of
/// the rank that owns the memory.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  /// Copies `bytes` from a local rank's memory. Sees what the owner wrote before it sent the address. Fails with
  /// rank_lost if the peer's process has ended, and with transport if the system does not allow it: some memory cannot
  /// be read.
  virtual Status read(int local_rank, void* to, const void* from, std::size_t bytes) = 0;
  /// Whether the system does the reading. Then memory may be freed while a peer reads it: the read fails, or returns
  /// any bytes.
  [[nodiscard]] virtual bool reads_by_system() const noexcept = 0;
};

/// Thread-safe, except construction and destruction. The segment is mapped once per process, is not inherited by
/// fork, has no name in any file system, and vanishes with the last process that maps it.
class NodeLink {
 public:
  virtual ~NodeLink() = default;

  /// The shared segment: zeroed when the first rank sees it, page aligned, at the same time valid in all ranks.
  [[nodiscard]] virtual std::byte* memory() const noexcept = 0;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;

  /// Makes the peer's `wake_fd` readable. Cheap: one write(2), which never blocks. Errors are ignored (a peer that is
  /// gone needs no waking).
  virtual void wake(int local_rank) noexcept = 0;
  /// This rank's wake-up descriptor: an eventfd, non-blocking, readable after a wake until it is read.
  [[nodiscard]] virtual int wake_fd() const noexcept = 0;

  /// A descriptor that becomes readable (end of file, hang-up or an exited process) when that peer is gone. Every rank
  /// watches the leader (local rank 0), the leader watches all. A peer may have several descriptors; the first that
  /// becomes readable counts. There are none for ranks as threads.
  struct Liveness {
    int fd = -1;
    int local_rank = 0;
  };
  [[nodiscard]] virtual std::vector<Liveness> liveness() const = 0;

  /// A region with a part of `bytes` (more than 0) for each of the sharers, this rank among them. All of them call it
  /// with the same `bytes`, and exchange several times by `meet`. If it fails on one rank, it fails on all: Error
  /// (transport). While it waits for a peer, it calls `check` several times a second; if `check` throws, the wait ends
  /// with that exception.
  virtual std::shared_ptr<SharedRegion> share(const Sharers& sharers, std::size_t bytes, const Meeting& meet,
                                              const std::function<void()>& check) = 0;

  /// Access to the memory of the node's other ranks. Null on all ranks of the world, unless the system lets every rank
  /// read the memory of all others of its node. All ranks call it, and exchange by `meet`.
  virtual std::shared_ptr<PeerMemory> peer_memory(const Meeting& meet) = 0;
};

}  // namespace kolo::transport
