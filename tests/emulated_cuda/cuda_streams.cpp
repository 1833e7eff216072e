// SPDX-License-Identifier: Apache-2.0
//
// The CUDA runtime's functions for streams and events.
#include <chrono>
#include <string>

#include <cuda_runtime_api.h>

#include "call.hpp"
#include "clique.hpp"
#include "machine.hpp"

using kolo::emulated::Call;
using kolo::emulated::CompletionPtr;
using kolo::emulated::Event;
using kolo::emulated::Op;
using kolo::emulated::Report;
using kolo::emulated::Stream;
using kolo::emulated::StreamPtr;

namespace {

cudaError_t create_stream(Call& call, cudaStream_t* stream, unsigned flags, int priority) {
  if (const cudaError_t refused = call.refusal()) return refused;
  if (stream == nullptr || flags > cudaStreamNonBlocking) return call.misuse(cudaErrorInvalidValue, "wrong arguments");
  const auto kind = flags == cudaStreamNonBlocking ? Stream::Kind::non_blocking : Stream::Kind::blocking;
  void* handle = reinterpret_cast<void*>(call.machine.next_handle);
  call.machine.next_handle += 2;
  call.machine.streams[handle] = call.machine.make_stream(call.host().device, kind, priority, flags);
  *stream = static_cast<cudaStream_t>(handle);
  return call.end(cudaSuccess);
}

cudaError_t create_event(Call& call, cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t refused = call.refusal()) return refused;
  if (event == nullptr) return call.misuse(cudaErrorInvalidValue, "no place for the event");
  auto made = std::make_shared<Event>();
  made->device = call.host().device;
  made->flags = flags;
  made->number = call.machine.next_event++;
  void* handle = reinterpret_cast<void*>(call.machine.next_handle);
  call.machine.next_handle += 2;
  call.machine.events[handle] = made;
  *event = static_cast<cudaEvent_t>(handle);
  return call.end(cudaSuccess);
}

std::shared_ptr<Event> find_event(Call& call, cudaEvent_t event) {
  const auto found = call.machine.events.find(event);
  if (found != call.machine.events.end()) return found->second;
  call.misuse(cudaErrorInvalidResourceHandle, "an event that does not exist (any more)");
  return nullptr;
}

/// Success when what it stands for has been reached, which the calling thread then comes after.
cudaError_t query(Call& call, const CompletionPtr& completion) {
  if (const cudaError_t refused = call.beside_captures()) return refused;
  if (completion == nullptr) return call.end(cudaSuccess);
  if (!completion->done) return call.end(cudaErrorNotReady);
  call.host().clock.join(completion->clock);
  return call.end(cudaSuccess);
}

}  // namespace

