// SPDX-License-Identifier: Apache-2.0
#include "control/participant/planned_parts.hpp"

#include <algorithm>

#include "control/ranges.hpp"

namespace kolo::control::participant {

using core::TensorId;

void PlannedParts::report_awaited() {
  for (auto& [number, plan] : plans_) {
    for (PlannedPart& part : plan.batches) {
      if (!part.partial() || part.reported) continue;
      part.reported = true;
      --unreported_;
      if (plan.owner->join == kNoName) publisher_.say(awaited_part(part));  // else it lacks nothing
    }
  }
}

PartAwaited PlannedParts::awaited_part(const PlannedPart& part) const {
  PartAwaited message{rank_, part.plan, part.number, {}, 0};
  for (const NameId member : part.members) {
    const Name& named = names_[member];
    if (named.in_flight) continue;
    if (message.lacking.empty()) message.round = named.round + 1;
    message.lacking.push_back(named.id);
  }
  return message;
}

bool PlannedParts::has_plan(const Set& set) const {
  return std::any_of(plans_.begin(), plans_.end(), [&](const auto& plan) { return plan.second.owner == &set; });
}

void PlannedParts::on(const PlanDefined& entry) {
  ++counters_.plans;
  Set& set = names_.set_in_log(entry.set);
  require(plans_.count(entry.plan) == 0, "a plan was defined that there is already");
  require(set.absent.empty(), "a plan was defined while a rank was absent");
  Plan& plan = plans_[entry.plan];
  plan.set = entry.set;
  plan.owner = &set;
  if (!set.member) return;
  plan.batches.resize(entry.batches.size());  // not resized later: names point into it
  for (std::size_t i = 0; i < entry.batches.size(); ++i) {
    PlannedPart& part = plan.batches[i];
    part.plan = entry.plan;
    part.number = static_cast<std::uint32_t>(i);
    for (const TensorId id : entry.batches[i]) {
      const NameId named = names_.name_in_log(set, id);
      require(names_[named].part == nullptr, "a tensor stands in two planned batches");
      names_[named].part = &part;
      part.members.push_back(named);
    }
    for (const NameId member : part.members) {
      if (names_[member].in_flight) enter(part);
    }
  }
}

void PlannedParts::on(const PlanVoided& entry, std::vector<Action>& actions) {
  ++counters_.plans_voided;
  const auto found = plans_.find(entry.plan);
  require(found != plans_.end(), "there is no such plan");
  for (PlannedPart& part : found->second.batches) {
    consume(part);
    for (const NameId member : part.members) names_[member].part = nullptr;
  }
  const bool member = !found->second.batches.empty();
  plans_.erase(found);
  if (member) actions.emplace_back(DropPlan{entry.plan + 1});
}

void PlannedParts::on(const PlannedBatch& entry, std::vector<Action>& actions) {
  const auto found = plans_.find(entry.plan);
  require(found != plans_.end(), "there is no such plan");
  Plan& plan = found->second;
  if (plan.batches.empty()) return;
  require(entry.number < plan.batches.size(), "there is no such batch of the plan");
  PlannedPart& part = plan.batches[entry.number];
  for (const NameId member : part.members) names_.run(member);
  consume(part);
  ++plan.owner->run;
  ++counters_.batches;
  ++counters_.planned_batches;
  actions.emplace_back(RunBatch{plan.set, part.members, entry.plan + 1, entry.number, entry.last});
}

}  // namespace kolo::control::participant
