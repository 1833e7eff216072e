// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks of different nodes. MPI or UCX carries them between processes, a queue between ranks as
// threads. Only Kolo's staging memory is sent and received, never a caller's, so a handle can fail while an operation
// is still open.
//
// Two parts of the library use a transport. The data plane only sends and receives. The engine decides when to sleep,
// in these steps:
//
//   mark the rank asleep            what peers publish from now on wakes this rank
//   look once more
//   arm                             what the transport receives from now on makes its descriptor readable
//   sleep in the poller             until then, or for `nap` where the transport has no descriptor
//
// A transport with a descriptor may ask for a nap, too: while messages come slowly for a long time, waking up for each
// would be a waste (pace.hpp). Then it is not armed.
//
// A transport without a descriptor must be polled, and some transports must be pushed. PolledInterNode
// (polled_inter_node.hpp) does both, and gives such a transport this interface.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"

namespace kolo::transport {

/// Only the engine's driver calls these functions, unless a comment says otherwise: one thread at a time, not always
/// the same. A failure throws `Error` (transport).
class InterNode {
 public:
  /// An open operation; 0 is none.
  using Operation = std::uint64_t;

  virtual ~InterNode() = default;

  // -- messages
  /// Staging memory, 64-byte aligned. The transport owns it, and its destructor frees it, unless an operation is still
  /// open; then it is kept until the process exits.
  virtual std::byte* staging(std::size_t bytes) = 0;
  /// Gives staging memory back that no open operation uses. A transport may keep it until its end.
  virtual void give_back(std::byte* /*staging*/) noexcept {}
  /// Both return at once. Messages between the same two ranks with the same tag match in the order they were started;
  /// sizes must agree. Any size (64-bit).
  virtual Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) = 0;
  virtual Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) = 0;
  /// Whether the operation has completed. It returns true once; then the operation does not exist any more.
  virtual bool test(Operation operation) = 0;

  // -- messages that the receiver does not expect, of any length
  /// An unexpected message that has come.
  struct Heard {
    int rank = 0;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  /// From now on `hear` returns messages of at most `bytes` with this tag, from any rank (sent by `send`), also those
  /// that were sent before. Call it once. There must be no `receive` with this tag.
  virtual void listen(int /*tag*/, std::size_t /*bytes*/) {}
  /// The next such message, if one has come, in the order of each sender; valid until the next call.
  [[nodiscard]] virtual std::optional<Heard> hear() { return std::nullopt; }
  /// Whether a receive waits for such messages. While none does, the transport need not look for them.
  virtual void expect(bool /*expects*/) {}

  /// "MPI point-to-point": for describe().
  [[nodiscard]] virtual const char* name() const noexcept = 0;

  // -- for the engine
  /// Once in a pass, before operations are tested: lets the transport work.
  virtual void progress(base::Time /*now*/) {}
  /// Reports of a transport, made inside any call of the driver's.
  struct Reports {
    /// The connection to a rank is gone.
    std::function<void(int rank, const std::string& reason)> peer_lost;
    /// Expected data has not come for so long that all ranks must be asked to `push` (control::Starved).
    std::function<void()> starved;
  };
  virtual void report_to(Reports /*reports*/) {}  // NOLINT(performance-unnecessary-value-param): overriders keep it
  /// From now on the process ends, with exit status 1 and `last_words` on stderr, if one call of a function above lasts
  /// longer than `patience`, where the transport may be kept for ever by a library that it calls.
  virtual void limit_calls(base::Duration /*patience*/, const std::string& /*last_words*/) {}
  /// A rank waits for data: sends what the transport may still hold of completed operations, now and in later calls of
  /// `progress`. MPI promises that a completed send needs no further call on the sending side, but Open MPI breaks that
  /// promise. A long message ends with a message of Open MPI's own (FIN), which is queued while a socket is full, and
  /// sent in a later call of the sender's. Without such a call the receiver waits for ever.
  virtual void push(base::Time /*now*/) {}
  /// The world has failed: the transport moves nothing any more. Any thread.
  virtual void abandon() noexcept {}

  // -- sleeping
  /// A descriptor that is readable when something has come since `arm`; negative: there is none, see `nap`.
  [[nodiscard]] virtual int event_fd() const noexcept { return -1; }
  /// Call it after the rank was marked asleep and before it begins. False: something has come that the driver has not
  /// seen; it makes another pass instead of sleeping.
  [[nodiscard]] virtual bool arm() { return true; }
  /// Whether peers may need this rank's transport while no operation is open here. Then it is armed whenever the driver
  /// sleeps, else only while batches or messages are open.
  [[nodiscard]] virtual bool serves_peers() const noexcept { return false; }
  /// How long to sleep at most before polling again; empty: it need not be polled, or its descriptor wakes the driver.
  [[nodiscard]] virtual std::optional<std::chrono::nanoseconds> nap() noexcept { return std::nullopt; }
};

}  // namespace kolo::transport
