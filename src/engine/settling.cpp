// SPDX-License-Identifier: Apache-2.0
//
// Who leaves unnamed calls early (control/express.hpp) settles them when it must: before a call that needs a line that
// is still in use, or one that all must have begun. Then it waits for the verdict (express.cpp), and where that is
// `by log` it submits the call and waits for its end. Meanwhile nobody else has the rank's unnamed calls. While nobody
// has them, the driver settles what peers ask for (`settle_left_calls`), one call at a time, without waiting for a
// verdict.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace kolo::engine {

using Verdict = control::Express::Verdict;

/// Settles the calls up to that one; whether it could until the time had come. Throws Error when there is a fatal one.
bool Engine::settle_up_to(SetState& set, core::Round last, std::optional<base::Time> until) {
  const control::Express& express = set.unnamed.express();
  while (express.settled() < last) {
    if (await_verdict(set, 0) == Verdict::together) {
      set.unnamed.settle();
      continue;
    }
    check_usable();
    const OperationPtr operation = make_left_operation(set, Operation::Settles::by_caller);
    submit(operation, true);
    wait(*operation, until);
    if (!operation->done()) return false;
    check_usable();
    set.unnamed.settle_by_log(operation->outcome());
  }
  return true;
}

/// The oldest unsettled call, for the log.
OperationPtr Engine::make_left_operation(SetState& set, Operation::Settles settles) {
  OperationPtr operation = set.unnamed.left().make_operation(set.unnamed.express().settled() + 1, set.topology);
  operation->entry = &set.names.unnamed();
  operation->engine = weak_from_this();
  operation->settles = settles;
  return operation;
}

void Engine::decline_express(SetState& set) {
  settle_all(set, std::nullopt);
  if (set.unnamed.decline()) decide(set);
}

bool Engine::settle_all(SetState& set, std::optional<base::Time> until) {
  return !set.unnamed.has_left() || settle_up_to(set, set.unnamed.last_left(), until);
}

/// For the end, when nobody else makes calls.
void Engine::settle_all_sets(base::Time until) {
  std::vector<SetStatePtr> ahead;
  {
    driver_.take_over();
    const HandOver after(*this);
    progress();  // what lies in the mailbox is known, too
    ahead = ahead_;
  }
  for (const SetStatePtr& set : ahead) {
    Entry* entry = nullptr;  // the driver may have it
    help_until([&] { return faulted() || entry != nullptr || (entry = set->names.try_claim_unnamed()) != nullptr; },
               until);
    if (entry == nullptr) continue;
    bool is_settled = false;
    try {
      is_settled = settle_all(*set, until);
    } catch (const Error&) {
      // Everything has failed.
    }
    // What is still in flight has the unnamed calls.
    if (is_settled) set->names.give_back(*entry);
    report_left_failure(*set);
  }
}

/// For who makes no call that could tell it.
void Engine::report_left_failure(SetState& set) {
  const Status failure = set.unnamed.left().take_failure();
  if (failure.ok()) return;
  errands_.log(LogLevel::error, "a call that had returned already has failed since: " + failure.message());
}

/// What peers ask for, of sets in which nobody makes a call; and of those that are closed or dropped everything.
bool Engine::settle_left_calls(base::Time now) {
  if (faulted() || ending_.is_closed()) return false;
  bool moved = false;
  for (std::size_t i = 0; i < ahead_.size(); ++i) {
    const SetStatePtr set = ahead_[i];
    if (!set->unnamed.is_wanted()) continue;
    Entry* const entry = set->names.try_claim_unnamed();
    if (entry == nullptr) continue;
    moved = true;
    set->unnamed.express().clear_wanted();
    if (!settle_left_calls(*set, now)) set->names.give_back(*entry);
  }
  return moved;
}

/// Settles what needs no waiting. True: a call has been submitted to the log, and its end gives the claim back.
bool Engine::settle_left_calls(SetState& set, base::Time now) {
  UnnamedCalls& calls = set.unnamed;
  const bool is_dropped = std::find(dropping_.begin(), dropping_.end(), set.number) != dropping_.end();
  while (calls.has_left()) {
    if (calls.express().look() == Verdict::undecided && calls.is_open() && !is_dropped) return false;
    if (decide(set) == Verdict::together) {
      calls.settle();
      continue;
    }
    calls.express().want();  // and goes on after that
    admit(make_left_operation(set, Operation::Settles::by_driver), now);
    return true;
  }
  if (is_dropped) {
    dropping_.erase(std::find(dropping_.begin(), dropping_.end(), set.number));
    report_left_failure(set);
    participant_.drop(set.number);
    if (dropping_.empty()) {
      for (OperationPtr& request : std::exchange(held_back_, {})) {
        if (!request->done()) say_request(std::move(request));
      }
    }
  }
  return false;
}

/// Whether that is due. Asked after announcing sleep.
bool Engine::owes_left_calls() const noexcept {
  if (faulted() || ending_.is_closed()) return false;
  return std::any_of(ahead_.begin(), ahead_.end(),
                     [](const SetStatePtr& set) { return set->unnamed.is_wanted() && set->names.is_unnamed_free(); });
}

/// Drops the set for this rank; calls that it has left there are settled first.
void Engine::drop(core::SetId number) {
  SetState& set = sets_.state_of(number);
  if (!set.unnamed.has_left()) return participant_.drop(number);
  dropping_.push_back(number);
  set.unnamed.express().want();
}

/// After the unnamed calls have been given back: somebody may have asked meanwhile.
void Engine::look_after_left_calls(SetState& set) {
  if (set.unnamed.is_wanted()) driver_.ring_if_asleep();
}

}  // namespace kolo::engine
