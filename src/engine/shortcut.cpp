// SPDX-License-Identifier: Apache-2.0
//
// How a blocking call that may avoid the log waits for its peers (control/shortcut.hpp).
//
// First the caller polls the peers' words without touching the engine: for as long as a rank with a CPU of its own
// needs, or until the ranks that share this CPU have run. After that a peer may wait for this engine (an asynchronous
// operation, a leader's relaying), so the caller drives the engine while it polls, if no other thread drives. When its
// patience is over, it demotes the call to the log, where waits sleep, have a deadline, and name the missing ranks.
#include <algorithm>
#include <chrono>

#include "engine/submitter.hpp"

namespace kolo::engine {

using Verdict = control::Shortcut::Verdict;

namespace {

/// How often a CPU is given away before the engine is driven: every rank that shares it should have had it once.
constexpr int kYields = 64;
/// The longest patience, whatever KOLO_SPIN_US is, because deadlines are not checked meanwhile.
constexpr std::chrono::milliseconds kPatience{10};

}  // namespace

bool Submitter::take_shortcut(SetState& set, Sequence::Reservation& reserved, const data::SmallCall& call) {
  if (!reserved.may_avoid_log) return false;
  SetShortcut& route = set.sequence.shortcut;
  control::Shortcut* const shortcut = route.begin(reserved.call, call);
  if (shortcut == nullptr) return false;
  reserved.has_spoken = true;
  if (await_verdict(*shortcut) != Verdict::together) return false;
  reserved.has_avoided = true;
  route.finish(call);
  engine_.recorder->count_fast(set.number, reserved.call);
  KOLO_LOG(*engine_.logger, trace) << "done past the log: unnamed " << core::to_string(call.kind) << ", "
                                   << call.bytes() << " bytes";
  return true;
}

Verdict Submitter::await_verdict(control::Shortcut& shortcut) {
  const auto is_decided = [&shortcut] { return shortcut.look() != Verdict::undecided; };
  base::Waiter waiter(engine_.wait_policy);
  for (int steps = engine_.wait_policy.pauses + kYields; steps > 0; --steps) {
    if (is_decided()) return shortcut.look();
    waiter.step();
  }
  driving_.help_until(is_decided, base::now() + std::min<base::Duration>(engine_.wait_policy.active, kPatience));
  return shortcut.demote();
}

}  // namespace kolo::engine
