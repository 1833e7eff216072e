// SPDX-License-Identifier: Apache-2.0
//
// What tests say and ask (emulator.hpp), over the machine.
#include <algorithm>
#include <utility>

#include "clique.hpp"
#include "emulator.hpp"
#include "machine.hpp"

namespace kolo::emulated {

void reset(const Config& config) { Machine::instance().reset(config); }

std::vector<Report> take_reports() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  std::vector<Report> taken;
  taken.swap(machine.reports_);
  return taken;
}

void drain() {
  Machine& machine = Machine::instance();
  Lock lock(machine.mutex);
  machine.progressed.wait(lock, [&] {
    return std::all_of(machine.all_streams_.begin(), machine.all_streams_.end(), [](const StreamPtr& stream) {
      return stream->finished || stream->idle() || stream->waits_for_peers;
    });
  });
}

std::string describe() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  std::string text;
  for (const StreamPtr& stream : machine.all_streams_) {
    if (!stream->finished) text += stream->describe() + "\n";
  }
  return text + machine.cliques->describe();
}

std::vector<std::string> live_objects() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  std::vector<std::string> found;
  for (const auto& [handle, stream] : machine.streams) found.push_back(stream->name());
  for (const auto& [handle, event] : machine.events) found.push_back("event " + std::to_string(event->number));
  for (const auto& [base, allocation] : machine.memory->all()) {
    if (allocation->live) found.push_back(allocation->name);
  }
  for (const std::string& communicator : machine.cliques->live()) found.push_back(communicator);
  return found;
}

// ---------------------------------------------------------------- annotations

void host_read(const void* data, std::size_t bytes, const char* what) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.touched_by_host(data, bytes, false, what);
}

void host_write(const void* data, std::size_t bytes, const char* what) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.touched_by_host(data, bytes, true, what);
}

namespace {

VectorClock& own_clock(Machine& machine) {
  ThreadContext& context = this_thread();
  return context.in_host_function ? context.stream->clock() : machine.host().clock;
}

}  // namespace

void release(const void* key) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.handed_over[key].join(own_clock(machine));
}

void acquire(const void* key) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  const auto found = machine.handed_over.find(key);
  if (found != machine.handed_over.end()) own_clock(machine).join(found->second);
}

void acquire_all() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  VectorClock& own = own_clock(machine);
  for (const HostThreadPtr& thread : machine.threads) {
    if (&thread->clock != &own) own.join(thread->clock);
  }
}

void expect_behind(cudaStream_t raw_stream, cudaEvent_t event) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  const StreamPtr stream = machine.find_stream(raw_stream, machine.host().device);
  const auto found = machine.events.find(event);
  if (stream == nullptr || found == machine.events.end() || found->second->recorded == nullptr) return;
  Op op;
  op.operation = machine.operation("what tells of event " + std::to_string(found->second->number), *stream, {});
  op.occupy = [what = op.operation, recorded = found->second->recorded](Lock& /*lock*/, Stream& on) {
    if (recorded->done && on.clock().covers(recorded->clock)) return;
    Machine::instance().report(Report::Kind::race, to_string(*what) + " may come before it: nothing orders them");
  };
  machine.submit(stream, std::move(op));
}

// ---------------------------------------------------------------- contexts

std::vector<int> contexts() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  return {machine.contexts.begin(), machine.contexts.end()};
}

void* current_context() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  return machine.host().context;
}

void enter_context_of_its_own(int device) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.host().device = device;
  machine.host().context = static_cast<char*>(HostThread::primary_context(device)) + HostThread::kOfItsOwn;
}

// ---------------------------------------------------------------- faults, counts, mutation

void hold_calls(const std::string& api) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.held.insert(api);
}

void release_calls() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.held.clear();
  machine.released.notify_all();
}

void unload() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.unloaded = true;
  machine.host().knows_unloaded = true;
  machine.cliques->cut_off();
  for (const StreamPtr& stream : machine.all_streams_) stream->close(/*at_once=*/true);
}

void inject(const Failure& failure) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.injections.push_back({failure, 0});
}

std::uint64_t calls(const std::string& api) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  const auto found = machine.call_counts.find(api);
  return found == machine.call_counts.end() ? 0 : found->second;
}

std::vector<CallRecord> collective_calls() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  return machine.collectives;
}

void trace() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.traced.clear();
  machine.traces = true;
}

std::vector<TracedCall> take_trace() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.traces = false;
  return std::exchange(machine.traced, {});
}

std::uint64_t calls_so_far() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  return machine.call_number;
}

std::vector<SyncSite> sync_sites() {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  return machine.sites;
}

void leave_out(const std::string& place) {
  Machine& machine = Machine::instance();
  const Lock lock(machine.mutex);
  machine.left_out.insert(place);
}

}  // namespace kolo::emulated
