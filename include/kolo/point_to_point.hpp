// SPDX-License-Identifier: Apache-2.0

/// @file
/// Messages from one rank to another: `send`, `recv`, both at once, and both without waiting.
///
/// A receive names the sending rank and a tag, or takes any. Messages between the same two ranks with the same tag are
/// received in the order in which they were sent. Send and receive have the same element type. The receive's buffer may
/// be longer than the message; `Received` says how long the message was. Messages belong to a group: a receive in
/// another group does not get them. Messages and collectives do not wait for each other, but for the place on a GPU.
///
/// When a send is done, its memory may be used again. A send of up to 8 KiB is done as soon as the message is on its
/// way, received or not, unless very many messages wait already. A longer send waits for its receive (up to 16 KiB only
/// if that is faster). Two ranks that both send a long message first and then receive therefore wait for each other
/// until the deadline. Use `sendrecv`, or `send_async` or `recv_async` on one side: a rank moves all its open messages
/// while it waits for one of them, and in the background.
///
/// An error of one message is not fatal: the job goes on after a deadline (`expired`), after a message that is longer
/// than the receive's buffer or of another type (`mismatch`, on the receiver, and on the sender if its send is open),
/// and after a cancelled receive. When a rank dies, all open messages fail, as all operations do (`rank_lost`).
/// Messages that wait for their receive take memory on the receiving rank. If they come to more than 1 GiB there, the
/// job ends (`transport`).
///
/// Tensors lie in memory of the CPU or of a CUDA device, on either side. From device to device they go by NCCL, unless
/// KOLO_GPU_BACKEND is `staged`; the first ones from a rank to another, and those of which one side lies in memory of
/// the CPU, are copied through memory of the host (docs/gpu.md). Differences:
/// - A view's stream is as for collectives (kolo/cuda.hpp): a send reads, and a receive writes, after the work that the
///   stream was given before the call. `wait` and `done` include the device's work. `cuda::wait_on` makes a stream
///   wait, and returns when both ranks have called, or through the host when the message has come.
/// - By NCCL the messages from one rank to another go one after another, in the order in which the receives take them.
///   One whose stream does not come to the call holds up those behind it.
/// - A send waits for its receive, however short it is.
/// - A receive names the sending rank; any_rank is refused (`unsupported`).
/// - A deadline counts until both ranks have agreed on the message. Through the host that of a send includes the wait
///   for its stream, and that of a receive counts until the data has come; after that the receive waits for its stream
///   without a deadline. By NCCL the message is then as a collective: if it does not come to its end within
///   KOLO_TIMEOUT_S, or within its own deadline where that is longer, the job ends.
///
/// Thread-safe. Buffers must outlive the operation. The same memory may be sent several times at once, but only one
/// open receive may write it.
#ifndef KOLO_POINT_TO_POINT_HPP
#define KOLO_POINT_TO_POINT_HPP

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/handle.hpp>
#include <kolo/options.hpp>
#include <kolo/types.hpp>

