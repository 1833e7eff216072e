// SPDX-License-Identifier: Apache-2.0
//
// NCCL's functions, over cliques of ranks.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>
#include <unistd.h>

#include "base/check.hpp"
#include "call.hpp"
#include "clique.hpp"
#include "cuda_memory.hpp"
#include "machine.hpp"
#include "newer_nccl.hpp"

namespace kolo::emulated {
namespace {

struct GroupCall {
  CommunicatorPtr communicator;
  StreamPtr stream;
  Part part;
};

/// What a thread has gathered between ncclGroupStart and ncclGroupEnd.
struct Group {
  int depth = 0;
  std::vector<GroupCall> calls;
  std::vector<CommunicatorPtr> beginning;  // blocking ones, to be waited for at the end
};
Group& group() {
  thread_local Group open;
  return open;
}

std::string& last_error() {
  thread_local std::string text;
  return text;
}

ncclResult_t misuse(Call& call, ncclResult_t result, const std::string& why) {
  last_error() = std::string(call.api) + (call.site.empty() ? "" : " (" + call.site + ")") + ": " + why;
  call.machine.report(Report::Kind::misuse, last_error());
  return result;
}

/// What a call on a communicator finds: the communicator, or what to return at once.
struct Found {
  CommunicatorPtr communicator;
  ncclResult_t result = ncclSuccess;
};

/// Another thread may have unloaded CUDA since this one asked: only who knows it must not call.
ncclResult_t after_unloading(Call& call) {
  if (!call.host().knows_unloaded) return ncclUnhandledCudaError;
  return misuse(call, ncclUnhandledCudaError, "after CUDA has been unloaded");
}

Found find(Call& call, ncclComm_t handle) {
  if (this_thread().in_host_function) {
    return {nullptr, misuse(call, ncclInvalidUsage, "in a host function, on " + this_thread().stream->name())};
  }
  if (call.machine.unloaded) return {nullptr, after_unloading(call)};
  CommunicatorPtr found = call.machine.cliques->find(handle);
  if (found == nullptr) {
    return {nullptr, misuse(call, ncclInvalidArgument, "a communicator that does not exist (any more)")};
  }
  if (const auto failure = call.injected(found->device, found->rank)) {
    last_error() = std::string(call.api) + ": injected";
    if (failure->effect == Failure::Effect::fail) return {nullptr, static_cast<ncclResult_t>(failure->code)};
    found->lost = true;
    if (failure->effect == Failure::Effect::lose_peer && found->clique != nullptr) {
      if (failure->after_others) {
        call.machine.cliques->changed.wait(call.lock, [&] { return found->clique->waits_for(*found); });
      }
      found->clique->tell_others(found->rank, ncclRemoteError, "rank " + std::to_string(found->rank) + " was lost");
    }
    if (failure->code != ncclSuccess) return {nullptr, static_cast<ncclResult_t>(failure->code)};
  }
  return {std::move(found), ncclSuccess};
}

/// The same for calls that need the communicator to be done with the one before.
Found find_ready(Call& call, ncclComm_t handle) {
  Found found = find(call, handle);
  if (found.communicator == nullptr) return found;
  if (found.communicator->error != ncclSuccess) return {nullptr, found.communicator->error};
  if (found.communicator->state != Communicator::State::ready) {
    return {nullptr, misuse(call, ncclInvalidArgument, "the call before is still ncclInProgress")};
  }
  return found;
}

/// Begins what a non-blocking communicator does behind the caller's back; it ends after some polls.
ncclResult_t begin(Call& call, Communicator& communicator, Communicator::State state) {
  communicator.state = state;
  const unsigned most = call.machine.config.lateness > 0 ? 4 : 1;
  communicator.polls_left = static_cast<unsigned>(call.machine.draw(communicator.number, ++communicator.begun) % most);
  return ncclInProgress;
}

/// Waits as a blocking communicator's calls do. No other process announces that it has come: it is looked for.
ncclResult_t await(Call& call, Communicator& communicator) {
  const auto is_over = [&communicator] {
    return communicator.may_advance() || communicator.error != ncclSuccess ||
           communicator.state == Communicator::State::aborted;
  };
  while (communicator.clique != nullptr && communicator.clique->has_processes() && !is_over()) {
    call.lock.unlock();
    std::this_thread::yield();
    call.lock.lock();
  }
  call.machine.cliques->changed.wait(call.lock, is_over);
  if (communicator.error != ncclSuccess) return communicator.error;
  if (communicator.state == Communicator::State::aborted) return ncclInternalError;
  communicator.advance();
  return ncclSuccess;
}

/// What a call that works on this rank alone ends with: on a non-blocking communicator it may only have begun.
ncclResult_t perhaps_later(Call& call, Communicator& communicator) {
  const bool late = !communicator.blocking && call.machine.config.lateness > 0 &&
                    call.machine.draw(communicator.number, ++communicator.begun) % 3 != 0;
  return late ? begin(call, communicator, Communicator::State::enqueuing) : ncclSuccess;
}

/// Ids tell which process made them: the others find nobody there.
std::string id_text(const ncclUniqueId& id) { return {id.internal, ::strnlen(id.internal, sizeof id.internal)}; }
std::string own_id_prefix() { return "emulated " + std::to_string(::getpid()) + " "; }

bool is_blocking(const ncclConfig_t* config) {
  return !Machine::instance().config.never_blocking && (config == nullptr || config->blocking != 0);
}

/// What waits for other ranks ends, in calls and on streams.
void end_what_runs(Call& call, Communicator& communicator) {
  communicator.state = Communicator::State::aborted;
  communicator.waiting.clear();
  if (communicator.clique != nullptr) communicator.clique->give_up(communicator.rank);
  call.machine.cliques->changed.notify_all();
}

/// What ncclCommInitRank and ncclCommSplit end with.
ncclResult_t begin_new(Call& call, const CommunicatorPtr& communicator) {
  begin(call, *communicator, Communicator::State::initialising);
  if (!communicator->blocking) return ncclInProgress;
  if (group().depth > 0) {
    group().beginning.push_back(communicator);
    return ncclSuccess;
  }
  return await(call, *communicator);
}

/// A blocking communicator's by this thread, a non-blocking one's by one of NCCL's, later. Of a rank alone there is
/// nothing that NCCL would leave to another thread.
ncclResult_t put_on_streams(Call& call, const CommunicatorPtr& communicator,
                            const std::vector<std::pair<StreamPtr, Part>>& parts) {
  if (communicator->blocking || communicator->size == 1 || call.machine.config.lateness == 0) {
    static_cast<void>(call.beside_captures());  // NCCL looks after events of its own
    if (communicator->blocking) {
      std::vector<Part> all;
      for (const auto& [stream, part] : parts) all.push_back(part);
      const ncclResult_t connected = communicator->clique->connect(call.lock, *communicator, all);
      if (connected != ncclSuccess) return connected;
    }
    communicator->enqueue(parts);
    return ncclSuccess;
  }
  communicator->waiting = parts;
  communicator->state = Communicator::State::enqueuing;
  call.machine.cliques->launcher().launch_later(communicator, call.host().clock);
  return ncclInProgress;
}

// ---------------------------------------------------------------- calls that go to a stream

/// Why NCCL would refuse a call or, worse, not notice; empty when nothing is wrong.
std::string objection(Call& call, const Communicator& communicator, const Part& part, const Stream* stream) {
  const Signature& signature = part.signature;
  if (stream == nullptr) return "a stream that does not exist (any more)";
  if (stream->device != communicator.device) return "the communicator is of another device than " + stream->name();
  if (stream->capturing) return stream->name() + " is being captured, which is not emulated";
  if (element_bytes(signature.type) == 0) return "this data type is not emulated";
  if (!is_operator(signature.op)) return "not an operator";
  if (signature.root < 0 || signature.root >= communicator.size) return "no rank " + std::to_string(signature.root);
  const std::size_t in = input_bytes(signature, communicator.rank, communicator.size);
  const std::size_t out = output_bytes(signature, communicator.rank, communicator.size);
  std::vector<Touch> touches;
  const std::string what = std::string(call.api) + (call.site.empty() ? "" : " (" + call.site + ")");
  if (!call.machine.add_touch(touches, {part.input, in, false}, what + " reads") ||
      !call.machine.add_touch(touches, {part.output, out, true}, what + " writes")) {
    return "a buffer that is not all in live memory";
  }
  if (touches.size() != static_cast<std::size_t>(in > 0) + static_cast<std::size_t>(out > 0)) {
    return "memory that the device cannot reach";
  }
  for (const Touch& touch : touches) {
    if (touch.range.allocation->kind == Allocation::Kind::device &&
        touch.range.allocation->device != communicator.device) {
      return "memory of another device: " + touch.range.allocation->name;
    }
  }
  // In place means one particular place; any other overlap is undefined.
  const auto* input = static_cast<const unsigned char*>(part.input);
  const auto* output = static_cast<const unsigned char*>(part.output);
  if (in == 0 || out == 0 || input + in <= output || output + out <= input) return {};
  if (signature.kind == Collective::all_to_all) return "input and output overlap";
  const auto rank = static_cast<std::size_t>(communicator.rank);
  const unsigned char* expected = signature.kind == Collective::all_gather       ? input - rank * in
                                  : signature.kind == Collective::reduce_scatter ? input + rank * out
                                                                                 : input;
  return output == expected ? "" : "input and output overlap, and not as in-place calls do";
}

/// For as long as a thread is inside a call on a communicator. A call that is held up does not return.
class Inside {
 public:
  Inside(Call& call, CommunicatorPtr communicator) : communicator_(std::move(communicator)) {
    ++communicator_->inside;
    call.machine.released.wait(call.lock, [&] { return call.machine.held.count(call.api) == 0; });
  }
  ~Inside() { --communicator_->inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const CommunicatorPtr communicator_;
};

std::uint64_t next_number(Communicator& communicator, const Signature& signature) {
  if (signature.kind == Collective::send) return communicator.next_to[signature.root]++;
  if (signature.kind == Collective::receive) return communicator.next_from[signature.root]++;
  return communicator.next_collective++;
}

ncclResult_t give(const char* api, const Signature& signature, const void* input, void* output, ncclComm_t handle,
                  cudaStream_t raw_stream) {
  Call call(api);
  const Found found = find_ready(call, handle);
  if (found.communicator == nullptr) return found.result;
  Communicator& communicator = *found.communicator;
  const Inside inside(call, found.communicator);
  if (communicator.state == Communicator::State::aborted) return ncclInternalError;
  Part part{signature, input, output, 0, call.site, {}};
  const StreamPtr stream = call.machine.find_stream(raw_stream, communicator.device);
  if (const std::string why = objection(call, communicator, part, stream.get()); !why.empty()) {
    return misuse(call, ncclInvalidArgument, why);
  }
  call.gives_to(*stream);
  part.number = next_number(communicator, signature);
  part.registered = communicator.registration_of(part);
  if (!communicator.lost) communicator.clique->call(communicator.rank, part);
  call.machine.collectives.push_back({api, call.machine.call_number, std::this_thread::get_id(), signature.count});
  if (group().depth > 0) {
    group().calls.push_back({found.communicator, stream, part});
    return ncclSuccess;
  }
  return put_on_streams(call, found.communicator, {{stream, part}});
}

}  // namespace

bool is_held_back_in_a_group(const Stream& stream) {
  const std::vector<GroupCall>& calls = group().calls;
  return std::any_of(calls.begin(), calls.end(), [&](const GroupCall& one) { return one.stream.get() == &stream; });
}

namespace {

ncclResult_t end_group(Call& call) {
  const std::vector<GroupCall> calls = std::exchange(group().calls, {});
  const std::vector<CommunicatorPtr> beginning = std::exchange(group().beginning, {});
  std::vector<std::pair<CommunicatorPtr, std::vector<std::pair<StreamPtr, Part>>>> by_communicator;
  for (const GroupCall& one : calls) {
    if (by_communicator.empty() || by_communicator.back().first != one.communicator) {
      auto known = by_communicator.begin();
      while (known != by_communicator.end() && known->first != one.communicator) ++known;
      if (known == by_communicator.end()) {
        by_communicator.push_back({one.communicator, {}});
      } else {
        known->second.push_back({one.stream, one.part});
        continue;
      }
    }
    by_communicator.back().second.push_back({one.stream, one.part});
  }
  ncclResult_t result = ncclSuccess;
  for (const auto& [communicator, parts] : by_communicator) {
    const ncclResult_t one = put_on_streams(call, communicator, parts);
    if (result == ncclSuccess) result = one;
  }
  for (const CommunicatorPtr& communicator : beginning) {
    const ncclResult_t one = await(call, *communicator);
    if (result == ncclSuccess) result = one;
  }
  return result;
}

}  // namespace
}  // namespace kolo::emulated

using kolo::emulated::Allocation;
using kolo::emulated::await;
using kolo::emulated::begin;
using kolo::emulated::begin_new;
using kolo::emulated::Call;
using kolo::emulated::Clique;
using kolo::emulated::Collective;
using kolo::emulated::Communicator;
using kolo::emulated::CommunicatorPtr;
using kolo::emulated::end_group;
using kolo::emulated::end_what_runs;
using kolo::emulated::Failure;
using kolo::emulated::find;
using kolo::emulated::find_ready;
using kolo::emulated::Found;
using kolo::emulated::give;
using kolo::emulated::group;
using kolo::emulated::misuse;
using kolo::emulated::perhaps_later;

// ---------------------------------------------------------------- life

ncclResult_t ncclGetVersion(int* version) {
  const Call call("ncclGetVersion");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Call call("ncclGetUniqueId");
  if (const auto failure = call.injected(call.host().device)) return static_cast<ncclResult_t>(failure->code);
  *id = {};
  const std::string text = kolo::emulated::own_id_prefix() + std::to_string(call.machine.generation) + " " +
                           call.machine.cliques->new_name();
  KOLO_CHECK(text.size() < sizeof id->internal);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  Call call("ncclCommInitRankConfig");
  // Another thread may look for it, to abort what this one then waits in.
  __atomic_store_n(handle, nullptr, __ATOMIC_RELEASE);
  if (call.refusal() != cudaSuccess) return ncclUnhandledCudaError;
  if (size < 1 || rank < 0 || rank >= size) return misuse(call, ncclInvalidArgument, "no such rank");
  if (!call.machine.config.ranks_are_processes &&
      kolo::emulated::id_text(id).rfind(kolo::emulated::own_id_prefix(), 0) != 0) {
    return misuse(
        call, ncclInvalidUsage,
        "another process made this communicator's id, but NCCL is emulated between the threads of one process "
        "(Config::ranks_are_processes makes it between processes)");
  }
  const auto clique = call.machine.cliques->of(id, size);
  if (clique->size() != size) {
    return misuse(call, ncclInvalidArgument,
                  "rank " + std::to_string(rank) + " says " + std::to_string(size) + " ranks, others said " +
                      std::to_string(clique->size()));
  }
  const auto communicator = std::make_shared<Communicator>();
  communicator->clique = clique;
  communicator->rank = rank;
  communicator->size = size;
  communicator->device = call.host().device;
  communicator->blocking = kolo::emulated::is_blocking(config);
  if ((!call.machine.config.shared_devices || call.machine.config.instances) &&
      clique->has_device(communicator->device)) {
    return misuse(call, ncclInvalidUsage, "Duplicate GPU detected: device " + std::to_string(communicator->device));
  }
  const auto failure = call.injected(communicator->device, rank);
  const bool vanishes = failure && failure->effect == Failure::Effect::vanish;  // it never meets the others
  if (!vanishes && !clique->join(rank, communicator.get())) return ncclInvalidUsage;
  if (clique->is_given_up()) communicator->error = ncclRemoteError;
  call.machine.report_hazard(call.api, communicator->device);
  __atomic_store_n(handle, call.machine.cliques->add(communicator), __ATOMIC_RELEASE);
  if (failure && !vanishes) return static_cast<ncclResult_t>(failure->code);
  return begin_new(call, communicator);
}

ncclResult_t ncclCommInitRank(ncclComm_t* handle, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(handle, size, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t parent_handle, int color, int key, ncclComm_t* handle, ncclConfig_t* config) {
  Call call("ncclCommSplit");
  *handle = nullptr;
  const Found parent = find_ready(call, parent_handle);
  if (parent.communicator == nullptr) return parent.result;
  if (parent.communicator->clique->has_processes()) {
    return misuse(call, ncclInvalidUsage, "splits of communicators between processes are not emulated");
  }
  Clique::Answer answer{color, key, nullptr, true};
  CommunicatorPtr child;
  if (color != NCCL_SPLIT_NOCOLOR) {
    child = std::make_shared<Communicator>();
    child->device = parent.communicator->device;
    child->blocking = config == nullptr ? parent.communicator->blocking : kolo::emulated::is_blocking(config);
    answer.child = child.get();
    *handle = call.machine.cliques->add(child);
  }
  const std::uint64_t number = parent.communicator->next_split++;
  if (!parent.communicator->lost) parent.communicator->clique->split(parent.communicator->rank, number, answer);
  return child == nullptr ? ncclSuccess : begin_new(call, child);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  Call call("ncclCommGetAsyncError");
  const Found found = find(call, handle);
  if (found.communicator == nullptr) return found.result;
  Communicator& communicator = *found.communicator;
  *error = communicator.error;
  if (communicator.error != ncclSuccess || communicator.state == Communicator::State::ready ||
      communicator.state == Communicator::State::finalised) {
    return ncclSuccess;
  }
  *error = ncclInProgress;
  if (!communicator.may_advance()) return ncclSuccess;
  if (communicator.polls_left > 0) {
    --communicator.polls_left;
    return ncclSuccess;
  }
  communicator.advance();
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  Call call("ncclCommFinalize");
  const Found found = find_ready(call, handle);
  if (found.communicator == nullptr) return found.result;
  begin(call, *found.communicator, Communicator::State::finalising);
  return found.communicator->blocking ? await(call, *found.communicator) : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  Call call("ncclCommDestroy");
  const Found found = find(call, handle);
  if (found.communicator == nullptr) return found.result;
  call.machine.report_hazard(call.api, found.communicator->device);
  if (found.communicator->state == Communicator::State::finalising) {
    return misuse(call, ncclInvalidArgument, "ncclCommFinalize is still ncclInProgress");
  }
  call.machine.cliques->changed.wait(call.lock, [&] { return found.communicator->outstanding == 0; });
  call.machine.cliques->remove(handle);
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t handle, int flags) {
  Call call("ncclCommRevoke");
  const Found found = find(call, handle);
  if (found.communicator == nullptr) return found.result;
  if (flags != 0) return misuse(call, ncclInvalidArgument, "flags that do not exist");
  if (found.communicator->state == Communicator::State::initialising) {
    return misuse(call, ncclInvalidUsage, "a communicator that is still being made");
  }
  end_what_runs(call, *found.communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  Call call("ncclCommAbort");
  const Found found = find(call, handle);
  if (found.communicator == nullptr) return found.result;
  if (found.communicator->inside > 0 && !found.communicator->connecting) {
    misuse(call, ncclInvalidUsage, "while another thread is inside a call on it, which waits for nobody");
  }
  call.machine.released.wait(call.lock, [&] { return call.machine.held.count(call.api) == 0; });
  end_what_runs(call, *found.communicator);
  // What has started has to end, that of other communicators, too: memory of the device is freed. What waits behind
  // other work ends when its turn comes.
  call.machine.cliques->changed.wait(call.lock,
                                     [&] { return !call.machine.cliques->runs_on(found.communicator->device); });
  call.machine.cliques->remove(handle);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  Call call("ncclCommCount");
  const Found found = find(call, handle);
  if (found.communicator == nullptr) return found.result;
  *count = found.communicator->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  Call call("ncclCommUserRank");
  const Found found = find(call, handle);
  if (found.communicator == nullptr) return found.result;
  *rank = found.communicator->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* device) {
  Call call("ncclCommCuDevice");
  const Found found = find(call, handle);
  if (found.communicator == nullptr) return found.result;
  *device = found.communicator->device;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error";
  case ncclSystemError:
    return "unhandled system error";
  case ncclInternalError:
    return "internal error";
  case ncclInvalidArgument:
    return "invalid argument";
  case ncclInvalidUsage:
    return "invalid usage";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  case ncclInProgress:
    return "NCCL operation in progress";
  default:
    return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t handle) {
  Call call("ncclGetLastError");
  const CommunicatorPtr found = call.machine.cliques->find(handle);
  std::string& text = kolo::emulated::last_error();
  if (found != nullptr && !found->error_text.empty()) text = found->error_text;
  return text.c_str();  // of this thread: nobody else changes it
}

// ---------------------------------------------------------------- memory

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  Call call("ncclMemAlloc");
  if (call.refusal() != cudaSuccess) return ncclUnhandledCudaError;
  const cudaError_t result = allocate(call, Allocation::Kind::device, data, bytes, 4096);
  return result == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* data) {
  Call call("ncclMemFree");
  if (call.machine.unloaded) return kolo::emulated::after_unloading(call);
  if (call.refusal() != cudaSuccess) return ncclUnhandledCudaError;
  const cudaError_t result = kolo::emulated::free(call, Allocation::Kind::device, data);
  return result == cudaSuccess ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* data, size_t bytes, void** registration) {
  Call call("ncclCommRegister");
  const Found found = find_ready(call, handle);
  if (found.communicator == nullptr) return found.result;
  bool wrong = false;
  const auto range = call.machine.resolve(data, bytes, "ncclCommRegister", wrong);
  if (wrong || range.allocation == nullptr || range.allocation->kind != Allocation::Kind::device) {
    return misuse(call, ncclInvalidArgument, "not memory of a device");
  }
  *registration = reinterpret_cast<void*>(call.machine.next_handle);
  call.machine.next_handle += 2;
  found.communicator->registered[*registration] = {range.allocation, found.communicator->registrations++};
  ++range.allocation->registrations;
  return perhaps_later(call, *found.communicator);
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
  Call call("ncclCommDeregister");
  const Found found = find_ready(call, handle);
  if (found.communicator == nullptr) return found.result;
  const auto known = found.communicator->registered.find(registration);
  if (known == found.communicator->registered.end()) {
    return misuse(call, ncclInvalidArgument, "a registration that does not exist (any more)");
  }
  --known->second.allocation->registrations;
  found.communicator->registered.erase(known);
  return ncclSuccess;
}

// ---------------------------------------------------------------- groups and collectives

ncclResult_t ncclGroupStart() {
  const Call call("ncclGroupStart");
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Call call("ncclGroupEnd");
  if (group().depth == 0) return misuse(call, ncclInvalidUsage, "no group is open");
  if (--group().depth > 0) return ncclSuccess;
  if (const auto failure = call.injected(call.host().device)) {
    group().calls.clear();
    group().beginning.clear();
    return static_cast<ncclResult_t>(failure->code);
  }
  return end_group(call);
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream) {
  return give("ncclAllReduce", {Collective::all_reduce, count, type, op, 0}, input, output, communicator, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return give("ncclBroadcast", {Collective::broadcast, count, type, ncclSum, root}, input, output, communicator,
              stream);
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t communicator, cudaStream_t stream) {
  return give("ncclReduce", {Collective::reduce, count, type, op, root}, input, output, communicator, stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  return give("ncclAllGather", {Collective::all_gather, count, type, ncclSum, 0}, input, output, communicator, stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t communicator, cudaStream_t stream) {
  return give("ncclReduceScatter", {Collective::reduce_scatter, count, type, op, 0}, input, output, communicator,
              stream);
}

ncclResult_t ncclAlltoAll(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t communicator,
                          cudaStream_t stream) {
  return give("ncclAlltoAll", {Collective::all_to_all, count, type, ncclSum, 0}, input, output, communicator, stream);
}

ncclResult_t ncclSend(const void* input, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return give("ncclSend", {Collective::send, count, type, ncclSum, peer}, input, nullptr, communicator, stream);
}

ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return give("ncclRecv", {Collective::receive, count, type, ncclSum, peer}, nullptr, output, communicator, stream);
}
