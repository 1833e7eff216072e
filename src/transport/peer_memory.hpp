// SPDX-License-Identifier: Apache-2.0
//
// A node's ranks read one another's memory where it lies, and write it, without a copy in between. A handle that has
// failed must be able to promise that nobody touches its buffers any more. So a rank that lets a peer write must be
// able to take that back: joint_copy.hpp.
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
  /// Where a peer writes, and how much. It lies in memory of the node, where the system reads it (struct iovec).
  struct Target {
    std::atomic<std::uintptr_t> address;
    std::atomic<std::size_t> bytes;  ///< when this is set to 0 a call that has not reached the system writes nothing
  };
  /// Copies `bytes` of this rank's to where `target` says in a local rank's memory. Fails as `read` does, and where
  /// the target's bytes are others.
  virtual Status write(int local_rank, const Target& target, const void* from, std::size_t bytes) = 0;
  /// Whether this rank will be able to tell that a peer's `write` is over, however that peer ends or is stopped.
  [[nodiscard]] virtual bool sees_writers() const noexcept = 0;
  /// Whether a `write` that this thread of that rank has begun may still go on. A thread that is stopped or
  /// frozen, or ends, ends its call of the system first. True in doubt.
  [[nodiscard]] virtual bool may_be_writing(int local_rank, int thread) const noexcept = 0;
  /// Whether it is the system that reads: then memory may go while a peer reads it, and that read fails, or brings
  /// anything.
  [[nodiscard]] virtual bool reads_by_system() const noexcept = 0;
};

}  // namespace kolo::transport
