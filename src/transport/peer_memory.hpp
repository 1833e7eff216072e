// SPDX-License-Identifier: Apache-2.0
//
// Access to the memory of the node's other ranks: reads and writes without a copy in between. After a handle has
// failed, no rank may touch its buffers any more. A rank that lets a peer write must therefore be able to stop it:
// joint_copy.hpp.
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
  /// Copies `bytes` from a local rank's memory. Sees what the owner wrote before it sent the address. Fails with
  /// rank_lost if the peer's process has ended, and with transport if the system does not allow it: some memory cannot
  /// be read.
  virtual Status read(int local_rank, void* to, const void* from, std::size_t bytes) = 0;
  /// The address and the number of bytes that a peer writes. It lies in memory of the node, where the system reads it
  /// (struct iovec).
  struct Target {
    std::atomic<std::uintptr_t> address;
    std::atomic<std::size_t> bytes;  ///< if it is set to 0 before the peer's system call begins, that call writes
                                     ///< nothing
  };
  /// Copies `bytes` of this rank to the place in a local rank's memory that `target` gives. Fails as `read` does, and
  /// if the target has another number of bytes.
  virtual Status write(int local_rank, const Target& target, const void* from, std::size_t bytes) = 0;
  /// Whether this rank can find out that a peer's `write` is over, even if the peer dies or is stopped.
  [[nodiscard]] virtual bool sees_writers() const noexcept = 0;
  /// Whether a `write` that this thread of that rank has begun may still go on. A thread that is stopped, frozen or
  /// killed ends its system call first. True in doubt.
  [[nodiscard]] virtual bool may_be_writing(int local_rank, int thread) const noexcept = 0;
  /// Whether the system does the reading. Then memory may be freed while a peer reads it: the read fails, or returns
  /// any bytes.
  [[nodiscard]] virtual bool reads_by_system() const noexcept = 0;
};

}  // namespace kolo::transport
