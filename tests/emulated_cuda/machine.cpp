// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <cuda_runtime_api.h>
#include <unistd.h>

#include "base/check.hpp"
#include "clique.hpp"
#include "faults.hpp"
#include "newer_nccl.hpp"

namespace kolo::emulated {

ThreadContext& this_thread() {
  thread_local ThreadContext context;
  return context;
}

std::string to_string(Report::Kind kind) {
  switch (kind) {
  case Report::Kind::race:
    return "race";
  case Report::Kind::memory:
    return "memory";
  case Report::Kind::mismatch:
    return "mismatch";
  case Report::Kind::misuse:
    return "misuse";
  case Report::Kind::hazard:
    return "hazard";
  }
  KOLO_UNREACHABLE();
}

std::string site_text(const char* file, int line) {
  if (file == nullptr || *file == '\0') return {};
  std::string_view name(file);
  // Beginning at the project's own folder, wherever it was built.
  for (const std::string_view folder : {"/src/", "/tests/", "/include/"}) {
    if (const auto at = name.rfind(folder); at != std::string_view::npos) {
      name.remove_prefix(at + 1);
      break;
    }
  }
  return std::string(name) + ":" + std::to_string(line);
}

Machine& Machine::instance() {
  static Machine machine;
  return machine;
}

Machine::Machine() : memory(std::make_shared<Memory>()), cliques(std::make_shared<Cliques>()) {
  watch_faults(memory);
  Lock lock(mutex);
  ++generation;
}

Machine::~Machine() {
  Lock lock(mutex);
  tear_down(lock);
  if (reports_.empty()) return;
  for (const Report& unread : reports_) {
    std::fprintf(stderr, "emulated device, %s: %s\n", to_string(unread.kind).c_str(), unread.text.c_str());
  }
  std::fflush(nullptr);
  ::_exit(kUnreadReports);
}

void Machine::reset(const Config& new_config) {
  Lock lock(mutex);
  tear_down(lock);
  ++generation;
  config = new_config;
  have_newer_nccl(!config.old_nccl);
  doings = 0;
  next_actor_ = 0;
  next_stream = next_event = 1;
  handed_over.clear();
  gone.clear();
  threads.clear();
  call_counts.clear();
  call_number = 0;
  collectives.clear();
  traces = false;
  traced.clear();
  injections.clear();
  unloaded = false;
  contexts.clear();
  sites.clear();
  left_out.clear();
  reports_.clear();
  reported_.clear();
}

void Machine::tear_down(Lock& lock) {
  cliques->cut_off();
  std::list<StreamPtr> ended;
  ended.swap(all_streams_);
  for (const StreamPtr& stream : ended) stream->close(/*at_once=*/true);
  streams.clear();
  legacy_streams.clear();
  for (const HostThreadPtr& thread : threads) thread->default_streams.clear();
  events.clear();
  lock.unlock();
  ended.clear();  // joins
  cliques->launcher().end();
  lock.lock();
  cliques->clear();
  filled.clear();
  memory->clear();
}

HostThread& Machine::host() {
  ThreadContext& context = this_thread();
  if (context.host != nullptr && context.host->generation == generation) return *context.host;
  auto thread = std::make_shared<HostThread>();
  thread->generation = generation;
  thread->number = static_cast<unsigned>(threads.size()) + 1;
  thread->actor = new_actor();
  if (config.threads_inherit) {
    for (const HostThreadPtr& other : threads) thread->clock.join(other->clock);
  }
  threads.push_back(thread);
  context.host = thread;
  return *thread;
}

StreamPtr Machine::make_stream(int device, Stream::Kind kind, int priority, unsigned flags) {
  all_streams_.remove_if([this](const StreamPtr& stream) {
    if (stream->finished) gone[stream->device].join(stream->clock());
    return stream->finished;
  });
  auto stream = std::make_shared<Stream>(device, kind, priority, flags, next_stream++);
  all_streams_.push_back(stream);
  return stream;
}

StreamPtr Machine::find_stream(void* handle, int device) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    StreamPtr& legacy = legacy_streams[device];
    if (legacy == nullptr) legacy = make_stream(device, Stream::Kind::legacy, 0, 0);
    return legacy;
  }
  if (handle == cudaStreamPerThread) {
    StreamPtr& own = host().default_streams[device];
    if (own == nullptr) own = make_stream(device, Stream::Kind::per_thread, 0, 0);
    return own;
  }
  const auto found = streams.find(handle);
  return found == streams.end() ? nullptr : found->second;
}

std::vector<StreamPtr> Machine::streams_of(int device) {
  std::vector<StreamPtr> found;
  for (const StreamPtr& stream : all_streams_) {
    if (stream->device == device) found.push_back(stream);
  }
  return found;
}

OperationPtr Machine::operation(const std::string& what, const Stream& stream, const std::string& site) const {
  return std::make_shared<const Operation>(Operation{what, stream.name(), site});
}

