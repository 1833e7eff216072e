// SPDX-License-Identifier: Apache-2.0

/// @file
/// For programs whose tensors lie on NVIDIA GPUs. Not part of kolo/kolo.hpp. Present when the library was built with
/// CUDA; on a machine without a driver or a device such a library works, and says so when it is given GPU tensors.
///
///     kolo::cuda::bind();                                    // this rank's device
///     ...
///     kolo::Handle h = kolo::allreduce_async("w.grad", kolo::cuda::view(gradient, count, stream), options);
///     ...
///     kolo::cuda::wait_on(h, stream);                        // what follows on the stream sees the result
///
/// - All collectives take views of device memory, those that return their result apart (allgather: use the call with
///   _into). Inputs and outputs of one call lie on one device; one rank uses one device. So do `send` and `recv`, which
///   copy through memory of the host (`kolo/point_to_point.hpp`).
/// - A view's stream is the one on which the tensor is written: the collective begins when what was given to the stream
///   before the call is done. nullptr is the legacy default stream, `cudaStreamPerThread` the calling thread's; a view
///   without a stream (from `TensorView`'s constructor) is of memory that nothing on the device is writing any more.
/// - `wait()` and `done()` speak of the device's work, too. `wait_on` does not block the host for it.
/// - A call while its stream is being captured into a CUDA graph is an error (invalid_argument). Captures of other
///   streams are left alone, whatever their mode.
/// - No call changes the caller's current device, `bind` apart.
/// - While ranks have joined (`kolo::join`), everything goes through fusion buffers, whatever its size and place. A
///   rank that joins before it has had a tensor on a device calls `bind` first, or gets its device as `bind` gives them
///   out.
/// - `GradientArena(bytes, Device{DeviceKind::cuda, kolo::cuda::bind()})` is memory for gradients that need no copy.
///
/// Groups work as on the CPU. With its first collective on GPUs a group makes an NCCL communicator, while nothing else
/// of Kolo's runs on these GPUs, and it gives that back when all its ranks have dropped it; what a rank lacks fails the
/// groups that it is in, and no others. On one GPU the collectives of all groups run one after another, in an order
/// that is the same on all ranks: they cannot deadlock, whatever order the ranks call them in.
///
/// Other communicators on the same GPU (the program's own, a library's, a second context's): NCCL needs the collectives
/// of all communicators of a GPU in the same order on every rank, or they can deadlock. Kolo orders those of one
/// context. The program orders the rest: while a collective of one communicator may run, no collective of another is
/// open, unless a stream orders the two in the same way on every rank, or the host waits for the first before it starts
/// the second. `wait_on(handle, stream)` puts Kolo's collective before what the stream is given next; a view of the
/// stream puts it behind what the stream was given before. Kolo refuses (unsupported) a second context that would use
/// NCCL on a GPU that another context of the process uses by NCCL. KOLO_SHARE_DEVICE=1 allows it: then the program
/// orders the two. Contexts of one rank are never refused.
///
/// Shut a context down before the process ends. Destructors of globals may run after CUDA has been unloaded: a context
/// that ends there loses what is open on the device, and the other ranks wait some seconds for its communicator.
///
/// What is added in which type:
///
/// | tensors | KOLO_GPU_BACKEND=nccl | KOLO_GPU_BACKEND=staged, and tensors of the CPU |
/// |---|---|---|
/// | float32, float64 | in that type, in an order of NCCL's | in that type, in the order of the ranks |
/// | float16, bfloat16 | in that type: each sum is rounded | in float32, rounded once at the end |
/// | an average | float32, float64: the sum is divided | the sum is divided |
/// | an average of 16 bits | each input times 1/ranks, rounded, then added | the sum is divided |
/// | prescale | each product is rounded to the tensor's type | in the type of the sum |
/// | postscale | of the sum as NCCL rounded it | before the sum is rounded |
///
/// float32 and float64 with `send_as` are tensors of the type that is sent, in this table, once they have been
/// multiplied by prescale in their own type (of an average by NCCL: by prescale/ranks) and rounded. So are
/// tensors of 16 bits whose average is over fewer ranks, because some have joined (`kolo::join`).
///
/// So staged results have the bits of the CPU's, and so have those of float32 and float64 by NCCL where it adds in the
/// same order. An average of 16 bits does not overflow where its sum would; a plain sum of 16 bits by NCCL does, and a
/// prescale of 1/ranks spares it that. What is below the smallest 16-bit number after the division is lost.
#ifndef KOLO_CUDA_HPP
#define KOLO_CUDA_HPP

#include <cstddef>
#include <functional>
#include <initializer_list>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/handle.hpp>
#include <kolo/types.hpp>

struct CUstream_st;  // what a cudaStream_t points to, so that this header needs none of CUDA's

namespace kolo::cuda {

/// CUDA's `cudaStream_t`.
using StreamHandle = CUstream_st*;

/// Chooses the rank's device - by the rank's place on its machine (`local_rank()`, unless the machine is cut into
/// virtual nodes) among those that are visible, or the one that the launcher left visible - makes it the calling
/// thread's current one, and returns its number, CUDA's in this process (kolo/devices.hpp has the machine's, too). The
/// next calls return the same. Without it the first tensor chooses.
/// Throws `Error` (unsupported) when there is no device, or none for this rank: `KOLO_SHARE_DEVICE=1` lets several
/// ranks use one.
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

/// What is given to `stream` from now on runs after the operation. The host waits until all work of the operation has
/// been given to the device - before that there is nothing that a stream could wait for - and never until it is done.
/// Throws the operation's `Error` when it has failed already; a failure after that is reported by `wait()`, and by the
/// next call. Throws `Error` (invalid_argument) for an operation on tensors of the CPU, inside a callback, and while
/// the stream is being captured.
KOLO_API void wait_on(Handle& handle, StreamHandle stream);

/// Calls `callback` once, when all work of the operation has been given to the device, or the operation is done: from
/// then on `wait_on` does not block. Else as `Handle::on_done`. Throws `Error` (invalid_argument) for an operation on
/// tensors of the CPU.
KOLO_API void on_given(Handle& handle, std::function<void()> callback);

}  // namespace kolo::cuda

#endif  // KOLO_CUDA_HPP
