// SPDX-License-Identifier: Apache-2.0
//
// The CUDA runtime's functions for memory and copies.
#include <cstring>
#include <vector>

#include <cuda_runtime_api.h>

#include "call.hpp"
#include "cuda_memory.hpp"
#include "machine.hpp"

using kolo::emulated::Allocation;
using kolo::emulated::AllocationPtr;
using kolo::emulated::Call;
using kolo::emulated::Op;
using kolo::emulated::Range;
using kolo::emulated::Report;
using kolo::emulated::Stream;
using kolo::emulated::StreamPtr;

namespace kolo::emulated {

cudaError_t allocate(Call& call, Allocation::Kind kind, void** data, std::size_t bytes, std::size_t alignment) {
  if (data == nullptr) return call.misuse(cudaErrorInvalidValue, "no place for the pointer");
  if (const cudaError_t refused = call.beside_captures()) return refused;
  const int device = call.host().device;
  call.machine.report_hazard(call.api, device);
  *data = nullptr;
  if (bytes == 0) return call.end(cudaSuccess);
  Memory& memory = *call.machine.memory;
  const bool on_device = kind == Allocation::Kind::device;
  if (on_device &&
      (bytes > call.machine.config.device_bytes || memory.used(device) > call.machine.config.device_bytes - bytes)) {
    return call.end(cudaErrorMemoryAllocation);
  }
  const AllocationPtr made = memory.allocate(kind, bytes, alignment, device, call.api, call.site);
  if (made == nullptr) return call.end(cudaErrorMemoryAllocation);
  *data = reinterpret_cast<void*>(made->base);
  return call.end(cudaSuccess);
}

namespace {

/// What cudaFree is known to do: wait until the device has nothing to do. What it frees comes after everything.
void await_device(Call& call, int device) {
  for (const StreamPtr& stream : call.machine.streams_of(device)) call.machine.await(call.lock, stream->last);
  call.host().clock.join(call.machine.gone[device]);
}

bool of_kind(const Allocation& allocation, Allocation::Kind kind, const char* api) {
  return allocation.kind == kind && (allocation.api == "ncclMemAlloc") == (std::string(api) == "ncclMemFree");
}

}  // namespace

cudaError_t free(Call& call, Allocation::Kind kind, void* data) {
  if (data == nullptr) return call.end(cudaSuccess);
  if (const cudaError_t refused = call.beside_captures()) return refused;
  const AllocationPtr found = call.machine.memory->at(data);
  if (found == nullptr || !found->live || found->base != reinterpret_cast<std::uintptr_t>(data) ||
      !of_kind(*found, kind, call.api)) {
    const std::string what =
        found == nullptr ? "no memory of this device's" : (found->live ? "" : "freed ") + found->name;
    return call.misuse(cudaErrorInvalidValue, "not a pointer that this call may free: " + what);
  }
  if (found->registrations > 0) {
    call.machine.report(Report::Kind::misuse,
                        std::string(call.api) + ": a communicator still has " + found->name + " registered");
  }
  call.machine.report_hazard(call.api, found->device);
  const bool waits = std::string(call.api) != "ncclMemFree";
  if (waits) {
    await_device(call, found->device);
  } else {
    // As a write of all of it: whoever has touched it before must be known to have ended.
    HostThread& host = call.host();
    const std::uint64_t time = host.clock.tick(host.actor);
    const auto freeing = std::make_shared<const Operation>(Operation{call.api, host.name(), call.site});
    call.machine.enter({host.actor, time, freeing, true}, {{found, 0, found->bytes}, true}, host.clock);
  }
  if (!call.machine.memory->free(*found, /*keeps_pages=*/!waits)) {
    call.machine.report(Report::Kind::memory, "somebody wrote beside " + found->name);
  }
  return call.end(cudaSuccess);
}

namespace {

const char* kind_text(cudaMemcpyKind kind) {
  switch (kind) {
  case cudaMemcpyHostToHost:
    return "host to host";
  case cudaMemcpyHostToDevice:
    return "host to device";
  case cudaMemcpyDeviceToHost:
    return "device to host";
  case cudaMemcpyDeviceToDevice:
    return "device to device";
  case cudaMemcpyDefault:
    return "default";
  }
  return "unknown";
}

bool fits(cudaMemcpyKind kind, bool from_device, bool to_device) {
  switch (kind) {
  case cudaMemcpyHostToHost:
    return !from_device && !to_device;
  case cudaMemcpyHostToDevice:
    return !from_device && to_device;
  case cudaMemcpyDeviceToHost:
    return from_device && !to_device;
  case cudaMemcpyDeviceToDevice:
    return from_device && to_device;
  case cudaMemcpyDefault:
    return true;
  }
  return false;
}

/// Enqueues a copy. Pageable memory makes it less asynchronous, as on a device: it is read before the call returns, or
/// written.
cudaError_t copy(Call& call, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 const StreamPtr& stream, bool wait) {
  if (bytes == 0) return call.end(cudaSuccess);
  if (call.captured(*stream)) return cudaErrorStreamCaptureUnsupported;
  if (const cudaError_t refused = wait ? call.beside_captures() : cudaSuccess) return refused;
  bool wrong = false;
  Range source = call.machine.resolve(from, bytes, std::string(call.api) + " reads", wrong);
  Range target = call.machine.resolve(to, bytes, std::string(call.api) + " writes", wrong);
  if (wrong) return call.end(cudaErrorInvalidValue);
  const auto on_device = [](const Range& range) {
    return range.allocation != nullptr && range.allocation->kind == Allocation::Kind::device;
  };
  if (!fits(kind, on_device(source), on_device(target))) {
    return call.misuse(cudaErrorInvalidMemcpyDirection, std::string("not a copy from ") + kind_text(kind));
  }
  Op op = call.op(*stream);
  const void* readable = call.machine.memory->device_view(from);
  void* writable = call.machine.memory->device_view(to);
  if (source.allocation == nullptr && target.allocation != nullptr) {
    const auto* first = static_cast<const unsigned char*>(from);
    op.body = [writable, staged = std::vector<unsigned char>(first, first + bytes)] {
      std::memcpy(writable, staged.data(), staged.size());
    };
  } else {
    op.body = [writable, readable, bytes] { std::memmove(writable, readable, bytes); };
  }
  const bool pageable_target = target.allocation == nullptr;
  if (source.allocation != nullptr) op.touches.push_back({std::move(source), false});
  if (target.allocation != nullptr) op.touches.push_back({std::move(target), true});
  const auto done = op.completion;
  call.machine.submit(stream, std::move(op));
  if (wait || pageable_target) call.machine.await(call.lock, done);
  return call.end(cudaSuccess);
}

cudaError_t fill(Call& call, void* data, int value, std::size_t bytes, const StreamPtr& stream) {
  if (bytes == 0) return call.end(cudaSuccess);
  if (call.captured(*stream)) return cudaErrorStreamCaptureUnsupported;
  bool wrong = false;
  Range target = call.machine.resolve(data, bytes, std::string(call.api) + " writes", wrong);
  if (wrong || target.allocation == nullptr) {
    return call.misuse(cudaErrorInvalidValue, "not memory that the device can reach");
  }
  Op op = call.op(*stream);
  op.touches.push_back({std::move(target), true});
  op.body = [writable = call.machine.memory->device_view(data), value, bytes] { std::memset(writable, value, bytes); };
  call.machine.submit(stream, std::move(op));
  return call.end(cudaSuccess);
}

}  // namespace
}  // namespace kolo::emulated

