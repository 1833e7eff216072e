// SPDX-License-Identifier: Apache-2.0
#include "control/participant/publisher.hpp"

#include <algorithm>

namespace kolo::control::participant {

using core::Round;
using core::SetId;

void Publisher::declare(Slot& slot) {
  slot.whole = true;
  ++counters_.declared;
  Declared declared{slot.set->number, slot.name, slot.round, slot.id, slot.generation, {}, slot.members};
  declared.variants.push_back({*slot.pending, {rank_}});
  out_.messages.emplace_back(std::move(declared));
}

void Publisher::ask(const Slot& slot, double waited_s, bool deadline, bool asked) {
  const SetId set = slot.set == nullptr ? core::kGlobalSet : slot.set->number;
  Overdue overdue{rank_, {set, slot.name, slot.round, slot.members, slot.is_join, slot.serial}, waited_s, deadline};
  if (const auto& submitted = slot.whole ? slot.pending : slot.current) overdue.kind = submitted->kind;
  overdue.asked = asked;
  out_.messages.emplace_back(std::move(overdue));
}

void Publisher::ask(const Set& set) {
  out_.messages.emplace_back(Overdue{rank_, {set.number, kSequence, set.sequence.made}});
}

void Publisher::publish_completed(const Set& set) {
  if (set.completed == 0) return;
  out_.counts.emplace_back(set.base + core::kCompleted, CountWord{set.generation, set.completed});
}

void Publisher::count_steps(Set& set, std::uint64_t steps) {
  if (std::exchange(set.steps, steps) == steps) return;
  out_.counts.emplace_back(set.base + core::kSteps, CountWord{set.generation, steps});
}

void Publisher::finish_dropped(Set& set) {
  if (!set.is_dropped || set.said_so || set.completed < set.run || set.join != kNoSlot) return;
  if (has_calls_in_flight(set)) return;
  const auto is_open = [this](const auto& name) { return slots_[name.second].in_flight; };
  if (std::any_of(set.names.begin(), set.names.end(), is_open)) return;
  set.said_so = true;
  out_.counts.emplace_back(set.base + core::kDropped, CountWord{set.generation, 1});
}

}  // namespace kolo::control::participant