std::uint64_t Machine::draw(std::uint64_t a, std::uint64_t b) const {
  // splitmix64's finaliser over the seed and who asks for which time.
  std::uint64_t z = config.seed * 0x9e3779b97f4a7c15U + a * 0xbf58476d1ce4e5b9U + b * 0x94d049bb133111ebU;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

void Machine::submit(const StreamPtr& stream, Op op) {
  op.submitted = host().clock;
  if (stream->kind == Stream::Kind::legacy) {
    for (const StreamPtr& other : streams_of(stream->device)) {
      if (other->is_blocking() && other->last != nullptr) op.after.push_back(other->last);
    }
  } else if (stream->is_blocking()) {
    const auto legacy = legacy_streams.find(stream->device);
    if (legacy != legacy_streams.end() && legacy->second->last != nullptr) op.after.push_back(legacy->second->last);
  }
  stream->enqueue(std::move(op));
}

/// By value: a stream's last operation is another one while this waits.
void Machine::await(Lock& lock, CompletionPtr completion) {
  if (completion == nullptr) return;
  std::condition_variable done;
  if (!completion->done) completion->waiters.push_back(&done);
  done.wait(lock, [&] { return completion->done; });
  host().clock.join(completion->clock);
}

void Machine::complete(const CompletionPtr& completion, const VectorClock& clock) {
  completion->clock = clock;
  completion->at = std::chrono::steady_clock::now();
  completion->done = true;
  for (std::condition_variable* waiter : completion->waiters) waiter->notify_all();
  completion->waiters.clear();
  ++doings;
}

void Machine::report(Report::Kind kind, const std::string& text) {
  constexpr std::size_t kMost = 200;
  if (reports_.size() < kMost && reported_.insert(text).second) reports_.push_back({kind, text});
}

void Machine::enter(const Access& access, const Touch& touch, const VectorClock& clock) {
  Allocation& allocation = *touch.range.allocation;
  if (!allocation.live) {
    report(Report::Kind::memory, to_string(*access.operation) + " touches freed " + allocation.name);
    return;
  }
  const auto conflict = [&](const Access& earlier, std::size_t begin, std::size_t end) {
    // One report for two operations and a buffer, whatever the number of ranges in which they meet.
    const std::string pair =
        to_string(*access.operation) + "\n" + to_string(*earlier.operation) + "\n" + allocation.name;
    if (!reported_.insert(pair).second) return;
    report(Report::Kind::race, to_string(*access.operation) + (access.write ? " writes" : " reads") + ", and " +
                                   to_string(*earlier.operation) + (earlier.write ? " writes" : " reads") +
                                   ", bytes [" + std::to_string(begin) + ", " + std::to_string(end) + ") of " +
                                   allocation.name + ": nothing orders them");
  };
  allocation.history.enter(access, touch.range.begin, touch.range.end, clock, conflict);
}

void Machine::touched_by_host(const void* data, std::size_t bytes, bool write, const char* what) {
  ThreadContext& context = this_thread();
  const bool on_stream = context.in_host_function;
  const std::string where = on_stream ? context.stream->name() : host().name();
  bool wrong = false;
  const Range range = resolve(data, bytes, what, wrong);
  if (range.allocation == nullptr) return;
  const auto operation = std::make_shared<const Operation>(Operation{what, where, {}});
  if (range.allocation->kind == Allocation::Kind::device) {
    report(Report::Kind::memory, to_string(*operation) + " touches device memory: " + range.allocation->name);
    return;
  }
  const ActorId actor = on_stream ? context.stream->actor() : host().actor;
  VectorClock& clock = on_stream ? context.stream->clock() : host().clock;
  const std::uint64_t time = clock.tick(actor);
  enter({actor, time, operation, write}, {range, write}, clock);
}

Range Machine::resolve(const void* data, std::size_t bytes, const std::string& what, bool& wrong) {
  if (bytes == 0) return {};
  const AllocationPtr found = memory->at(data);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (found == nullptr) {
    if (!memory->in_arena(data)) return {};
    report(Report::Kind::memory, what + ": an address that was never allocated");
    wrong = true;
    return {};
  }
  const std::string at = " at byte " + std::to_string(static_cast<std::int64_t>(address - found->base));
  if (!found->live) {
    report(Report::Kind::memory, what + ": freed " + found->name + at);
    wrong = true;
    return {};
  }
  if (!found->contains(address) || bytes > found->bytes - (address - found->base)) {
    report(Report::Kind::memory, what + ": " + std::to_string(bytes) + " bytes" + at + " leave " + found->name);
    wrong = true;
    return {};
  }
  const std::size_t begin = address - found->base;
  return {found, begin, begin + bytes};
}

bool Machine::add_touch(std::vector<Touch>& touches, const RawTouch& touch, const std::string& what) {
  bool wrong = false;
  Range range = resolve(touch.data, touch.bytes, what, wrong);
  if (range.allocation != nullptr) touches.push_back({std::move(range), touch.write});
  return !wrong;
}

bool Machine::allocation_hazard(int device) {
  if (!config.report_allocation_hazards) return false;
  const auto all = streams_of(device);
  return std::any_of(all.begin(), all.end(), [](const StreamPtr& stream) { return stream->occupied; });
}

void Machine::report_hazard(const std::string& call, int device) {
  if (!allocation_hazard(device)) return;
  report(Report::Kind::hazard,
         call + " while a collective occupies a stream of device " + std::to_string(device) + " can deadlock");
}

void Machine::move_data(Lock& lock, const std::function<void()>& body) {
  lock.unlock();
  {
    const std::lock_guard<std::mutex> alone(data_mutex_);
    body();
  }
  lock.lock();
}

}  // namespace kolo::emulated
