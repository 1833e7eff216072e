// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/batches.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "control/ranges.hpp"
#include "control/sequencer/batch_space.hpp"

namespace kolo::control::sequencer {

using core::Round;
using core::SetId;
using core::TensorId;

void Batches::become_ready(Set& set, TensorId id, Round round, std::int32_t last) {
  Tensor& tensor = tensors_[id];
  require(!tensor.ready, "a tensor was submitted again before its batch");
  if (failures_.is_any_hopeless() || set.has_gone) {
    const Request request{set.number, tensor.name, round};
    if (failures_.is_hopeless(request)) return failures_.fail_hopeless(request);
    if (set.has_gone) return failures_.fail_without_members(request);
  }
  require(tensor.signature.has_value(), "a tensor was counted before it had a signature");
  tensor.round = round;
  tensor.last = last;
  tensor.ready = true;
  tensor.came = ++readied_;
  if (!tensor.planned) return ready_.enqueue(set, ready_.queued(set, id));
  if (set.plan->note_ready(tensor.batch)) ready_.enqueue(set, ReadySets::queued_batch(set, tensor.batch));
}

// ---------------------------------------------------------------- which goes next

void Batches::flush(Set& set, bool without_limit) {
  while (!set.queue.empty() && (without_limit || set.appended - set.completed < options_.open_batches)) {
    set.queue.be_fair(set.appended, options_.patience);
    const Queued first = set.queue.front();
    if (begins_step(set, first)) {
      plans_.end_step(set);  // may define a plan, and take the queue's front into it
    } else if (first.calls) {
      set.queue.pop_front();
      calls_.append_calls(set);
    } else if (first.planned) {
      set.queue.pop_front();
      append_planned(set, first.which);
    } else {
      append_batch(set);
    }
  }
  if (set.queue.empty()) return;
  set.held = readied_;
  set.held_calls = set.sequence.heard();
}

/// Whether this is a name's second entry in a step, in a set whose members do not call end_step. It also bounds the
/// size of a step that never ends.
bool Batches::begins_step(const Set& set, const Queued& next) const {
  if (set.planner.step_size() > options_.capacity) return true;
  if (set.steps > 0 || next.calls) return false;
  if (!next.planned) return set.planner.repeats(next.which);
  const std::vector<TensorId>& members = set.plan->batches[next.which];
  return std::any_of(members.begin(), members.end(), [&set](TensorId id) { return set.planner.repeats(id); });
}

void Batches::flush_waiting() {
  for (const SetId number : ready_.drain_waiting()) {
    Set& set = sets_.at(number);
    flush(set);
    ready_.keep(set);
  }
}

void Batches::flush_out(Set& set) {
  set.ends = true;
  if (set.plan) plans_.void_plan(set, PlanEnd::departed);
  flush(set, true);
}

bool Batches::waits_for_completion() const {
  const std::vector<SetId>& waiting = ready_.waiting();
  return std::any_of(waiting.begin(), waiting.end(), [this](SetId set) { return !sets_.at(set).queue.empty(); });
}

// ---------------------------------------------------------------- what is a batch

void Batches::append_planned(Set& set, std::uint32_t number) {
  const Tensor* newest = nullptr;
  for (const TensorId id : set.plan->batches[number]) append_member(set, id, newest);
  set.plan->ready[number] = 0;
  ++set.appended;
  log_.append(PlannedBatch{set.plan->number, number, awaited(set, *newest)});
}

void Batches::append_batch(Set& set) {
  BatchAppended batch{set.number, {}};
  BatchSpace space(options_.fusion_threshold);
  const Tensor* newest = nullptr;
  std::vector<std::int32_t> absent;
  if (!set.absent.empty()) absent = set.absent.without(tensors_[set.queue.front().which].name);
  while (!set.queue.empty()) {
    const Queued next = set.queue.front();
    if (!next.is_tensor() || !space.takes(tensors_[next.which])) break;
    if (!batch.members.empty() && begins_step(set, next)) break;
    if (!set.absent.empty() && set.absent.without(tensors_[next.which].name) != absent) break;
    space.add(tensors_[next.which]);
    batch.members.push_back(next.which);
    append_member(set, next.which, newest);
    set.queue.pop_front();
  }
  batch.last = awaited(set, *newest);
  ++set.appended;
  log_.append(std::move(batch));
}

void Batches::append_member(Set& set, TensorId id, const Tensor*& newest) {
  Tensor& tensor = tensors_[id];
  tensor.ready = false;
  tensors_.touch(id);
  set.planner.note(id);
  if (!set.absent.empty()) set.absent.consume(tensor.name);
  if (newest == nullptr || newest->came < tensor.came) newest = &tensor;
}

std::int32_t Batches::awaited(const Set& set, const Tensor& newest) {
  return newest.came > set.held ? newest.last : -1;
}

// ---------------------------------------------------------------- what never will be one

void Batches::give_up(Set& set) {
  set.has_gone = true;
  calls_.give_up(set);
  for (const Queued& item : set.queue.take_all()) {  // there is no plan, because one of its ranks has left
    if (item.calls) continue;
    tensors_[item.which].ready = false;
    failures_.fail_without_members({set.number, tensors_[item.which].name, tensors_[item.which].round});
  }
}

}  // namespace kolo::control::sequencer
