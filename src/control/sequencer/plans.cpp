// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/plans.hpp"

#include <algorithm>
#include <utility>

#include "control/ranges.hpp"

namespace kolo::control::sequencer {

using core::TensorId;

void Plans::end_step(Set& set) {
  const auto batches = set.planner.end_step();
  if (!batches || !options_.plan || set.has_left || set.ends || !set.absent.empty()) return;
  if (set.plan) void_plan(set, PlanEnd::new_plan);
  define_plan(set, *batches);
}

void Plans::define_plan(Set& set, const Planner::Batches& batches) {
  Plan& plan = set.plan.emplace(next_plan_++, batches);
  plan_owner_[plan.number] = set.number;
  log_.append(PlanDefined{plan.number, set.number, batches});
  for (std::uint32_t number = 0; number < batches.size(); ++number) {
    std::int32_t& highest = plan.priorities[number] = tensors_[batches[number].front()].priority;
    for (const TensorId id : batches[number]) {
      tensors_[id].planned = true;
      tensors_[id].batch = number;
      highest = std::max(highest, tensors_[id].priority);
    }
  }
  // Members that are ready already count for the plan's first round.
  for (const Queued& item : set.queue.take_all()) {
    if (item.calls || !tensors_[item.which].planned) {
      ready_.enqueue(set, item);
    } else if (const std::uint32_t batch = tensors_[item.which].batch; plan.note_ready(batch)) {
      Queued whole = ready_.queued_batch(set, batch);
      whole.since = item.since;
      ready_.enqueue(set, whole);
    }
  }
}

void Plans::void_plan(Set& set, PlanEnd why) {
  const Plan plan = std::move(*set.plan);
  set.plan.reset();
  plan_owner_.erase(plan.number);
  log_.append(PlanVoided{plan.number, why});
  for (const Queued& item : set.queue.take_all()) {
    if (!item.planned) {
      ready_.enqueue(set, item);
      continue;
    }
    for (const TensorId id : plan.batches[item.which]) {
      Queued member = ready_.queued(set, id);
      member.since = item.since;
      ready_.enqueue(set, member);
    }
  }
  for (std::size_t number = 0; number < plan.batches.size(); ++number) {
    const bool complete = plan.is_complete(number);
    for (const TensorId id : plan.batches[number]) {
      tensors_[id].planned = false;
      if (tensors_[id].ready && !complete) ready_.enqueue(set, ready_.queued(set, id));
    }
  }
}

void Plans::break_plan(Set& set, std::uint32_t batch, const std::vector<TensorId>& lacking) {
  set.planner.learn_cut(set.plan->batches[batch], lacking);
  ++log_.counters().plans_broken;
  void_plan(set, PlanEnd::waited_for);
}

void Plans::on(const Interest& message) {
  const auto owner = plan_owner_.find(message.plan);
  if (owner == plan_owner_.end()) return;
  Set& set = sets_.at(owner->second);
  require(message.batch < set.plan->batches.size(), "there is no such batch of the plan");
  for (const TensorId id : message.lacking) {
    require(tensors_.is_planned(id, set.number, message.batch), "a planned batch lacks what is not in it");
  }
  // The lacking member may have come meanwhile, because a count can overtake a message.
  if (tensors_[message.lacking.front()].round >= message.round) return;
  break_plan(set, message.batch, message.lacking);
}

void Plans::unblock(Set& set, TensorId id) {
  const Tensor& tensor = tensors_[id];
  if (!tensor.ready || !tensor.planned) return;
  const std::vector<TensorId>& batch = set.plan->batches[tensor.batch];
  std::vector<TensorId> lacking;
  for (const TensorId member : batch) {
    if (!tensors_[member].ready) lacking.push_back(member);
  }
  if (!lacking.empty()) break_plan(set, tensor.batch, lacking);
}

}  // namespace kolo::control::sequencer
