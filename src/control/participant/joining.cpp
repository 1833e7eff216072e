// SPDX-License-Identifier: Apache-2.0
#include "control/participant/joining.hpp"

#include <algorithm>
#include <utility>

#include "control/ranges.hpp"

namespace kolo::control::participant {

using core::Round;

SlotId Joins::join(Set& set, Round calls, bool counts) {
  const SlotId number = set.join = slots_.open_unnamed(set, "");
  slots_[number].is_join = slots_[number].in_flight = true;
  slots_[number].round = set.joins + 1;
  calls_.speak_of_calls();
  calls = std::max(calls, set.sequence.made);
  Joined message{rank_, set.number, counters_.log_entries, set.steps, {}, calls, counts, set.sequence.made};
  OwnCalls::pass(set.sequence, calls);
  for (const SlotId member : slots_.in_flight_of(set)) {
    const Slot& slot = slots_[member];
    message.submissions.push_back({slot.name, slot.round, slot.id, slot.whole ? *slot.pending : *slot.current});
  }
  publisher_.say(std::move(message));
  return number;
}

void Joins::run_without_some(Set& set, SlotId number, RunBatch& batch) {
  Slot& slot = slots_[number];
  std::vector<std::int32_t> absent = set.absent.without(slot.name);
  require(batch.members.size() == 1 || absent == batch.absent, "other ranks contribute to one part of a batch");
  batch.absent = std::move(absent);
  batch.uncounted = set.absent.uncounted(batch.absent);
  set.absent.consume(slot.name);
  if (!std::binary_search(batch.absent.begin(), batch.absent.end(), rank_)) return slots_.run(number);
  require(!slot.in_flight && slot.current != nullptr, "the log runs without this rank what it has submitted");
  ++slot.round;
}

void Joins::on(const RankJoined& entry) {
  Set& set = slots_.set_in_log(entry.set);
  require(std::binary_search(set.members.begin(), set.members.end(), entry.rank) && !set.absent.has(entry.rank),
          "a rank has joined that cannot");
  if (!set.member) return;
  require(!plans_.has_plan(set), "a rank has joined in a process set that has a plan");
  if (entry.rank == rank_) {
    const auto is_listed = [&](SlotId number, const std::string& name) { return slots_[number].name == name; };
    const std::vector<SlotId> mine = slots_.in_flight_of(set);
    require(set.join != kNoSlot &&
                std::equal(mine.begin(), mine.end(), entry.submissions.begin(), entry.submissions.end(), is_listed),
            "this rank has joined with other submissions than it has made");
  }
  Absentees::Submissions submissions;
  for (const std::string& name : entry.submissions) submissions.emplace(name, Joined::Submission{});
  set.absent.add(entry.rank, std::move(submissions), entry.counts);
  set.sequence.absent.add(entry.rank, entry.sequence);
  if (entry.rank == rank_) publisher_.publish_completed(set);
  if (entry.set != core::kGlobalSet || entry.rank == rank_) return;
  for (const auto& [request, number] : slots_.requests()) {
    if (publisher_.lacks_somebody(slots_[number])) publisher_.ask(slots_[number], 0, false);
  }
}

void Joins::on(const JoinEnded& entry, std::vector<Action>& actions) {
  Set& set = slots_.set_in_log(entry.set);
  const bool done = entry.code == ErrorCode::ok;
  const SlotId number = set.join;
  if (done && set.member) {
    require(number != kNoSlot && set.absent.size() == set.members.size() && set.absent.are_done(),
            "a join ended that not all members have made");
  }
  if (entry.code == ErrorCode::rank_lost) departed_.note_failure();
  ++set.joins;
  set.absent.clear();
  if (set.member) OwnCalls::restart_sequence(set.sequence, done, entry.calls);
  if (number == kNoSlot) return;
  slots_[number].in_flight = false;
  if (done) publisher_.count_steps(set, std::max(set.steps, entry.steps));
  actions.emplace_back(JoinDone{entry.set, entry.last, number, entry.calls, Status(entry.code, entry.message)});
  slots_.forget(number, actions);
  publisher_.publish_completed(set);
  publisher_.finish_dropped(set);
}

}  // namespace kolo::control::participant
