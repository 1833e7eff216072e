// SPDX-License-Identifier: Apache-2.0
#include "control/participant/publisher.hpp"

#include <algorithm>

namespace kolo::control::participant {

using core::Round;
using core::SetId;

void Publisher::declare(Name& named) {
  named.whole = true;
  ++counters_.declared;
  Declared declared{named.set->number, named.name, named.round, named.id, named.generation, {}, named.members};
  declared.variants.push_back({*named.pending, {rank_}});
  out_.messages.emplace_back(std::move(declared));
}

void Publisher::ask(const Name& named, double waited_s, bool deadline, bool asked) {
  const SetId set = named.set == nullptr ? core::kGlobalSet : named.set->number;
  Overdue overdue{
      rank_, {set, named.name, named.round, named.members, named.is_join, named.serial}, waited_s, deadline};
  if (const auto& submitted = named.whole ? named.pending : named.current) overdue.kind = submitted->kind;
  overdue.asked = asked;
  overdue.alone = deadline && named.fails_alone;
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
  if (!set.is_dropped || set.said_so || set.completed < set.run || set.join != kNoName) return;
  if (has_calls_in_flight(set)) return;
  const auto is_open = [this](const auto& name) { return names_[name.second].in_flight; };
  if (std::any_of(set.names.begin(), set.names.end(), is_open)) return;
  set.said_so = true;
  out_.counts.emplace_back(set.base + core::kDropped, CountWord{set.generation, 1});
}

}  // namespace kolo::control::participant
