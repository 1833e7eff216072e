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
///   _into). Inputs and outputs of one call lie on one device; one rank uses one device.
/// - A view's stream is the one on which the tensor is written: the collective begins when what was given to the stream
///   before the call is done. nullptr is the legacy default stream, `cudaStreamPerThread` the calling thread's; a view
///   without a stream (from `TensorView`'s constructor) is of memory that nothing on the device is writing any more.
/// - `wait()` and `done()` speak of the device's work, too. `wait_on` does not block the host for it.
/// - A call while its stream is being captured into a CUDA graph is an error (invalid_argument). Captures of other
///   streams are left alone, whatever their mode.
/// - No call changes the caller's current device, `bind` apart.
/// - `GradientArena(bytes, Device{DeviceKind::cuda, kolo::cuda::bind()})` is memory for gradients that need no copy.
#ifndef KOLO_CUDA_HPP
#define KOLO_CUDA_HPP

#include <cstddef>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/handle.hpp>
#include <kolo/types.hpp>

struct CUstream_st;  // what a cudaStream_t points to, so that this header needs none of CUDA's

namespace kolo::cuda {

/// CUDA's `cudaStream_t`.
using StreamHandle = CUstream_st*;

/// Chooses the rank's device - by `local_rank()` among those that are visible, or the one that the launcher left
/// visible - makes it the calling thread's current one, and returns its number. The next calls return the same. Without
/// it the first tensor chooses. Throws `Error` (unsupported) when there is no device, or none for this rank:
/// `KOLO_SHARE_DEVICE=1` lets several ranks use one.
KOLO_API int bind(Context& context);
KOLO_API int bind();

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
ConstTensorView const_view(const T* data, Shape shape, StreamHandle stream) {
  return {data, dtype_of<T>(), shape, device_of(data), Stream{stream}};
}
template <class T>
ConstTensorView const_view(const T* data, std::size_t count, StreamHandle stream) {
  return const_view(data, Shape{static_cast<std::int64_t>(count)}, stream);
}

/// What is given to `stream` from now on runs after the operation. The host waits until all work of the operation has
/// been given to the device - before that there is nothing that a stream could wait for - and never until it is done.
/// Throws the operation's `Error` when it has failed already; a failure after that is reported by `wait()`, and by the
/// next call. Throws `Error` (invalid_argument) for an operation on tensors of the CPU, inside a callback, and while
/// the stream is being captured.
KOLO_API void wait_on(Handle& handle, StreamHandle stream);

}  // namespace kolo::cuda

#endif  // KOLO_CUDA_HPP
