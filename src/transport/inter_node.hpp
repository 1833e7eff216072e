// SPDX-License-Identifier: Apache-2.0
//
// Bulk point-to-point transport between ranks of different nodes. MPI implements it between processes, a queue between
// ranks as threads. It moves only Kolo's staging memory, never a caller's: so a handle can fail at once while an
// operation is still open.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::transport {

/// Calls come from the engine's driver only, one thread at a time; which thread may change. Where not every thread may
/// call a transport (Bootstrap::call_rule) a GatedInterNode stands before it.
class InterNode {
 public:
  /// An open operation; 0 is none.
  using Operation = std::uint64_t;

  virtual ~InterNode() = default;

  /// Staging memory, 64-byte aligned, owned by the transport and freed by its destructor - unless an operation is still
  /// open, then it is kept until the process exits.
  virtual std::byte* staging(std::size_t bytes) = 0;

  /// Both return at once. Messages between the same two ranks with the same tag match in the order they were started;
  /// sizes must agree. Any size (64-bit). Throw `Error` (transport).
  virtual Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) = 0;
  virtual Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) = 0;
  /// True once when the operation has completed; the operation is then gone. Throws `Error` (transport).
  virtual bool test(Operation operation) = 0;

  /// Moves what the transport may still hold of operations that have completed. MPI promises that a send that has
  /// completed needs no further call on the sending side; Open MPI does not keep that: a long message ends with one of
  /// its own (FIN) that it queues while a socket is full and sends in a later call, any call, of the sender's. Without
  /// one the receiver waits for ever. So who is starved asks everybody to push (control::Starved), and nobody needs to
  /// while nobody is. To be called again and again for a while.
  virtual void push() {}

  /// "MPI point-to-point": for describe().
  [[nodiscard]] virtual const char* name() const noexcept = 0;
};

}  // namespace kolo::transport
