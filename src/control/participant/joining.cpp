// SPDX-License-Identifier: Apache-2.0
#include "control/participant/joining.hpp"

#include <algorithm>
#include <utility>

#include "control/ranges.hpp"

namespace kolo::control::participant {

using core::Round;

NameId Joining::join(Set& set, Round calls, bool counts) {
  const NameId number = set.join = names_.open_unnamed(set, "");
  names_[number].is_join = names_[number].in_flight = true;
  names_[number].round = set.joins + 1;
  calls_.speak_of_calls();
  calls = std::max(calls, set.sequence.made);
  Joined message{rank_, set.number, counters_.log_entries, set.steps, {}, calls, counts, set.sequence.made};
  Sequences::pass(set.sequence, calls);
  for (const NameId member : names_.in_flight_of(set)) {
    const Name& named = names_[member];
    message.submissions.push_back({named.name, named.round, named.id, named.whole ? *named.pending : *named.current});
  }
  publisher_.say(std::move(message));
  return number;
}

void Joining::run_without_some(Set& set, NameId number, RunBatch& batch) {
  Name& named = names_[number];
  std::vector<std::int32_t> absent = set.absent.without(named.name);
  require(batch.members.size() == 1 || absent == batch.absent, "other ranks contribute to one part of a batch");
  batch.absent = std::move(absent);
  batch.uncounted = set.absent.uncounted(batch.absent);
  set.absent.consume(named.name);
  if (!std::binary_search(batch.absent.begin(), batch.absent.end(), rank_)) return names_.run(number);
  require(!named.in_flight && named.current != nullptr, "the log runs without this rank what it has submitted");
  ++named.round;
}

void Joining::on(const RankJoined& entry) {
  Set& set = names_.set_in_log(entry.set);
  require(std::binary_search(set.members.begin(), set.members.end(), entry.rank) && !set.absent.has(entry.rank),
          "a rank has joined that cannot");
  if (!set.member) return;
  require(!plans_.has_plan(set), "a rank has joined in a process set that has a plan");
  if (entry.rank == rank_) {
    const auto is_listed = [&](NameId number, const std::string& name) { return names_[number].name == name; };
    const std::vector<NameId> mine = names_.in_flight_of(set);
    require(set.join != kNoName &&
                std::equal(mine.begin(), mine.end(), entry.submissions.begin(), entry.submissions.end(), is_listed),
            "this rank has joined with other submissions than it has made");
  }
  Absentees::Submissions submissions;
  for (const std::string& name : entry.submissions) submissions.emplace(name, Joined::Submission{});
  set.absent.add(entry.rank, std::move(submissions), entry.counts);
  set.sequence.absent.add(entry.rank, entry.sequence);
  if (entry.rank == rank_) publisher_.publish_completed(set);
  if (entry.set != core::kGlobalSet || entry.rank == rank_) return;
  for (const auto& [request, number] : names_.requests()) {
    if (publisher_.lacks_somebody(names_[number])) publisher_.ask(names_[number], 0, false);
  }
}

void Joining::on(const JoinEnded& entry, std::vector<Action>& actions) {
  Set& set = names_.set_in_log(entry.set);
  const bool done = entry.code == ErrorCode::ok;
  const NameId number = set.join;
  if (done && set.member) {
    require(number != kNoName && set.absent.size() == set.members.size() && set.absent.are_done(),
            "a join ended that not all members have made");
  }
  if (entry.code == ErrorCode::rank_lost) departed_.note_failure();
  ++set.joins;
  set.absent.clear();
  if (set.member) Sequences::restart_sequence(set.sequence, done, entry.calls);
  if (number == kNoName) return;
  names_[number].in_flight = false;
  if (done) publisher_.count_steps(set, std::max(set.steps, entry.steps));
  actions.emplace_back(JoinDone{entry.set, entry.last, number, entry.calls, Status(entry.code, entry.message)});
  names_.forget(number, actions);
  publisher_.publish_completed(set);
  publisher_.finish_dropped(set);
}

}  // namespace kolo::control::participant
