// SPDX-License-Identifier: Apache-2.0

/// @file
/// For programs whose tensors lie on NVIDIA GPUs. Not part of kolo/kolo.hpp. Present when the library was built with
/// CUDA. On a machine without a driver or a device such a library works for tensors of the CPU, and throws `Error`
/// (unsupported) for tensors of a GPU.
///
///     kolo::cuda::bind();                                    // this rank's device
///     ...
///     kolo::Handle h = kolo::allreduce_async("w.grad", kolo::cuda::view(gradient, count, stream), options);
///     ...
///     kolo::cuda::wait_on(h, stream);                        // what follows on the stream sees the result
///
/// - All collectives take views of device memory, except those that return their result: use the call with `_into`.
///   Inputs and outputs of one call lie on one device, and a rank uses one device. `send` and `recv` may have a tensor
///   of the CPU on the other side (kolo/point_to_point.hpp).
/// - A view's stream is the stream on which the tensor is written. The collective begins when the work is done that was
///   given to the stream before the call. nullptr is the legacy default stream, `cudaStreamPerThread` the calling
///   thread's. A view without a stream is memory that no work on the device writes any more.
/// - `wait()` and `done()` include the device's work. `wait_on` makes a stream wait for it instead of the host.
/// - A call whose stream is being captured into a CUDA graph throws `Error` (invalid_argument).
/// - No call changes the caller's current device, except `bind`.
/// - A rank that may call `kolo::join` before its first tensor on a device calls `bind` first.
/// - Groups work as on the CPU. With its first collective on GPUs a group makes an NCCL communicator. The collectives
///   of all groups of a context have one order, which is the same on all ranks, so they cannot deadlock. Those of two
///   groups may run side by side.
/// - Do not call Kolo between `ncclGroupStart` and `ncclGroupEnd`: a thread inside Kolo calls NCCL, and an open group
///   of the program's would hold its calls back, while Kolo takes them for given. Kolo cannot see that.
/// - Other communicators on the same GPU (the program's own, a library's, a second context's) can deadlock with Kolo's:
///   NCCL needs the collectives of all communicators of a GPU in the same order on every rank. The program orders them:
///   it starts a collective of one communicator only when a collective of another cannot run any more, or when a stream
///   orders the two in the same way on every rank. `wait_on(handle, stream)` puts Kolo's collective before what the
///   stream is given next; a view of the stream puts it behind what the stream was given before. A second context that
///   would use NCCL on the same GPU is refused (unsupported) unless KOLO_SHARE_DEVICE=1.
/// - Shut a context down before the process ends. Destructors of globals may run after CUDA has been unloaded. A
///   context that ends there loses what is open on the device, and the other ranks wait some seconds for it.
/// - NCCL adds in the tensors' own type and in an order of its own; with KOLO_GPU_BACKEND=staged results have the bits
///   of the CPU's (docs/embedding.md, "In which type a GPU adds").
#ifndef KOLO_CUDA_HPP
#define KOLO_CUDA_HPP

#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/handle.hpp>
#include <kolo/point_to_point.hpp>
#include <kolo/types.hpp>

struct CUstream_st;  // what a cudaStream_t points to, so that this header needs none of CUDA's

namespace kolo::cuda {

/// CUDA's `cudaStream_t`.
using StreamHandle = CUstream_st*;

/// Chooses the rank's device, makes it the calling thread's current one, and returns CUDA's number of it in this
/// process (kolo/devices.hpp has the machine's number, too). The device is that at the rank's place on its machine
/// (`local_rank()`, unless the machine is cut into virtual nodes) among the visible ones, or the only visible one.
/// Later calls return the same device. Without `bind` the first tensor chooses. Throws `Error` (unsupported) when there
/// is no device, or none for this rank: `KOLO_SHARE_DEVICE=1` lets several ranks use one.
KOLO_API int bind(const Group& group);
inline int bind() { return bind(current_context()); }

/// The device on which memory lies. Throws `Error` (invalid_argument) for memory of the host, and (unsupported) when
/// there is no device.
[[nodiscard]] KOLO_API Device device_of(const void* memory);

/// A view of `count` elements in device memory (or managed memory), written by work of `stream`.
template <class T>
TensorView view(T* data, Shape shape, StreamHandle stream) {
  static_assert(!std::is_const_v<T>, "use const_view for memory that is only read");
  return {data, dtype_of<T>(), shape, device_of(data), Stream{stream}};
}
template <class T>
TensorView view(T* data, std::size_t count, StreamHandle stream) {
  return view(data, Shape{static_cast<std::int64_t>(count)}, stream);
}
template <class T>
TensorView view(T* data, std::initializer_list<std::int64_t> extents, StreamHandle stream) {
  return view(data, Shape(extents), stream);
}
template <class T>
ConstTensorView const_view(const T* data, Shape shape, StreamHandle stream) {
  return {data, dtype_of<T>(), shape, device_of(data), Stream{stream}};
}
template <class T>
ConstTensorView const_view(const T* data, std::size_t count, StreamHandle stream) {
  return const_view(data, Shape{static_cast<std::int64_t>(count)}, stream);
}
template <class T>
ConstTensorView const_view(const T* data, std::initializer_list<std::int64_t> extents, StreamHandle stream) {
  return const_view(data, Shape(extents), stream);
}

/// Work that is given to `stream` from now on runs after the operation. The host waits until all work of the operation
/// has been given to the device (before that there is nothing that a stream could wait for), but not until that work is
/// done. Throws the operation's `Error` when it has failed already; a failure after that is reported by `wait()`, and
/// by the next call. Throws `Error` (invalid_argument) for an operation on tensors of the CPU, inside a callback, and
/// while the stream is being captured.
KOLO_API void wait_on(Handle& handle, StreamHandle stream);

/// Waits as `wait_on` does until all work of the operation has been given to the device, or the operation is done, and
/// no longer than `duration`; whether it has come. From then on `wait_on` does not block.
/// `std::chrono::nanoseconds::max()` waits as long as `wait_on`. The operation's own failure is left to that. Throws
/// `Error` (invalid_argument) for an operation on tensors of the CPU, and inside a callback.
[[nodiscard]] KOLO_API bool wait_given(Handle& handle, std::chrono::nanoseconds duration);

/// The result of a receive into a device's tensor. As `receive.get()`, but does not wait for the device: it waits for
/// what `wait_on` waits for. Throws the operation's `Error` when it has failed, and (invalid_argument) for a receive
/// into memory of the CPU, and inside a callback.
[[nodiscard]] KOLO_API Received received(Future<Received>& receive);

/// Calls `callback` once, when all work of the operation has been given to the device, or the operation is done: from
/// then on `wait_on` does not block. Otherwise as `Handle::on_done`. Throws `Error` (invalid_argument) for an operation
/// on tensors of the CPU.
KOLO_API void on_given(Handle& handle, std::function<void()> callback);

}  // namespace kolo::cuda

#endif  // KOLO_CUDA_HPP
