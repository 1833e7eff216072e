// SPDX-License-Identifier: Apache-2.0
#include "launcher.hpp"

#include <algorithm>

#include "call.hpp"
#include "clique.hpp"
#include "machine.hpp"

namespace kolo::emulated {

void Launcher::launch_later(const std::shared_ptr<Communicator>& communicator, const VectorClock& clock) {
  const Machine& machine = Machine::instance();
  const std::uint64_t drawn = machine.draw(communicator->number, ++communicator->begun);
  const std::uint64_t most = drawn % 4 == 0 ? 8 * machine.config.lateness : 4;
  late_.push_back({communicator, clock, machine.doings + (drawn >> 8) % most});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  wake_.notify_all();
}

void Launcher::cut_off() {
  cut_ = true;
  late_.clear();
  wake_.notify_all();
}

void Launcher::end() {
  if (thread_.joinable()) thread_.join();
  cut_ = false;
}

/// The one that is due first, as soon as it is. False: cut off.
bool Launcher::take_due(Lock& lock, Late& due) {
  const Machine& machine = Machine::instance();
  for (std::uint64_t yields = 0; !cut_; ++yields) {
    wake_.wait(lock, [this] { return cut_ || !late_.empty(); });
    const auto first =
        std::min_element(late_.begin(), late_.end(), [](const Late& a, const Late& b) { return a.due < b.due; });
    if (first != late_.end() && first->due <= machine.doings + yields / 2) {  // time passes, whatever others do
      due = std::move(*first);
      late_.erase(first);
      return true;
    }
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  return false;
}

void Launcher::launch(const Late& late) {
  Call call("a launch by NCCL's thread");
  if (late.communicator->state != Communicator::State::enqueuing) return;  // aborted
  HostThread& self = call.host();
  self.device = late.communicator->device;
  self.clock = late.clock;
  static_cast<void>(call.beside_captures());
  late.communicator->advance();
  call.machine.cliques->changed.notify_all();
}

void Launcher::run() {
  Late due;
  Lock lock(Machine::instance().mutex);
  while (take_due(lock, due)) {
    lock.unlock();
    launch(due);
    lock.lock();
  }
}

}  // namespace kolo::emulated