using kolo::emulated::allocate;
using kolo::emulated::copy;
using kolo::emulated::fill;

// ---------------------------------------------------------------- allocation

cudaError_t cudaMalloc(void** data, size_t bytes) {
  Call call("cudaMalloc");
  if (const cudaError_t refused = call.refusal()) return refused;
  return allocate(call, Allocation::Kind::device, data, bytes, 256);
}

cudaError_t cudaFree(void* data) {
  Call call("cudaFree");
  if (const cudaError_t refused = call.refusal()) return refused;
  return kolo::emulated::free(call, Allocation::Kind::device, data);
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  Call call("cudaMallocHost");
  if (const cudaError_t refused = call.refusal()) return refused;
  return allocate(call, Allocation::Kind::pinned, data, bytes, 256);
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int /*flags*/) {
  Call call("cudaHostAlloc");
  if (const cudaError_t refused = call.refusal()) return refused;
  return allocate(call, Allocation::Kind::pinned, data, bytes, 256);
}

cudaError_t cudaFreeHost(void* data) {
  Call call("cudaFreeHost");
  if (const cudaError_t refused = call.refusal()) return refused;
  return kolo::emulated::free(call, Allocation::Kind::pinned, data);
}

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned int /*flags*/) {
  Call call("cudaHostRegister");
  if (const cudaError_t refused = call.refusal()) return refused;
  if (data == nullptr || bytes == 0) return call.misuse(cudaErrorInvalidValue, "no memory");
  if (call.machine.memory->at(data) != nullptr) {
    return call.misuse(cudaErrorHostMemoryAlreadyRegistered, "the memory is known already");
  }
  call.machine.memory->enter_registered(data, bytes, call.host().device, call.site);
  return call.end(cudaSuccess);
}

cudaError_t cudaHostUnregister(void* data) {
  Call call("cudaHostUnregister");
  if (const cudaError_t refused = call.refusal()) return refused;
  return kolo::emulated::free(call, Allocation::Kind::registered, data);
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* data, unsigned int /*flags*/) {
  Call call("cudaHostGetDevicePointer");
  if (const cudaError_t refused = call.refusal()) return refused;
  const AllocationPtr found = call.machine.memory->at(data);
  if (found == nullptr || !found->live) return call.misuse(cudaErrorInvalidValue, "not pinned memory");
  *device_pointer = data;
  return call.end(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  Call call("cudaMemGetInfo");
  if (const cudaError_t refused = call.refusal()) return refused;
  *total = call.machine.config.device_bytes;
  *available = *total - call.machine.memory->used(call.host().device);
  return call.end(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* data) {
  Call call("cudaPointerGetAttributes");
  if (const cudaError_t refused = call.refusal()) return refused;
  *attributes = {};
  attributes->device = -1;
  const AllocationPtr found = call.machine.memory->at(data);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (found == nullptr || !found->live || !found->contains(address)) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->hostPointer = const_cast<void*>(data);
    return call.end(cudaSuccess);
  }
  const bool on_device = found->kind == Allocation::Kind::device;
  attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = found->device;
  attributes->devicePointer = const_cast<void*>(data);
  attributes->hostPointer = on_device ? nullptr : const_cast<void*>(data);
  return call.end(cudaSuccess);
}

// ---------------------------------------------------------------- copies

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  Call call("cudaMemcpyAsync");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  return copy(call, to, from, bytes, kind, found, /*wait=*/false);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind) {
  Call call("cudaMemcpy");
  if (const cudaError_t refused = call.refusal()) return refused;
  return copy(call, to, from, bytes, kind, call.stream(cudaStreamLegacy), /*wait=*/kind != cudaMemcpyDeviceToDevice);
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  Call call("cudaMemsetAsync");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  return fill(call, data, value, bytes, found);
}

cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  Call call("cudaMemset");
  if (const cudaError_t refused = call.refusal()) return refused;
  return fill(call, data, value, bytes, call.stream(cudaStreamLegacy));
}
