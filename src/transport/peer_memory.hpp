// SPDX-License-Identifier: Apache-2.0
//
// Reads from the memory of the node's other ranks, without a copy in between.
#pragma once

#include <cstddef>

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
  /// Whether the system does the reading. Then memory may be freed while a peer reads it: the read fails, or returns
  /// any bytes.
  [[nodiscard]] virtual bool reads_by_system() const noexcept = 0;
};

}  // namespace kolo::transport
