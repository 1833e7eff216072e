// SPDX-License-Identifier: Apache-2.0
//
// A node's ranks reading one another's memory where it lies, without a copy in between. Never writing it: a handle that
// has failed must be able to promise that nobody touches its buffers any more.
#pragma once

#include <cstddef>

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
  /// Whether peers will be able to read this memory of this rank's own. Looks at the first and the last page.
  [[nodiscard]] virtual bool is_readable(const void* begin, std::size_t bytes) = 0;
  /// Whether it is the system that reads: then memory may go while a peer reads it, and that read fails, or brings
  /// anything.
  [[nodiscard]] virtual bool reads_by_system() const noexcept = 0;
};

}  // namespace kolo::transport
