// SPDX-License-Identifier: Apache-2.0
//
// How a blocking call that may avoid the log waits for its peers (control/shortcut.hpp).
//
// First it looks for the peers' words without touching the engine: for as long as a rank with a CPU of its own takes to
// come, or until the ranks that share this CPU have had it. After that a peer may be waiting for something that this
// engine owes it (an asynchronous operation, a leader's relaying). So the caller drives the engine while it looks on,
// if nobody else does. When its patience is over it demotes the call to the log. There waits sleep, have a deadline,
// and find out who is missing.
#include <algorithm>
#include <chrono>

#include "engine/engine.hpp"

namespace kolo::engine {

using Verdict = control::Shortcut::Verdict;

namespace {

/// How often a CPU is given away before the engine is driven: every rank that shares it should have had it once.
constexpr int kYields = 64;
/// The longest patience, whatever KOLO_SPIN_US says: nobody looks at deadlines meanwhile.
constexpr std::chrono::milliseconds kPatience{10};

}  // namespace

bool Engine::take_shortcut(SetState& set, Sequence::Turn& turn, const data::SmallCall& call) {
  if (!turn.may_avoid_log) return false;
  SetShortcut& route = set.sequence.shortcut;
  control::Shortcut* const shortcut = route.begin(turn.call, call);
  if (shortcut == nullptr) return false;
  turn.has_spoken = true;
  if (await_verdict(*shortcut) != Verdict::together) return false;
  turn.has_avoided = true;
  route.finish(call);
  KOLO_LOG(*logger_, trace) << "done past the log: unnamed " << core::to_string(call.kind) << ", " << call.bytes()
                            << " bytes";
  return true;
}

Verdict Engine::await_verdict(control::Shortcut& shortcut) {
  const auto is_decided = [&shortcut] { return shortcut.look() != Verdict::undecided; };
  base::Waiter waiter(wait_policy_);
  for (int steps = wait_policy_.pauses + kYields; steps > 0; --steps) {
    if (is_decided()) return shortcut.look();
    waiter.step();
  }
  help_until(is_decided, base::now() + std::min<base::Duration>(wait_policy_.active, kPatience));
  return shortcut.demote();
}

}  // namespace kolo::engine
