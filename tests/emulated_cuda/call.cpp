// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <algorithm>
#include <utility>

namespace kolo::emulated {
namespace {

struct NextSite {
  const char* file = nullptr;
  int line = 0;
};
NextSite& next_site() {
  thread_local NextSite site;
  return site;
}

}  // namespace

void at_site(const char* file, int line) { next_site() = {file, line}; }

bool passes(const char* call, const char* file, int line) {
  Machine& machine = Machine::instance();
  const std::string place = site_text(file, line);
  const Lock lock(machine.mutex);
  auto found = std::find_if(machine.sites.begin(), machine.sites.end(),
                            [&](const SyncSite& site) { return site.place == place && site.call == call; });
  if (found == machine.sites.end()) found = machine.sites.insert(found, SyncSite{call, place, 0});
  ++found->calls;
  at_site(file, line);
  return machine.left_out.count(place) == 0;
}

Call::Call(const char* name) : machine(Machine::instance()), lock(machine.mutex), api(name) {
  const NextSite where = std::exchange(next_site(), {});
  site = site_text(where.file, where.line);
  ++machine.call_counts[api];
  ++machine.call_number;
  ++machine.doings;
  if (machine.traces) machine.traced.push_back({api, std::this_thread::get_id(), host().device, 0});
}

void Call::gives_to(const Stream& stream) {
  if (!machine.traces || machine.traced.empty()) return;
  machine.traced.back().device = stream.device;
  machine.traced.back().stream = stream.number;
}

Call::~Call() = default;

std::optional<Failure> Call::injected(int device, int rank) {
  for (Machine::Injection& injection : machine.injections) {
    const Failure& failure = injection.failure;
    if (failure.api != api || (failure.device >= 0 && failure.device != device) ||
        (failure.rank >= 0 && failure.rank != rank)) {
      continue;
    }
    ++injection.seen;
    if (injection.seen == failure.nth || (failure.and_later && injection.seen > failure.nth)) return failure;
  }
  return std::nullopt;
}

void Call::enter_context() {
  host().context = HostThread::primary_context(host().device);
  machine.contexts.insert(host().device);
}

cudaError_t Call::refusal(Needs needs) {
  if (this_thread().in_host_function) {
    machine.report(Report::Kind::misuse, std::string(api) + " in a host function, on " + this_thread().stream->name());
    return cudaErrorNotPermitted;
  }
  machine.released.wait(lock, [this] { return machine.held.count(api) == 0; });
  if (machine.unloaded) {
    host().knows_unloaded = true;
    return end(cudaErrorCudartUnloading);
  }
  if (!machine.config.driver) return end(cudaErrorInsufficientDriver);
  if (machine.config.devices == 0) return end(cudaErrorNoDevice);
  if (const auto failure = injected(host().device)) return end(static_cast<cudaError_t>(failure->code));
  if (needs == Needs::a_context && host().context == nullptr) enter_context();
  return cudaSuccess;
}

cudaError_t Call::end(cudaError_t result) {
  if (result != cudaSuccess && result != cudaErrorNotReady) host().last_error = result;
  return result;
}

cudaError_t Call::misuse(cudaError_t result, const std::string& why) {
  std::string text = std::string(api) + (site.empty() ? "" : " (" + site + ")") + ": " + why;
  machine.report(Report::Kind::misuse, text);
  return end(result);
}

StreamPtr Call::stream(cudaStream_t handle) {
  StreamPtr found = machine.find_stream(handle, host().device);
  if (found == nullptr) {
    misuse(cudaErrorInvalidResourceHandle, "a stream that does not exist (any more)");
  } else {
    gives_to(*found);
  }
  return found;
}

void Call::await_room(const Stream& stream) {
  while (machine.config.most_queued > 0 && stream.queued() >= machine.config.most_queued) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

/// Asked by all that give a stream something, before they do.
bool Call::captured(Stream& stream) {
  await_room(stream);
  if (!stream.capturing) return false;
  stream.capture_invalidated = true;
  misuse(cudaErrorStreamCaptureUnsupported, stream.name() + " is being captured");
  return true;
}

cudaError_t Call::beside_captures() {
  const HostThread& caller = host();
  if (caller.capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (const auto& [handle, stream] : machine.streams) {
    if (!stream->capturing) continue;
    const bool own = stream->captured_by == caller.number && stream->capture_mode != cudaStreamCaptureModeRelaxed;
    const bool global =
        caller.capture_mode == cudaStreamCaptureModeGlobal && stream->capture_mode == cudaStreamCaptureModeGlobal;
    if (!own && !global) continue;
    stream->capture_invalidated = true;
    return misuse(cudaErrorStreamCaptureUnsupported,
                  "by " + caller.name() + " while " + stream->name() + " is being captured, which ends the capture");
  }
  return cudaSuccess;
}

Op Call::op(const Stream& stream, const std::string& what) const {
  Op made;
  made.operation = machine.operation(what.empty() ? api : what, stream, site);
  return made;
}

}  // namespace kolo::emulated
