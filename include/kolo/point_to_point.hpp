// SPDX-License-Identifier: Apache-2.0

/// @file
/// Messages from one rank to another: `send`, `recv`, both at once, and both without waiting.
///
/// A receive names the rank that it wants a message from, and a tag, or takes any. Messages of a pair of ranks and a
/// tag are received in the order in which they were sent. A message is of one element type, which the receive must
/// name, too; its buffer may be longer than the message, and `Received` says how long that was. Messages of different
/// groups do not meet, and they have nothing to do with collectives: neither waits for the other.
///
/// When a send is done the memory that was sent may be used again. For up to 8 KiB that is so as soon as the message
/// is on its way, whether or not anybody receives it, unless very many of them have gathered. A longer one waits for
/// its receive (up to 16 KiB only where that is faster). So ranks that first send long messages to each other, and
/// then receive, wait for each other until the deadline; with `sendrecv`, or with `send_async` or `recv_async` on one
/// side, any exchange ends, for every rank moves all its open messages while it waits for one of them, and in the
/// background.
///
/// What goes wrong with one message is no fatal error: the job goes on. That is so for a deadline (`expired`), a
/// message that is longer than the receive's buffer or of another type (`mismatch`, on the receiver, and on the sender
/// while the send is open), and a receive that was cancelled. When a rank dies all open messages fail, as all
/// operations do (`rank_lost`). Messages that wait for a receive take memory of the receiver's. When they are more than
/// 1 GiB on a rank, because it waits for another message than those that come, the job ends (`transport`).
///
/// Tensors lie in memory of the CPU or of a CUDA device, on either side. Those of a device are copied through memory of
/// the host, whatever KOLO_GPU_BACKEND is; NCCL has no part in them. What differs there:
/// - A view's stream is as for collectives (`kolo/cuda.hpp`): what is sent is what the stream has written when it has
///   come to the call, and a receive writes behind what the stream was given before it. `wait` and `done` speak of the
///   device's work, too, and `cuda::wait_on` has a stream follow: that returns when the data has passed through the
///   host, of a receive thus when it has come.
/// - A send waits for its receive, however short it is.
/// - A receive names the rank that it wants a message from; any_rank is refused (`unsupported`).
/// - The deadline ends a send whose stream has not come to the call, too. Of a receive it counts until the data has
///   come; then it waits for its stream alone.
///
/// Thread-safe. Buffers must outlive the operation; the same memory may be sent several times at once, and may be
/// received into once.
#ifndef KOLO_POINT_TO_POINT_HPP
#define KOLO_POINT_TO_POINT_HPP

#include <cstdint>
#include <memory>

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

/// What a receive has got.
struct Received {
  int source = 0;  ///< rank of the group
  int tag = 0;
  std::int64_t elements = 0;  ///< in the first places of the buffer
};

/// A receive under way.
template <>
class KOLO_API Future<Received> : public Handle {
 public:
  using Handle::Handle;
  /// Waits, and says what has come. Throws `Error` as `wait`.
  [[nodiscard]] Received get();
  /// Takes the receive back if no message has come for it: true, and it ends with an `Error` (cancelled). False: it has
  /// a message already, or has ended. Nothing is written into the buffer after this has returned true.
  bool cancel();
};

/// Sends a tensor of any shape and element type to a rank of the group; `tag` is not negative. This rank may be the
/// one. Throws `Error`: invalid_argument for another rank or tag, a null pointer, a timeout of zero, or a stream that
/// is being captured; unsupported for a device that this rank cannot use; out_of_memory where a device's message finds
/// no memory of the host; not_initialized; and what goes wrong with the message (see above).
KOLO_API void send(const Group& group, ConstTensorView tensor, int to, int tag = 0, const SendOptions& options = {});
inline void send(ConstTensorView tensor, int to, int tag = 0, const SendOptions& options = {}) {
  send(current_context(), tensor, to, tag, options);
}
/// Starts to. The handle is done when the memory may be used again; `wait` throws what goes wrong with the message.
[[nodiscard]] KOLO_API Handle send_async(const Group& group, ConstTensorView tensor, int to, int tag = 0,
                                         const SendOptions& options = {});
[[nodiscard]] inline Handle send_async(ConstTensorView tensor, int to, int tag = 0, const SendOptions& options = {}) {
  return send_async(current_context(), tensor, to, tag, options);
}

/// Receives a message of at most as many elements as the tensor has; its shape does not matter. Throws `Error` as
/// `send`, and unsupported for a tensor of a device from any_rank.
KOLO_API Received recv(const Group& group, TensorView tensor, int from = any_rank, int tag = any_tag,
                       const RecvOptions& options = {});
inline Received recv(TensorView tensor, int from = any_rank, int tag = any_tag, const RecvOptions& options = {}) {
  return recv(current_context(), tensor, from, tag, options);
}
/// Starts to. Receives get messages in the order in which they were started.
[[nodiscard]] KOLO_API Future<Received> recv_async(const Group& group, TensorView tensor, int from = any_rank,
                                                   int tag = any_tag, const RecvOptions& options = {});
[[nodiscard]] inline Future<Received> recv_async(TensorView tensor, int from = any_rank, int tag = any_tag,
                                                 const RecvOptions& options = {}) {
  return recv_async(current_context(), tensor, from, tag, options);
}

/// Sends a tensor to one rank of the group and receives into another tensor from one, at once, and waits for both. So
/// all ranks may call it at the same time, whatever the sizes and whoever sends to whom: in a ring, say, or in pairs.
/// `to` and `from` may be the same rank, and this one; `from` may be any_rank. The tags are in the options. Returns
/// what has been received. The two are messages like any other, so a peer may call `send` and `recv` instead.
/// Throws `Error` as those do, and invalid_argument when the tensors overlap. When one of the messages fails the other
/// one is still waited for, until its deadline at most; when both do the receive's error is thrown.
KOLO_API Received sendrecv(const Group& group, ConstTensorView tensor, int to, TensorView into, int from,
                           const SendRecvOptions& options = {});
inline Received sendrecv(ConstTensorView tensor, int to, TensorView into, int from,
                         const SendRecvOptions& options = {}) {
  return sendrecv(current_context(), tensor, to, into, from, options);
}

}  // namespace kolo

#endif  // KOLO_POINT_TO_POINT_HPP
