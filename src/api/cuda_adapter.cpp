// SPDX-License-Identifier: Apache-2.0
#ifdef KOLO_HAS_CUDA

#include <kolo/cuda.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "api/access.hpp"
#include "api/context_impl.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "data/cuda/contexts.hpp"
#include "data/cuda/cuda_api.hpp"
#include "data/cuda/device.hpp"

namespace kolo::cuda {

int bind(const Group& group) {
  data::DeviceBackend* const backend = api::impl_of(group).engine().device();
  const int device = backend->bind();
  set_current_device(device);
  return device;
}

namespace {

/// The process's.
const DriverCalls& driver_calls() {
  static const DriverCalls calls = find_driver_calls();
  return calls;
}

int index_of(const void* memory) {
  try {
    return memory == nullptr ? current_device() : device_holding(memory, driver_calls());
  } catch (const Error&) {
    const DeviceCount count = count_devices();
    if (count.devices > 0) throw;
    throw Error(ErrorCode::unsupported, "there is no CUDA device: " + count.why);
  }
}

/// The operation of a handle, which must be one on tensors of a device.
detail::HandleState& on_device(const Handle& handle, const char* call, const char* what, const char* otherwise) {
  detail::HandleState& operation = detail::HandleAccess::state(handle);
  if (operation.device() == DeviceKind::cuda) return operation;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + " is for " + what + " tensors of a CUDA device; use " + otherwise);
}

}  // namespace

Device device_of(const void* memory) {
  const int device = index_of(memory);
  if (device < 0) {
    throw Error(ErrorCode::invalid_argument,
                "this pointer is to memory of the host, not of a CUDA device; use kolo::view for it");
  }
  return {DeviceKind::cuda, device};
}

void wait_on(Handle& handle, StreamHandle stream) {
  detail::HandleState& operation = on_device(handle, "wait_on", "operations on", "wait()");
  const std::shared_ptr<engine::Engine> engine = operation.engine.lock();  // null: it is done
  // Before the wait, and also if the operation is done, and the stream gets no work.
  if (engine && (!operation.is_given() || operation.done())) engine->device()->refuse_capture(Stream{stream});
  if (engine) engine->driving().wait_given(operation);
  if (const data::DeviceEventPtr end = operation.given()) {
    end->hold_back(Stream{stream});
    return;
  }
  host_was_told();
  if (operation.failed()) throw Error(operation.outcome());
}

Received received(Future<Received>& receive) {
  detail::HandleState& operation = on_device(receive, "received", "receives into", "get()");
  const std::shared_ptr<engine::Engine> engine = operation.engine.lock();  // null: it is done
  if (engine) engine->driving().wait_given(operation);
  if (operation.failed()) throw Error(operation.outcome());
  return api::received(operation);
}

bool wait_given(Handle& handle, std::chrono::nanoseconds duration) {
  detail::HandleState& operation = on_device(handle, "wait_given", "operations on", "wait_for()");
  if (operation.is_given()) return true;
  const std::shared_ptr<engine::Engine> engine = operation.engine.lock();  // null: it is done
  return !engine || engine->driving().wait_given(operation, base::after(base::now(), duration));
}

void on_given(Handle& handle, std::function<void()> callback) {
  if (!callback) throw Error(ErrorCode::invalid_argument, "on_given needs something to call");
  detail::HandleState& operation = on_device(handle, "on_given", "operations on", "on_done()");
  const std::shared_ptr<engine::Engine> engine = operation.engine.lock();  // null: it is done
  if (engine) engine->submitter().note_awaited(operation);
  std::function<void(const Status&)> call = [callback = std::move(callback)](const Status&) { callback(); };
  if (operation.add_callback_when_enqueued(call)) return;
  if (engine) {
    engine->driving().call_back(std::move(call), Status());
  } else {
    engine::call_back(call, Status(), base::Logger());
  }
}

}  // namespace kolo::cuda

#endif
