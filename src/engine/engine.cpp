// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "base/quote.hpp"

namespace kolo::engine {
namespace {

/// Of a longer one the beginning goes to the other ranks.
constexpr std::size_t kLongestReason = 4096;

}  // namespace

Engine::Engine(EngineParts parts)
    : state_(std::move(parts)), execution_(state_), messages_(state_, driving_), deadlines_(state_),
      control_loop_(state_, execution_, messages_, deadlines_),
      driving_(state_, control_loop_, execution_, messages_, deadlines_), submitter_(state_, driving_, control_loop_) {}

std::shared_ptr<Engine> Engine::make(EngineParts parts) {
  std::shared_ptr<Engine> engine(new Engine(std::move(parts)));
  engine->driving_.whole = engine;
  engine->messages_.make_sent();
  engine->state_.driver.start([raw = engine.get()] { raw->driving_.run_background(); });
  return engine;
}

Engine::~Engine() {
  stop(Status(ErrorCode::shut_down, "the engine was shut down"));
  // Threads may have submitted more meanwhile.
  const Status status(ErrorCode::shut_down, "this context was shut down");
  while (const std::optional<Submission> late = control_loop_.mailbox.try_pop()) {
    if (!late->starts_operation()) continue;
    bool was_awaited = false;
    for (const auto& callback : late->operation->complete(status, was_awaited))
      engine::call_back(callback, status, *state_.logger);
  }
}

bool Engine::uses(const std::byte* begin, std::size_t bytes) {
  if (state_.ending.is_stopped()) return false;
  state_.driver.take_over();
  const Driving::HandOver after(driving_);
  driving_.progress();  // what lies in the mailbox is open, too,
  driving_.progress();  // and a message may just have become a call
  const auto inside = [&](const std::byte* data) { return data >= begin && data < begin + bytes; };
  const bool used = std::any_of(state_.open.begin(), state_.open.end(), [&](const Operation* operation) {
    return std::any_of(operation->buffers.begin(), operation->buffers.end(),
                       [&](const Buffer& buffer) { return inside(buffer.input) || inside(buffer.output); });
  });
  return used || messages_.uses(begin, bytes);
}

void Engine::record_to(std::shared_ptr<recorder::Sink> sink) {
  if (state_.ending.is_stopped()) return;
  state_.driver.take_over();
  const Driving::HandOver after(driving_);
  if (!sink) return state_.recorder->remove_sink();
  state_.recorder->add_sink(std::move(sink));
  state_.sets.entries.for_each([this](const Entry& entry) {
    state_.recorder->text(entry.hash, entry.name);
  });  // where nothing was recorded before
}

detail::Counters Engine::metrics() {
  state_.driver.take_over();
  const Driving::HandOver after(driving_);
  detail::Counters metrics = state_.tally.counted();
  const control::ParticipantCounters& counters = state_.participant.counters();
  const CountsByKind shortcuts = state_.sets.shortcuts();
  add(shortcuts, metrics);
  for (const CollectiveCount& count : shortcuts) {
    metrics.shortcuts += count.calls;
    metrics.bytes_small += count.bytes;
  }
  metrics.submissions += metrics.shortcuts;
  metrics.tensors += metrics.shortcuts;
  metrics.driven_by_waiters += metrics.shortcuts;
  metrics.bytes += metrics.bytes_small;
  metrics.wait_ns = state_.sleeps_of_callers.histogram();
  metrics.signatures_sent = counters.declared;
  metrics.counts_published = counters.bare;
  metrics.plans = counters.plans;
  metrics.plans_voided = counters.plans_voided;
  const p2p::MessageCounters messages = state_.messenger.counters();
  metrics.messages_sent = messages.sent;
  metrics.message_bytes_sent = messages.bytes_sent;
  metrics.messages_received = messages.received;
  metrics.message_bytes_received = messages.bytes_received;
  if (state_.leader) {
    metrics.control_frames_sent = state_.leader->counters().frames_sent;
    metrics.control_frames_received = state_.leader->counters().frames_received;
    metrics.control_bytes_sent = state_.leader->counters().bytes_sent;
    metrics.wakeups_sent += state_.leader->counters().wakeups;
  }
  return metrics;
}

// ---------------------------------------------------------------- the end

void Engine::check_may_shut_down() {
  if (!driving_.in_callback()) return;
  throw Error(ErrorCode::invalid_argument,
              "a callback of on_done must not shut its context down, which would wait for the callback: the context "
              "stays open; shut it down outside the callback");
}

void Engine::leave_early() { leave(state_.open.patience.usual, Driving::kFarewell); }

bool Engine::has_open() {
  if (state_.ending.is_stopped()) return false;
  state_.driver.take_over();
  const Driving::HandOver after(driving_);
  return !state_.open.empty();
}

void Engine::shutdown(base::Duration patience) {
  if (leave(patience, patience)) return;
  KOLO_LOG(*state_.logger, warning) << "shutdown: not all ranks have left within " << base::to_seconds(patience)
                                    << " s; leaving without them";
}

bool Engine::leave(base::Duration patience, base::Duration for_others) {
  if (state_.ending.is_stopped()) return true;
  check_may_shut_down();
  bool all_left = true;  // as this thread saw it with the lock
  if (!faulted()) {
    // What runs here first: once all have left nobody can be asked to push (control::Starved) any more.
    const base::Time until = base::now() + patience;
    const auto ran = [this]() KOLO_REQUIRES(kDriving) {
      return faulted() || (state_.executor.open() == 0 && !driving_.device_moves() && !state_.messenger.has_unsent());
    };
    driving_.drive_until(ran, until);
    driving_.push({Command::leave, nullptr});
    all_left = false;
    const auto left = [this, &all_left]() KOLO_REQUIRES(kDriving) {
      all_left = state_.ending.is_closed();
      return faulted() || (state_.ending.is_closed() && state_.executor.open() == 0 && !driving_.device_moves() &&
                           !state_.executor.has_ready());
    };
    driving_.drive_until(left, std::min(until, base::now() + for_others));
    const auto has_nothing_open = [&]() KOLO_REQUIRES(kDriving) {
      return left() || (state_.open.empty() && state_.executor.open() == 0 && !driving_.device_moves());
    };
    if (!all_left) driving_.drive_until(has_nothing_open, until);
    all_left = all_left || faulted();
    if (!all_left) go();
  }
  stop(Status(ErrorCode::shut_down, "the context was shut down before this operation completed"));
  return all_left;
}

/// Tells the others that this rank serves them no longer. A leader does so until the log has said it, too.
void Engine::go() {
  {
    state_.driver.take_over();
    const Driving::HandOver after(driving_);
    control_loop_.go();
  }
  const auto is_over = [this]() KOLO_REQUIRES(kDriving) {
    if (faulted()) return true;
    if (!state_.leader) return state_.to_leader.empty();
    return state_.ending.is_closed() && state_.executor.open() == 0;
  };
  driving_.drive_until(is_over, base::now() + Driving::kFarewell);
  if (!state_.leader) return;
  state_.driver.take_over();
  const Driving::HandOver after(driving_);
  if (!faulted() && !state_.ending.is_closed()) state_.leader->end_below();
}

void Engine::abandon(ErrorCode code, const std::string& text) {
  if (state_.ending.is_stopped()) return;
  const std::string reason = base::one_line(text, kLongestReason);  // it goes to all ranks
  if (state_.ending.is_deserted()) return shutdown(Driving::kFarewell);
  if (state_.topology.size > 1) {  // else there is nobody to tell
    {
      state_.driver.take_over();
      const Driving::HandOver after(driving_);
      state_.ending.report(code, reason);
    }
    driving_.drive_until([this] { return faulted(); }, base::now() + Driving::kFarewell);
  }
  stop(Status(code, reason));
}

/// Delivers what is still to be said, ends the background thread, and fails what is open.
void Engine::stop(const Status& status) {
  if (!state_.ending.stop()) return;
  if (state_.leader) {
    driving_.drive_until([this]() KOLO_REQUIRES(kDriving) { return !state_.leader->blocked(); },
                         base::now() + Driving::kFarewell);
  }
  state_.driver.end();
  state_.driver.take_over();
  const DriverLock lock(state_.driver);
  // In peace nothing is open, and a device's communicators end together with their peers'.
  const bool in_peace =
      state_.ending.is_closed_for_all() && !faulted() && state_.executor.open() == 0 && !driving_.device_moves();
  if (!in_peace) {
    state_.executor.abort_on_cpu();
    state_.executor.abort_on_device();
  }
  state_.executor.forget();
  if (state_.device) state_.device->close();
  control_loop_.fail_all(faulted() ? state_.ending.status() : status);
  state_.executor.drop();
  state_.ending.abort_due = state_.ending.device_abort_due = false;
  state_.recorder->at(base::now());
  state_.recorder->record(recorder::Kind::stopped, 0, 0);
  state_.recorder->close(left_together() && !state_.ending.was_deserted());
  driving_.end_pass();
  driving_.run_deferred();
}

}  // namespace kolo::engine
