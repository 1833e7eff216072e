// SPDX-License-Identifier: Apache-2.0
//
// How submissions come in, and what a thread that submits says by itself. See the essay in engine.hpp.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "data/kernels/float_mode.hpp"
#include "engine/engine.hpp"

namespace kolo::engine {
namespace {

/// So much a thread that submits moves by itself: it takes a fraction of what waking another thread takes.
constexpr std::int64_t kSmallBytes = 16 << 10;
/// How often a submitter looks again for what others have said while it spoke.
constexpr int kTurns = 4;

}  // namespace

void Engine::submit(OperationPtr operation, bool quiet) {
  remember_engine(*operation);
  push({Command::submit, std::move(operation)});
  if (quiet) return;
  if (driver_.nobody_looks() && !say_at_once()) driver_.ring_if_asleep();
}

/// An operation that is used again mostly has it: a copy counts.
void Engine::remember_engine(Operation& operation) const {
  const std::weak_ptr<Engine>& its = operation.engine;
  if (its.owner_before(self_) || self_.owner_before(its)) operation.engine = self_;
}

/// What a thread has to say to an engine that sleeps it says itself: that costs less than to wake the background thread
/// for it, which often shares this thread's CPU. A lone small tensor it also brings as far as it comes; what comes of
/// it later wakes the engine. One of a burst (OpenOperations) is left to who waits for it, or to the background thread
/// after a nap. Callbacks are not for who does not wait, and may hold a lock that they want: whoever is handed the
/// driver's place runs them.
/// False: nothing was done.
bool Engine::say_at_once() {
  if (!driver_.try_look()) return false;
  if (faulted() || ending_.is_closed() || device_moves()) {
    driver_.look_away();
    return false;
  }
  if (open_.is_burst()) {
    driver_.nap(base::now() + kNap);
    driver_.look_away();
    return true;
  }
  driver_.take();
  bool lone = false;
  // Once more for what others say meanwhile: as long as that is not for the background thread anyway.
  for (int turn = 0; turn < kTurns && (turn == 0 || owes_work()); ++turn) {
    lone = false;
    guarded([&]() KOLO_REQUIRES(driver_.mutex()) { return lone = say(); });
    changes_.note();
    settle_pass();
  }
  hand_over(lone);
  return true;
}

/// One turn of it; whether there is a lone small tensor, and batches have been brought further.
bool Engine::say() {
  const kernels::FloatMode float_mode;
  const base::Time now = base::now();
  const bool interest = interest_.look();
  drain_mailbox(now);
  participant_.set_interested(interest);
  speak();
  const bool lone = open_.size() == 1 && is_small(open_[0]);
  if (leader_) leader_->step(now);
  if (lone) read_log();
  if (leader_) leader_->wake_ranks();
  while (lone && move_backend(now)) {
  }
  if (lone) move_messages(now);  // the transport has been moved, and has perhaps brought theirs
  speak();
  return lone;
}

bool Engine::is_small(const Operation& operation) noexcept {
  return operation.signature->device == DeviceKind::cpu && operation.bytes() <= kSmallBytes;
}

void Engine::end_step(core::SetId set) {
  check_usable();
  push({Command::end_step, nullptr, set});
  if (driver_.nobody_looks() && !say_at_once()) driver_.ring_if_asleep();
}

SetStatePtr Engine::make_set(const std::vector<std::int32_t>& ranks, const std::string& name) {
  check_usable();
  check_may_wait();
  // Threads that ask for the same set do so one after another.
  std::vector<std::int32_t> ascending = ranks;
  std::sort(ascending.begin(), ascending.end());
  std::string key = "kolo.set";  // no program's
  for (const std::int32_t rank : ascending) key += " " + std::to_string(rank);
  core::Signature signature;
  signature.kind = core::CollectiveKind::add_process_set;
  signature.ranks = ranks;
  signature.names = {name};
  const auto operation = std::make_shared<Operation>();
  operation->signature = std::make_shared<const core::Signature>(std::move(signature));
  operation->entry = &world_->names.claim_in_turn(key + '\0' + name);
  operation->engine = weak_from_this();
  push({Command::make_set, operation});
  wait(*operation, std::nullopt);
  if (operation->failed()) throw Error(operation->outcome());
  return std::move(operation->room.set);
}

void Engine::drop_set(core::SetId set) {
  if (ending_.is_stopped()) return;
  push({Command::drop_set, nullptr, set});
  if (driver_.nobody_looks() && !say_at_once()) driver_.ring_if_asleep();
}

void Engine::push(Submission&& submission) {
  // NOLINTNEXTLINE(bugprone-use-after-move): what does not fit is not touched
  while (!mailbox_.try_push(std::move(submission))) make_room();
}

/// A full mailbox is emptied by the submitter itself where nobody else is at it. Callbacks are not for it, here too.
void Engine::make_room() {
  if (driver_.try_take()) {
    const HandOver after(*this);
    progress();
  } else {
    std::this_thread::yield();
  }
}

void Engine::note_interest(Operation& operation) {
  if (operation.done()) return;
  if (interest_.mark(operation) && driver_.nobody_looks() && !say_at_once()) driver_.ring_if_asleep();
}

}  // namespace kolo::engine
