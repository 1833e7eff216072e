// SPDX-License-Identifier: Apache-2.0
#include "c10d/streams.hpp"

#include <kolo/config.hpp>
#include <kolo/error.hpp>

#if KOLO_WITH_CUDA && defined(KOLO_C10D_HAS_NATIVE_STREAMS)
#define KOLO_C10D_TAKES_CUDA
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <kolo/cuda.hpp>
#endif

namespace kolo::c10d {

#ifdef KOLO_C10D_TAKES_CUDA

namespace {

c10::impl::VirtualGuardImpl guard_of(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

}  // namespace

bool takes_cuda() noexcept { return true; }

Stream current_stream(at::Device device) {
  const c10::impl::VirtualGuardImpl guard = guard_of(device);
  return Stream{guard.getStreamNativeHandle(guard.getStream(device))};
}

void wait_for_current_stream(at::Device device) {
  const c10::impl::VirtualGuardImpl guard = guard_of(device);
  guard.synchronizeStream(guard.getStream(device));
}

void note_use_on_current_stream(const at::Tensor& tensor) {
  const c10::impl::VirtualGuardImpl guard = guard_of(tensor.device());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
}

bool wait_given(Handle& handle, std::chrono::nanoseconds duration) { return cuda::wait_given(handle, duration); }

void follow_on_current_stream(at::Device device, const std::vector<std::shared_ptr<Handle>>& handles) {
  const auto stream = static_cast<cuda::StreamHandle>(current_stream(device).native);
  for (const auto& handle : handles) cuda::wait_on(*handle, stream);
}

struct OwnStream::Impl {
  c10::StreamGuard guard;
};

OwnStream::OwnStream(at::Device device)
    : impl_(new Impl{c10::StreamGuard(guard_of(device).getStreamFromGlobalPool(device, /*isHighPriority=*/true))}) {}

struct Point::Impl {
  at::Device device;
  c10::Event event;
};

Point::Point(at::Device device) : impl_(new Impl{device, c10::Event(device.type())}) {
  impl_->event.record(guard_of(device).getStream(device));
}

void Point::hold_back_current_stream() const { impl_->event.block(guard_of(impl_->device).getStream(impl_->device)); }
bool Point::is_reached() const { return impl_->event.query(); }

#else

namespace {

[[noreturn]] void not_built() { throw Error(ErrorCode::unsupported, "this build takes no tensors of CUDA devices"); }

}  // namespace

bool takes_cuda() noexcept { return false; }
Stream current_stream(at::Device) { not_built(); }
void wait_for_current_stream(at::Device) { not_built(); }
void note_use_on_current_stream(const at::Tensor&) { not_built(); }
bool wait_given(Handle&, std::chrono::nanoseconds) { not_built(); }
void follow_on_current_stream(at::Device, const std::vector<std::shared_ptr<Handle>>&) { not_built(); }
struct OwnStream::Impl {};
OwnStream::OwnStream(at::Device) { not_built(); }
struct Point::Impl {};
Point::Point(at::Device) { not_built(); }
void Point::hold_back_current_stream() const { not_built(); }
bool Point::is_reached() const { not_built(); }

#endif

OwnStream::~OwnStream() = default;
Point::~Point() = default;

}  // namespace kolo::c10d
