// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/set_maker.hpp"

#include <algorithm>
#include <string>

#include "control/ranges.hpp"
#include "control/sentences.hpp"
#include "control/sequencer/opinions.hpp"

namespace kolo::control::sequencer {

using core::kNoTensor;
using core::TensorId;

void SetMaker::make_set(const Declared& message) {
  const Request request = request_of(message);
  questions_.forget(key_of(request));
  if (failures_.is_hopeless(request)) return failures_.fail_hopeless(request);
  const std::vector<Opinion> opinions = opinions_of(message, tensors_);
  if (opinions.size() > 1) {
    return failures_.fail(request, ErrorCode::mismatch, disagreement_about(sets_, request, opinions));
  }
  for (const std::int32_t member : message.members) {
    if (memberships_[static_cast<std::size_t>(member)] < options_.sets_per_rank) continue;
    return failures_.fail(request, ErrorCode::invalid_argument,
                          too_many_sets(sets_.subject_of(request), member, options_.sets_per_rank));
  }
  const TensorId base = tensors_.reserve_row(sets_.next_number());
  if (base == kNoTensor) {
    return failures_.fail(request, ErrorCode::invalid_argument,
                          sets_.subject_of(request) + " cannot be made: there are " + std::to_string(core::kMostSets) +
                              " already; drop those that are not used any more");
  }
  Set& set = sets_.add(base, message.members);
  set.order = opinions.front().signature.ranks;
  set.words = group_of(message.name, set.members);
  log_.append(SetAdded{set.number, base, tensors_[base].generation, set.order, message.name});
  for (const std::int32_t member : set.members) {
    ++memberships_[static_cast<std::size_t>(member)];
    note_departed(set, member);
  }
}

void SetMaker::note_departed(Set& set, std::int32_t rank) {
  set.has_departed = set.has_departed || departures_.has_departed(rank);
  if (departures_.has_departed(rank)) calls_.cut_sequence(set, 0, 0);
  set.has_gone = set.has_gone || departures_.has_gone(rank);
}

void SetMaker::remove_set(Set& set) {
  const std::vector<TensorId> ids = tensors_.of_set(set.number);
  const auto is_ready = [this](TensorId id) { return tensors_[id].ready; };
  require(set.absent.empty(), "a process set was dropped by a rank that has joined");
  require(set.sequence.empty(), "a process set was dropped with a call in flight");
  require(set.queue.empty() && std::none_of(ids.begin(), ids.end(), is_ready),
          "a process set was dropped with something in flight");
  if (set.plan) plans_.void_plan(set, PlanEnd::departed);
  log_.append(SetRemoved{set.number});
  questions_.forget(set.number);
  failures_.forget(set.number);
  for (const TensorId id : ids) tensors_.release(id);
  tensors_.release_row(set.base);
  for (const std::int32_t member : set.members) --memberships_[static_cast<std::size_t>(member)];
  ready_.forget(set);
  sets_.erase(set.number);
}

}  // namespace kolo::control::sequencer
