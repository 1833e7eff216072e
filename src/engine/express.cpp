// SPDX-License-Identifier: Apache-2.0
//
// How a blocking call that may avoid the log waits for its peers (control/express.hpp).
//
// First it looks for the peers' words without touching the engine: for as long as a rank with a CPU of its own takes to
// come, or until the ranks that share this CPU have had it. After that a peer may be waiting for something that this
// engine owes it (an asynchronous operation, a leader's relaying). So the caller drives the engine while it looks on,
// if nobody else does. When its patience is over it demotes the call to the log. There waits sleep, have a deadline,
// and find out who is missing.
#include <algorithm>
#include <chrono>

#include "engine/submitter.hpp"

namespace kolo::engine {

using Verdict = control::Express::Verdict;

namespace {

/// How often a CPU is given away before the engine is driven: every rank that shares it should have had it once.
constexpr int kYields = 64;
/// The longest patience, whatever KOLO_SPIN_US says: nobody looks at deadlines meanwhile.
constexpr std::chrono::milliseconds kPatience{10};

}  // namespace

bool Submitter::express(SetState& set, Sequence::Reservation& reserved, const ExpressCall& call) {
  if (!reserved.may_avoid_log) return false;
  ExpressRoute& route = set.sequence.express;
  control::Express* const express = route.begin(reserved.call, call);
  if (express == nullptr) return false;
  reserved.has_spoken = true;
  if (await_verdict(*express) != Verdict::together) return false;
  reserved.has_avoided = true;
  route.finish(call);
  KOLO_LOG(*engine_.logger, trace) << "done past the log: unnamed " << core::to_string(call.kind) << ", "
                                   << call.bytes() << " bytes";
  return true;
}

Verdict Submitter::await_verdict(control::Express& express) {
  const auto is_decided = [&express] { return express.look() != Verdict::undecided; };
  base::Waiter waiter(engine_.wait_policy);
  for (int steps = engine_.wait_policy.pauses + kYields; steps > 0; --steps) {
    if (is_decided()) return express.look();
    waiter.step();
  }
  driving_.help_until(is_decided, base::now() + std::min<base::Duration>(engine_.wait_policy.active, kPatience));
  return express.demote();
}

}  // namespace kolo::engine