namespace kolo {

/// A message from any rank of the group, this one included.
inline constexpr int any_rank = -1;
/// A message with any tag.
inline constexpr int any_tag = -1;

/// The result of a receive.
struct Received {
  int source = 0;  ///< rank of the group
  int tag = 0;
  std::int64_t elements = 0;  ///< received elements, at the beginning of the buffer
};

/// A receive under way.
template <>
class KOLO_RESULT Future<Received> : public Handle {
 public:
  using Handle::Handle;
  /// For the handle of a receive.
  explicit Future(Handle handle) noexcept : Handle(std::move(handle)) {}
  /// Waits, and returns what was received. Throws `Error` as `wait`.
  [[nodiscard]] Received get();
  /// Cancels the receive if no message has come for it: returns true, and the receive ends with an `Error` (cancelled).
  /// Returns false if it has a message already, or has ended. Nothing is written into the buffer after this has
  /// returned true.
  bool cancel();
};

namespace detail {
/// A message, or one in each direction.
struct Transfer {
  const ConstTensorView* sent = nullptr;  ///< null: none
  int to = 0;
  int send_tag = 0;
  const TensorView* received = nullptr;  ///< null: none
  int from = any_rank;
  int recv_tag = any_tag;
  std::optional<std::chrono::nanoseconds> timeout = {};
};
/// Waits for all; returns what was received.
KOLO_API Received run(const Group& group, const Transfer& transfer);
/// Of one message.
KOLO_API Handle start(const Group& group, const Transfer& transfer);
}  // namespace detail

/// Sends a tensor of any shape and element type to a rank of the group; `tag` is not negative, and `to` may be this
/// rank. Throws `Error`: invalid_argument for another rank or tag, a null pointer, a timeout of zero, or a stream that
/// is being captured; unsupported for a device that this rank cannot use; out_of_memory if there is no memory of the
/// host for a device's message; not_initialized; and the message's errors (see above).
inline void send(const Group& group, ConstTensorView tensor, int to, int tag = 0, const SendOptions& options = {}) {
  detail::run(group, {&tensor, to, tag, nullptr, any_rank, any_tag, options.timeout});
}
inline void send(ConstTensorView tensor, int to, int tag = 0, const SendOptions& options = {}) {
  send(current_context(), tensor, to, tag, options);
}
/// Starts a send. The handle is done when the memory may be used again; `wait` throws the message's errors.
inline Handle send_async(const Group& group, ConstTensorView tensor, int to, int tag = 0,
                         const SendOptions& options = {}) {
  return detail::start(group, {&tensor, to, tag, nullptr, any_rank, any_tag, options.timeout});
}
inline Handle send_async(ConstTensorView tensor, int to, int tag = 0, const SendOptions& options = {}) {
  return send_async(current_context(), tensor, to, tag, options);
}

/// Receives a message of at most as many elements as the tensor has; its shape does not matter. Throws `Error` as
/// `send`, and unsupported for a tensor of a device from any_rank. From any_rank it fails (rank_lost) when all other
/// ranks have left. A receive that was started fails so when a thread waits for it: until then the rank may send to
/// itself.
inline Received recv(const Group& group, TensorView tensor, int from = any_rank, int tag = any_tag,
                     const RecvOptions& options = {}) {
  return detail::run(group, {nullptr, 0, 0, &tensor, from, tag, options.timeout});
}
inline Received recv(TensorView tensor, int from = any_rank, int tag = any_tag, const RecvOptions& options = {}) {
  return recv(current_context(), tensor, from, tag, options);
}
/// Starts a receive. Receives get messages in the order in which they were started.
inline Future<Received> recv_async(const Group& group, TensorView tensor, int from = any_rank, int tag = any_tag,
                                   const RecvOptions& options = {}) {
  return Future<Received>(detail::start(group, {nullptr, 0, 0, &tensor, from, tag, options.timeout}));
}
inline Future<Received> recv_async(TensorView tensor, int from = any_rank, int tag = any_tag,
                                   const RecvOptions& options = {}) {
  return recv_async(current_context(), tensor, from, tag, options);
}

/// Sends a tensor to one rank of the group and receives another tensor at the same time, and waits for both. All ranks
/// may call it at once, with any sizes, in a ring or in pairs. `to` and `from` may be the same rank, also this one;
/// `from` may be any_rank. The tags are in the options. Returns what was received. A peer may call `send` and `recv`
/// instead. Throws `Error` as those do, and invalid_argument if the tensors overlap. If one message fails, the other
/// one is still waited for, until its deadline at most; but if it fails because a rank has left, the other one is given
/// up at once. If both fail, the receive's error is thrown.
inline Received sendrecv(const Group& group, ConstTensorView tensor, int to, TensorView into, int from,
                         const SendRecvOptions& options = {}) {
  return detail::run(group, {&tensor, to, options.send_tag, &into, from, options.recv_tag, options.timeout});
}
inline Received sendrecv(ConstTensorView tensor, int to, TensorView into, int from,
                         const SendRecvOptions& options = {}) {
  return sendrecv(current_context(), tensor, to, into, from, options);
}

}  // namespace kolo

#endif  // KOLO_POINT_TO_POINT_HPP
