// SPDX-License-Identifier: Apache-2.0
//
// Unnamed calls that need not go by the log: what an engine adds to control/express.hpp and express_routes.hpp is
// how to wait.
//
// A peer that is on its way is looked for without touching the engine: for about as long as it takes a rank with a CPU
// of its own to get there, or as many turns as it takes ranks that share CPUs to have had theirs. After that the peer
// may be waiting for something this engine owes it (an asynchronous operation, a leader's relaying), so the caller
// drives the engine, if nobody does, while it looks. When a waiter's patience is over the call is demoted to the log,
// where waiting costs nothing, has a deadline, and finds out who is missing.
//
// Once all have spoken a call cannot be demoted any more. Where it has a second meeting a rank waits in the same
// manner, but looks for as long as the peers' copies take before it drives - they need nothing of this engine
// meanwhile, and what others need its background thread does - and to its deadline: that peers take long to read is no
// fault, that they died is, and ends the wait.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "control/sentences.hpp"
#include "engine/engine.hpp"

namespace kolo::engine {

using Verdict = control::Express::Verdict;

namespace {

/// Turns given away before the engine is driven: every rank that shares this CPU should have had one.
constexpr int kTurnsGivenAway = 64;
/// A peer that copies is looked for once more for so many bytes: a look lasts 40 us or more.
constexpr std::size_t kBytesPerLook = 256 << 10;
/// The longest patience, whatever KOLO_SPIN_US says: nobody looks at deadlines meanwhile.
constexpr std::chrono::milliseconds kPatience{10};

/// Whom a rank waits for that has spoken: the peers that have not finished, or, where all have, any that still writes.
std::vector<std::int32_t> ranks_behind(SetState& set) {
  std::vector<std::int32_t> unfinished;
  std::vector<std::int32_t> others;
  for (int rank = 0; rank < set.topology.size; ++rank) {
    if (rank == set.topology.rank) continue;
    others.push_back(set.members[static_cast<std::size_t>(rank)]);
    if (!set.unnamed.express().has_finished(rank)) unfinished.push_back(others.back());
  }
  std::vector<std::int32_t>& behind = unfinished.empty() ? others : unfinished;
  std::sort(behind.begin(), behind.end());
  return behind;
}

}  // namespace

bool Engine::express(SetState& set, const ExpressCall& call, std::optional<std::chrono::nanoseconds> timeout) {
  UnnamedCalls& calls = set.unnamed;
  if (!calls.begin(call)) return false;
  if (await_verdict(calls.express()) != Verdict::together) return false;
  const auto await = [&](const std::function<bool()>& there) { await_peers(set, call, there, timeout); };
  try {
    calls.routes().run(call, std::cref(await));  // by reference: it does not fit into the function's own room
  } catch (const PeerLost& lost) {
    give_up(lost.rank(), lost.code(), std::string(lost.status().message()));
    throw;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::transport) give_up(call, error);
    throw;
  }
  note_expressed(calls, call);
  return true;
}

void Engine::note_expressed(UnnamedCalls& calls, const ExpressCall& call) {
  KOLO_LOG(*logger_, trace) << "done past the log: unnamed " << core::to_string(call.kind) << ", " << call.bytes()
                            << " bytes";
  calls.note_done(call.bytes());
}

/// Looks for as long as a peer that is on its way takes; whether it came.
template <class There>
bool Engine::look_out(There there) {
  base::Waiter waiter(wait_policy_);
  for (int steps = wait_policy_.pauses_before_yield + kTurnsGivenAway; steps > 0; --steps) {
    if (there()) return true;
    waiter.step();
  }
  return there();
}

Verdict Engine::await_verdict(control::Express& express) {
  const auto decided = [&express] { return express.look() != Verdict::undecided; };
  if (!look_out(decided)) {
    help_until(decided, base::now() + std::min<base::Duration>(wait_policy_.active, kPatience));
  }
  return express.demote();
}

// ---------------------------------------------------------------- the second meeting

void Engine::await_peers(SetState& set, const ExpressCall& call, const std::function<bool()>& there,
                         std::optional<std::chrono::nanoseconds> timeout) {
  for (std::size_t looks = 0; looks <= call.bytes() / kBytesPerLook; ++looks) {
    if (look_out(there)) return;
  }
  const base::Duration patience =
      timeout ? std::chrono::duration_cast<base::Duration>(*timeout) : base::from_seconds(settings_.timeout_s);
  const base::Time until = base::after(base::now(), patience);
  while (!there()) {
    check_usable();
    if (base::now() >= until) {
      const std::vector<std::int32_t> behind = ranks_behind(set);
      give_up(call, Error(ErrorCode::timeout, core::describe_ranks(behind) + (behind.size() == 1 ? " has" : " have") +
                                                  " not copied its peers' data within " +
                                                  control::spell_seconds(base::to_seconds(patience))));
    }
    help_until(there, std::min(until, base::now() + kPatience));
  }
}

void Engine::give_up(const ExpressCall& call, const Error& error) {
  give_up(topology_.rank, error.code(),
          "unnamed " + std::string(core::to_string(call.kind)) + ": " + std::string(error.status().message()));
}

/// A call cannot be finished because of `rank`, and the peers are in the middle of it: a fatal error. If this rank
/// hears of a better reason meanwhile, such as a peer's death, that one is taken.
void Engine::give_up(int rank, ErrorCode code, const std::string& reason) {
  const auto is_over = [this] { return faulted(); };
  help_until(is_over, base::now() + kPatience);
  if (!faulted()) {
    driver_.take_over();
    const HandOver after(*this);
    announce_loss(rank, code, reason);
  }
  while (!faulted()) help_until(is_over, base::now() + kPatience);
  check_usable();
}

}  // namespace kolo::engine
