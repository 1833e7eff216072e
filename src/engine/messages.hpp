// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks, which do not use the log: which thread moves them, when, and how threads wait.
// data/p2p/messenger.hpp has the rest.
//
// A thread inside a synchronous call looks for as long as a peer takes that is on its way, or as data moves, without
// the driver's place. After that the message becomes an operation, and the thread waits as for any other one: it
// drives, then it sleeps. The driver moves all messages in every pass. Like the transport they are armed before a
// sleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/types.hpp>

#include "data/device.hpp"
#include "data/p2p/message.hpp"
#include "engine/device_pairs.hpp"
#include "engine/engine_state.hpp"
#include "engine/operation.hpp"
#include "engine/sets.hpp"

namespace kolo::engine {

/// The operation of a send or a receive. A message's handle points to it, and a thread that waits long for its own
/// message sleeps on it.
struct MessageOperation final : Operation {
  p2p::Message own;   ///< of an asynchronous call: what `message` points to
  SetStatePtr set;    ///< likewise: the group
  OperationPtr self;  ///< while it is open; guarded by the lock of the messenger, and the driver's once it is done
  /// The other half of a `sendrecv`, which outlives this one's end; null: there is none. If one fails because a rank
  /// has left, the other is given up: its peer may wait for that rank, too. Constant once both are open.
  MessageOperation* half = nullptr;

  // -- where the tensor lies on a device (DeviceMessages)
  std::unique_ptr<std::byte[]>
      host;                 ///< the message's memory; null: the tensor's own, or it goes from device to device
  data::DeviceCopy copy;    ///< between the two; the driver's, from when it begins
  bool is_copying = false;  ///< it has begun, and is not over; the driver's
  bool has_ended = false;   ///< the message has; the driver's
  /// Of a message that has ended well: whether its data must still be copied into the tensor.
  [[nodiscard]] bool lacks_data() const noexcept {
    return host != nullptr && message->role == p2p::Message::Role::receive && message->received_bytes > 0;
  }
};

/// Messages whose tensors lie on a device, and which do not go from device to device (device_pairs.hpp). Such a message
/// is an ordinary one in memory of the host, plus a copy: a send copies the tensor into that memory, from the call on,
/// or from when it is known that the message goes this way; a receive copies into the tensor when all data has come.
/// Messages of devices and of the CPU therefore match, keep their order, time out and fail alike.
///
///   send     begin (`p2p::News::late`)  ->  copied: `Messenger::provide`, piece by piece  ->  the message ends: the
///            operation is done, once nothing of the copy is under way
///   receive  the message ends           ->  begin  ->  copied: the operation is done
///
/// The driver's, but for `open`.
class DeviceMessages {
 public:
  /// Null: there is no device. It outlives this.
  explicit DeviceMessages(data::DeviceCopies* device) noexcept : device_(device) {}

  /// Copies that have begun and are not over. Any thread may ask.
  [[nodiscard]] std::uint64_t open() const noexcept { return open_.load(std::memory_order_acquire); }
  /// Whether some of them have not been moved yet.
  [[nodiscard]] bool has_fresh() const noexcept { return has_fresh_ && !copying_.empty(); }
  void begin(MessageOperation& operation);
  /// The message has ended, however. Whether the operation goes on: until its copy is over, or, unless the device
  /// `may_be_used` (it is being aborted, perhaps, and nothing more is asked of it), until `take`.
  [[nodiscard]] bool keeps(MessageOperation& operation, bool may_be_used);
  /// Moves copies; `news` is called with each operation, as MessageOperation&, whose copy has come further.
  template <class News>
  bool move(News news) {
    if (open() == 0) return false;
    has_fresh_ = false;
    std::vector<data::DeviceCopy*> copies = std::exchange(copies_, {});  // none is left when one of them throws
    copies.clear();
    const bool moved = device_->progress(copies);
    for (data::DeviceCopy* copy : copies) {
      auto& operation = *static_cast<MessageOperation*>(copy->cookie);
      if (copy->over) forget(operation);
      news(operation);
    }
    copies_ = std::move(copies);  // for the memory
    return moved;
  }
  /// The device has been aborted: no copy is open any more. Those whose message has ended, which nobody else ends.
  [[nodiscard]] std::vector<MessageOperation*> take();
  /// Whether a tensor of these begins in this memory.
  [[nodiscard]] bool uses(const std::byte* begin, std::size_t bytes) const noexcept;

 private:
  void forget(MessageOperation& operation);

  data::DeviceCopies* const device_;
  std::vector<MessageOperation*> copying_;
  std::vector<data::DeviceCopy*> copies_;
  bool has_fresh_ = false;
  std::atomic<std::uint64_t> open_{0};
};

class Driving;

class Messages {
 public:
  /// `driving` is used from the first call on.
  Messages(EngineState& engine, Driving& driving) noexcept
      : engine_(engine), driving_(driving), copies_(engine.device ? &engine.device->copies() : nullptr),
        pairs_(engine) {}