// ---------------------------------------------------------------- streams

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  Call call("cudaStreamCreate");
  return create_stream(call, stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  Call call("cudaStreamCreateWithFlags");
  return create_stream(call, stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  Call call("cudaStreamCreateWithPriority");
  return create_stream(call, stream, flags, priority);
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* number) {
  Call call("cudaStreamGetId");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  *number = found->number;
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Call call("cudaStreamDestroy");
  if (const cudaError_t refused = call.refusal()) return refused;
  const auto found = call.machine.streams.find(stream);
  if (found == call.machine.streams.end()) {
    return call.misuse(cudaErrorInvalidResourceHandle, "a stream that does not exist (any more)");
  }
  found->second->close(/*at_once=*/false);
  call.machine.streams.erase(found);
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Call call("cudaStreamQuery");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  return query(call, found->last);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Call call("cudaStreamSynchronize");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr || call.captured(*found)) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t refused = call.beside_captures()) return refused;
  call.machine.await(call.lock, found->last);
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int /*flags*/) {
  Call call("cudaStreamWaitEvent");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  const auto awaited = find_event(call, event);
  if (found == nullptr || awaited == nullptr) return cudaErrorInvalidResourceHandle;
  if (call.captured(*found)) return cudaErrorStreamCaptureUnsupported;
  if (awaited->recorded == nullptr) return call.end(cudaSuccess);
  Op op = call.op(*found);
  op.after.push_back(awaited->recorded);
  call.machine.submit(found, std::move(op));
  return call.end(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  Call call("cudaLaunchHostFunc");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  if (call.captured(*found)) return cudaErrorStreamCaptureUnsupported;
  Op op = call.op(*found);
  op.on_host = true;
  op.body = [function, data] { function(data); };
  call.machine.submit(found, std::move(op));
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  Call call("cudaStreamGetFlags");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  *flags = found->flags;
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  Call call("cudaStreamGetPriority");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  *priority = found->priority;
  return call.end(cudaSuccess);
}

// ---------------------------------------------------------------- capture: its state alone, no graph

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  Call call("cudaStreamIsCapturing");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  *status = !found->capturing            ? cudaStreamCaptureStatusNone
            : found->capture_invalidated ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  Call call("cudaStreamBeginCapture");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  if (found->kind == Stream::Kind::legacy || found->capturing) {
    return call.misuse(cudaErrorStreamCaptureUnsupported, "this stream cannot be captured (now)");
  }
  found->capturing = true;
  found->capture_invalidated = false;
  found->capture_mode = mode;
  found->captured_by = call.host().number;
  return call.end(cudaSuccess);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  Call call("cudaThreadExchangeStreamCaptureMode");
  if (const cudaError_t refused = call.refusal()) return refused;
  const int former = call.host().capture_mode;
  call.host().capture_mode = *mode;
  *mode = static_cast<enum cudaStreamCaptureMode>(former);
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Call call("cudaStreamEndCapture");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  if (!found->capturing) return call.misuse(cudaErrorIllegalState, "the stream is not being captured");
  found->capturing = false;
  *graph = nullptr;
  return call.end(found->capture_invalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
}

// ---------------------------------------------------------------- events

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  Call call("cudaEventCreate");
  return create_event(call, event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  Call call("cudaEventCreateWithFlags");
  return create_event(call, event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Call call("cudaEventDestroy");
  if (const cudaError_t refused = call.refusal()) return refused;
  if (find_event(call, event) == nullptr) return cudaErrorInvalidResourceHandle;
  call.machine.events.erase(event);
  return call.end(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Call call("cudaEventRecord");
  if (const cudaError_t refused = call.refusal()) return refused;
  const StreamPtr found = call.stream(stream);
  const auto recorded = find_event(call, event);
  if (found == nullptr || recorded == nullptr) return cudaErrorInvalidResourceHandle;
  if (call.captured(*found)) return cudaErrorStreamCaptureUnsupported;
  if (recorded->device != found->device) {
    return call.misuse(cudaErrorInvalidResourceHandle, "the event is of device " + std::to_string(recorded->device) +
                                                           ", the stream of device " + std::to_string(found->device));
  }
  if (kolo::emulated::is_held_back_in_a_group(*found)) {
    call.machine.report(Report::Kind::misuse, "cudaEventRecord on " + found->name() +
                                                  ", which does not have what this thread has called for it in an "
                                                  "open group of NCCL's: the event comes before that");
  }
  Op op = call.op(*found);
  recorded->recorded = op.completion;
  call.machine.submit(found, std::move(op));
  return call.end(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call("cudaEventQuery");
  if (const cudaError_t refused = call.refusal()) return refused;
  const auto found = find_event(call, event);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  return query(call, found->recorded);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Call call("cudaEventSynchronize");
  if (const cudaError_t refused = call.refusal()) return refused;
  const auto found = find_event(call, event);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t refused = call.beside_captures()) return refused;
  call.machine.await(call.lock, found->recorded);
  return call.end(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
  Call call("cudaEventElapsedTime");
  if (const cudaError_t refused = call.refusal()) return refused;
  if (const cudaError_t refused = call.beside_captures()) return refused;
  const auto first = find_event(call, start);
  const auto second = find_event(call, stop);
  if (first == nullptr || second == nullptr) return cudaErrorInvalidResourceHandle;
  if (((first->flags | second->flags) & cudaEventDisableTiming) != 0 || first->recorded == nullptr ||
      second->recorded == nullptr) {
    return call.misuse(cudaErrorInvalidResourceHandle, "an event without timing, or never recorded");
  }
  if (!first->recorded->done || !second->recorded->done) return call.end(cudaErrorNotReady);
  const std::chrono::duration<double, std::milli> elapsed = second->recorded->at - first->recorded->at;
  *ms = static_cast<float>(elapsed.count() * call.machine.config.clock_rate);
  return call.end(cudaSuccess);
}
