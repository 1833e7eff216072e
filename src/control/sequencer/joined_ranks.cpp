// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/joined_ranks.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "control/ranges.hpp"
#include "control/sentences.hpp"

namespace kolo::control::sequencer {

using core::kNoTensor;
using core::Round;
using core::SetId;
using core::TensorId;

void JoinedRanks::on(const Joined& message) {
  Set* const found = sets_.find(message.set);
  if (found == nullptr) return;
  Set& set = *found;
  require(std::binary_search(set.members.begin(), set.members.end(), message.rank),
          "a rank joins in a process set that it is no member of");
  if (set.has_departed) return end_join_without(set);
  require(!set.absent.has(message.rank), "a rank joins that has joined");
  if (set.plan) plans_.void_plan(set, PlanEnd::joined);
  RankJoined entry{set.number, message.rank, {}, message.counts, message.sequence};
  Absentees::Submissions submissions;
  for (const Joined::Submission& submission : message.submissions) {
    if (is_over(set, submission, message.read)) continue;
    entry.submissions.push_back(submission.name);
    Joined::Submission& listed = submissions[submission.name] = submission;
    // The id was evicted, and the rank has not read that yet, or could not submit again.
    if (submission.id != kNoTensor && tensors_.find(set.number, submission.name) == kNoTensor) listed.round = 1;
  }
  log_.append(std::move(entry));
  set.absent.add(message.rank, std::move(submissions), message.counts);
  set.sequence.join(message.rank, message.sequence);
  set.last = message.rank;
  set.most_steps = std::max(set.most_steps, message.steps);
  set.most_calls = std::max(set.most_calls, message.calls);
  if (set.absent.size() < set.members.size()) return;
  ending_.push_back(set.number);
  complete_rest(set);
}

bool JoinedRanks::is_over(const Set& set, const Joined::Submission& submission, std::uint64_t read) const {
  const TensorId id = tensors_.find(set.number, submission.name);
  if (id != kNoTensor) return tensors_[id].round >= submission.round && !tensors_[id].ready;
  return set.over.is_over(submission.name, submission.round, read);
}

void JoinedRanks::complete_rest(Set& set) {
  std::set<std::string> names;
  for (const auto& [rank, submissions] : set.absent.submissions()) {
    for (const auto& [name, submission] : submissions) names.insert(name);
  }
  for (const std::string& name : names) {
    const Round round = set.absent.round_of(name);  // as of now: making space for the last one may have evicted its id
    const TensorId id = tensors_.find(set.number, name);
    const bool is_known = id != kNoTensor;
    if (round == 0 || (is_known ? tensors_[id].round >= round : naming_.is_newcomer(set.number, name))) continue;
    naming_.on_complete(set, {set.number, name, round, id, is_known ? tensors_[id].generation : std::uint16_t{0}, {}});
  }
}

void JoinedRanks::end_joins() {
  for (const SetId number : std::exchange(ending_, {})) {
    Set& set = sets_.at(number);
    if (!set.absent.are_done() || !set.sequence.is_done()) {
      ending_.push_back(number);
      continue;
    }
    log_.append(JoinEnded{number, set.last, std::max(set.most_steps, set.steps), ErrorCode::ok, {}, set.most_calls});
    forget_join(set);
  }
}

void JoinedRanks::forget_join(Set& set) {
  ++set.joins;
  set.absent.clear();
  set.sequence.end_join();
  set.most_steps = 0;
  set.most_calls = 0;
  questions_.forget(key_of(join_in(set)));
}

void JoinedRanks::end_join_without(Set& set) {
  // Requests that all had submitted before run, also those that wait for an id.
  for (std::uint64_t before = ~std::uint64_t{0}; before != log_.size();) {
    before = log_.size();
    batches_.flush(set, true);
    naming_.assign_ids();
  }
  std::erase(ending_, set.number);
  const std::vector<std::int32_t> absent = departures_.departed_of(set.members);
  naming_.fail_newcomers(set.number);
  batches_.give_up(set);
  const Leavers culprits = departures_.first_of(absent);
  const std::string why =
      culprits.first.empty() ? nothing_more(departures_.first()) : endless(join_of(set.words), culprits);
  log_.append(JoinEnded{set.number, -1, 0, ErrorCode::rank_lost, why, set.sequence.last()});
  forget_join(set);
  questions_.fail_questions();
}

}  // namespace kolo::control::sequencer
