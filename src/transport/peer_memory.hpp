// SPDX-License-Identifier: Apache-2.0
//
// A node's ranks reading one another's memory where it lies, and writing it, without a copy in between. A handle that
// has failed must be able to promise that nobody touches its buffers any more, so that who writes must be told where in
// a way that can be taken back: joint_copy.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <kolo/error.hpp>

namespace kolo::transport {

/// Thread-safe. The addresses are those of the rank that owns the memory.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  /// Copies `bytes` from a local rank's memory. What the owner wrote before it told this rank the address is seen.
  /// Fails (rank_lost) when the peer's process has ended, (transport) when the system does not let it: memory may be of
  /// a kind that cannot be read.
  virtual Status read(int local_rank, void* to, const void* from, std::size_t bytes) = 0;
  /// What is to be written, in memory of the node, as the system reads it (struct iovec).
  struct Target {
    std::atomic<std::uintptr_t> address;
    std::atomic<std::size_t> bytes;  ///< set to 0 nothing is written by a call that has not reached the system
  };
  /// Copies `bytes` of this rank's to where `target` says in a local rank's memory. Fails as `read` does, and where
  /// the target's bytes are others.
  virtual Status write(int local_rank, const Target& target, const void* from, std::size_t bytes) = 0;
  /// Whether that rank may be inside a `write`. One that is stopped is not: it ends its call of the system first.
  [[nodiscard]] virtual bool may_be_writing(int local_rank) const = 0;
  /// Whether peers will be able to read this memory of this rank's own. Looks at the first and the last page.
  [[nodiscard]] virtual bool is_readable(const void* begin, std::size_t bytes) = 0;
  /// Whether it is the system that reads: then memory may go while a peer reads it, and that read fails, or brings
  /// anything.
  [[nodiscard]] virtual bool reads_by_system() const noexcept = 0;
};

}  // namespace kolo::transport
