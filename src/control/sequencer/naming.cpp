// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/naming.hpp"

#include <algorithm>
#include <utility>

#include "control/ranges.hpp"
#include "control/sequencer/opinions.hpp"

namespace kolo::control::sequencer {

using core::kNoTensor;
using core::Round;
using core::SetId;
using core::Signature;
using core::TensorId;

// ---------------------------------------------------------------- declarations

void Naming::on(Set& set, const Declared& message) {
  const bool known = message.id != kNoTensor;
  if (known && !tensors_.is_current(message.id, message.generation)) return;
  require(!known || is_id_of(message.id, message.set, message.name), "an id was declared under another name");
  require(known || tensors_.find(message.set, message.name) == kNoTensor, "a name was declared without its id");
  if (const Request request = request_of(message); failures_.is_hopeless(request)) {
    return failures_.fail_hopeless(request);
  }
  if (set.has_gone) return failures_.fail_without_members(request_of(message));
  on_complete(set, message);
}

void Naming::on_complete(Set& set, const Declared& message) {
  std::vector<Opinion> opinions = opinions_of(message, tensors_);
  if (!set.absent.empty()) hear_absent(set, message.name, opinions);
  if (opinions.size() > 1) {
    return fail_round(set, message, ErrorCode::mismatch, disagreement_about(sets_, request_of(message), opinions));
  }
  const Signature& signature = opinions.front().signature;
  require(!core::traits_of(signature.kind).makes_set, "a process set was asked for without its members");
  if (!set.absent.empty()) {
    const std::string why = why_not(sets_, set, request_of(message), signature, set.absent.without(message.name));
    if (!why.empty()) return fail_round(set, message, ErrorCode::invalid_argument, why);
  }
  if (message.id == kNoTensor) {
    newcomers_.push_back({message.set, message.name, message.round, signature, message.last});
    assign_ids();
    return;
  }
  if (tensors_[message.id].signature != signature) change_signature(set, message.id, signature);
  batches_.become_ready(set, message.id, message.round, message.last);
}

bool Naming::is_id_of(TensorId id, SetId set, const std::string& name) const {
  return tensors_.find(set, name) == id;  // reserved ids have no names
}

void Naming::fail_round(Set& set, const Declared& message, ErrorCode code, const std::string& sentence) {
  if (message.id != kNoTensor) {
    if (tensors_[message.id].planned) plans_.void_plan(set, PlanEnd::failed);
    tensors_[message.id].round = message.round;
  }
  failures_.fail(request_of(message), code, sentence);
  if (message.id != kNoTensor) return;
  set.over.forget_until(message.name, message.round);
  note_over(set, message.name, message.round);
}

void Naming::change_signature(Set& set, TensorId id, const Signature& signature) {
  if (tensors_[id].planned) plans_.void_plan(set, PlanEnd::signature);
  tensors_.change(id, signature);
  log_.append(Assigned{id, tensors_[id].generation, set.number, tensors_[id].name, without_names(signature)});
}

// ---------------------------------------------------------------- ids

void Naming::assign_ids() {
  while (!newcomers_.empty()) {
    const Newcomer& next = newcomers_.front();
    Set* const set = sets_.find(next.set);
    const Request request{next.set, next.name, next.round};
    if (set != nullptr && failures_.is_hopeless(request)) {
      failures_.fail_hopeless(request);  // no id: the ranks that submitted it have given it up
    } else if (set != nullptr) {
      const TensorId id = free_an_id();
      if (id == kNoTensor) return;
      tensors_.assign(id, next.set, next.name, next.signature);
      log_.append(Assigned{id, tensors_[id].generation, next.set, next.name, without_names(next.signature)});
      batches_.become_ready(*set, id, next.round, next.last);
    }
    newcomers_.pop_front();
  }
}

TensorId Naming::free_an_id() {
  const TensorId id = tensors_.free_id();
  if (id != kNoTensor) return id;
  const TensorId oldest = tensors_.least_recently_used();
  if (oldest != kNoTensor) {
    evict(oldest);
    return oldest;
  }
  // Ready members of incomplete planned batches would never be appended by themselves.
  for (auto& [number, set] : sets_.all()) {
    if (set.plan) plans_.void_plan(set, PlanEnd::evicted);
  }
  return kNoTensor;
}

void Naming::evict(TensorId id) {
  Set& set = sets_.at(tensors_[id].set);
  if (tensors_[id].planned) plans_.void_plan(set, PlanEnd::evicted);
  log_.append(Evicted{id, tensors_[id].generation});
  set.absent.restart(tensors_[id].name);
  note_over(set, tensors_[id].name, tensors_[id].round);
  tensors_.release(id);
  ++log_.counters().evictions;
}

void Naming::note_over(Set& set, const std::string& name, Round round) {
  set.over.note(name, round, log_.size(), set.appended, set.completed);
}

// ---------------------------------------------------------------- newcomers

bool Naming::is_newcomer(SetId set, const std::string& name) const {
  return std::any_of(newcomers_.begin(), newcomers_.end(),
                     [&](const Newcomer& one) { return one.set == set && one.name == name; });
}

void Naming::fail_newcomers(SetId set) {
  for (const Newcomer& newcomer : std::exchange(newcomers_, {})) {
    if (newcomer.set == set) {
      failures_.fail_without_members({newcomer.set, newcomer.name, newcomer.round});
    } else {
      newcomers_.push_back(newcomer);
    }
  }
}

}  // namespace kolo::control::sequencer
