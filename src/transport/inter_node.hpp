// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks of different nodes. MPI or UCX carries them between processes, a queue between ranks as
// threads.
// Only Kolo's staging memory travels, never a caller's: so a handle can fail while an operation is still open.
//
// Two parts of the library use a transport. The data plane sends and receives, and knows no more than that. The engine
// knows when there is nothing to do, and sleeps:
//
//   announce that nobody drives     what peers publish from now on wakes this rank
//   look once more
//   arm                             what the transport receives from now on makes its descriptor readable
//   sleep in the poller             until then, or for `nap` where the transport has no descriptor
//
// A transport with a descriptor may want a nap as well, while so much has been coming so slowly that to be woken for
// each message would be a waste (pace.hpp): then it is not armed.
//
// A transport without a descriptor has to be looked at again and again, and some transports have to be pushed. All that
// is in one place, PolledInterNode (polled_inter_node.hpp), which makes a transport of this interface out of such a
// one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"

namespace kolo::transport {

/// Calls come from the engine's driver only, one thread at a time, unless it says otherwise; which thread may change.
/// Whatever fails throws `Error` (transport).
class InterNode {
 public:
  /// An open operation; 0 is none.
  using Operation = std::uint64_t;

  virtual ~InterNode() = default;

  // -- messages
  /// Staging memory, 64-byte aligned, owned by the transport and freed by its destructor - unless an operation is still
  /// open, then it is kept until the process exits.
  virtual std::byte* staging(std::size_t bytes) = 0;
  /// Gives staging memory back in which no operation is open. A transport may keep it until its end.
  virtual void give_back(std::byte* /*staging*/) noexcept {}
  /// Both return at once. Messages between the same two ranks with the same tag match in the order they were started;
  /// sizes must agree. Any size (64-bit).
  virtual Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) = 0;
  virtual Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) = 0;
  /// True once when the operation has completed; the operation is then gone.
  virtual bool test(Operation operation) = 0;

  // -- messages whose sender alone knows that they come, and how long they are
  /// A message that was heard.
  struct Heard {
    int rank = 0;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  /// From now on messages of at most `bytes` with this tag are heard, whichever rank sends them (by `send`): also those
  /// that were sent before. Once. Nothing else is received with this tag.
  virtual void listen(int /*tag*/, std::size_t /*bytes*/) {}
  /// The next of them, if one has come, in the order of each sender; valid until the next call.
  [[nodiscard]] virtual std::optional<Heard> hear() { return std::nullopt; }
  /// Whether somebody waits for such messages. While nobody does the transport need not look for them.
  virtual void expect(bool /*expects*/) {}

  /// "MPI point-to-point": for describe().
  [[nodiscard]] virtual const char* name() const noexcept = 0;

  // -- the engine's
  /// Once in a pass, before operations are tested: lets the transport work.
  virtual void progress(base::Time /*now*/) {}
  /// What a transport says of itself, inside any call of the driver's.
  struct Reports {
    /// The connection to a rank is gone.
    std::function<void(int rank, const std::string& reason)> peer_lost;
    /// What is due here has not come for so long that all ranks are to be asked to `push` (control::Starved).
    std::function<void()> starved;
  };
  virtual void report_to(Reports /*reports*/) {}  // NOLINT(performance-unnecessary-value-param): overriders keep it
  /// Somebody is starved: moves what the transport may still hold of operations that have completed, now and in the
  /// calls of `progress` that follow. MPI promises that a send that has completed needs no further call on the sending
  /// side; Open MPI does not keep that: a long message ends with one of its own (FIN) that it queues while a socket is
  /// full and sends in a later call, any call, of the sender's. Without one the receiver waits for ever.
  virtual void push(base::Time /*now*/) {}
  /// The world has failed: nothing is moved any more. Any thread.
  virtual void abandon() noexcept {}

  // -- sleeping
  /// Readable when something has come since `arm`; negative: nothing tells, see `nap`.
  [[nodiscard]] virtual int event_fd() const noexcept { return -1; }
  /// To be called after sleep was announced, before it begins. False: something has come that the driver has not seen;
  /// it makes another pass instead of sleeping.
  [[nodiscard]] virtual bool arm() { return true; }
  /// Whether peers may need this rank's transport though nothing is open here: then it is armed whenever the driver
  /// sleeps, else only while batches or messages are open.
  [[nodiscard]] virtual bool serves_peers() const noexcept { return false; }
  /// How long to sleep at most before looking again; nothing: it need not be looked at, or is slept on.
  [[nodiscard]] virtual std::optional<std::chrono::nanoseconds> nap() noexcept { return std::nullopt; }
};

}  // namespace kolo::transport