  // -- any thread
  /// Once, before any other call, when the engine's own address is known.
  void make_sent();
  /// Sends and receives messages, two at most, and waits until all are done, with whatever outcome. Throws Error:
  /// invalid_argument inside a callback, and what is fatal.
  void transfer(Span<p2p::Message* const> messages, std::optional<std::chrono::nanoseconds> timeout);
  /// The same of messages of which a device has one.
  void transfer(Span<const std::shared_ptr<MessageOperation>> operations,
                std::optional<std::chrono::nanoseconds> timeout);
  /// Starts to, without waiting. Its operation has all that it needs: where the tensor lies on a device, memory of the
  /// host, and the copy between the two.
  void submit(const std::shared_ptr<MessageOperation>& operation, std::optional<std::chrono::nanoseconds> timeout);
  /// Sends a short message of the CPU's memory, if that can be done at once: returns the operation of all such sends.
  /// Null: nothing has been done.
  [[nodiscard]] OperationPtr try_send(const p2p::Message& message);
  /// Takes a receive back that has no message yet; whether it had none. It is done soon.
  bool cancel(Operation& receive);
  /// Copies to or from a device that are not over.
  [[nodiscard]] bool has_copies() const noexcept KOLO_NO_THREAD_SAFETY_ANALYSIS { return copies_.open() > 0; }

  // -- the driver
  /// One pass; whether anything moved.
  bool move(base::Time now) KOLO_REQUIRES(kDriving) {
    const bool is_open = copies_.open() > 0 || engine_.messenger.is_busy() || engine_.messenger.has_news();
    return (is_open || pairs_.is_busy()) && move_open(now);
  }
  /// An operation fails by this status because a rank has left. If it is a message, so may the other half of its call.
  void give_up_other_half(const Operation& operation, const Status& status) KOLO_REQUIRES(kDriving) {
    if (operation.message == nullptr) return;
    const auto* const half = static_cast<const MessageOperation&>(operation).half;
    if (half != nullptr) give_up_half(*half, status);
  }
  /// The engine is about to sleep: has peers ring when messages can go on. False: some can already.
  [[nodiscard]] bool arm() noexcept KOLO_REQUIRES(kDriving) {
    return (!engine_.messenger.is_busy() && !engine_.messenger.has_news()) || arm_open();
  }
  /// Ends all that are open, and those that come later: without a fatal error, copies go on.
  void close(const Status& status) KOLO_REQUIRES(kDriving);
  void fail(const Status& status) KOLO_REQUIRES(kDriving);
  /// Whether a tensor of these begins in this memory.
  [[nodiscard]] bool uses(const std::byte* begin, std::size_t bytes) KOLO_REQUIRES(kDriving) {
    return engine_.messenger.uses(begin, bytes) || copies_.uses(begin, bytes);
  }

 private:
  [[nodiscard]] bool look_out(p2p::Message& message);
  [[nodiscard]] int pauses_a_look() const noexcept;
  [[nodiscard]] bool hand_over(p2p::Message& message, MessageOperation* owner,
                               std::optional<std::chrono::nanoseconds> timeout);
  void wait_for(Span<p2p::Message* const> messages, std::optional<std::chrono::nanoseconds> timeout);
  void give_up(const std::string& reason);
  void give_up(Span<p2p::Message* const> messages);
  void note_ended_here(const p2p::Message& message, const MessageOperation* half = nullptr);
  void give_up_half(const MessageOperation& half, const Status& status) KOLO_REQUIRES(kDriving);
  void look_after_others();
  void look_soon();
  void see_to(const p2p::Message& message);
  void submit_of_device(MessageOperation& operation, std::optional<std::chrono::nanoseconds> timeout);

  [[nodiscard]] bool move_open(base::Time now) KOLO_REQUIRES(kDriving);
  [[nodiscard]] bool arm_open() noexcept KOLO_REQUIRES(kDriving);
  bool move_copies() KOLO_REQUIRES(kDriving);
  bool take_ended() KOLO_REQUIRES(kDriving);
  void end(MessageOperation& operation) KOLO_REQUIRES(kDriving);
  void give_to_device(p2p::Message& message) KOLO_REQUIRES(kDriving);
  void note_end(const p2p::Message& message, base::Time begun) KOLO_REQUIRES(kDriving);
  void complete(MessageOperation& operation, const Status& status) KOLO_REQUIRES(kDriving);

  EngineState& engine_;
  Driving& driving_;
  DeviceMessages copies_ KOLO_GUARDED_BY(kDriving);
  DevicePairs pairs_ KOLO_GUARDED_BY(kDriving);
  std::shared_ptr<MessageOperation> sent_;  // that has succeeded: constant
};

}  // namespace kolo::engine
