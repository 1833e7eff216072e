// SPDX-License-Identifier: Apache-2.0
#include "engine/deadlines.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "control/sentences.hpp"
#include "engine/name_table.hpp"

namespace kolo::engine {
namespace {

/// The least wait that a question reports, in seconds.
constexpr double kLeastWait = 1e-9;

}  // namespace

void Deadlines::check(base::Time now) {
  engine_.open.forget_due();
  if (engine_.ending.record_if_due(now)) return;
  for (std::size_t i = 0; i < engine_.open.size() && !engine_.ending.faulted(); ++i) check(engine_.open[i], now);
}

void Deadlines::check(Operation& operation, base::Time now) {
  const base::Time warn_at = operation.waiting.since + engine_.open.patience.warn_after;
  const base::Duration patience = base::from_seconds(engine_.settings.latch_timeout_s);
  const double waited = base::to_seconds(now - operation.waiting.since);
  if (operation.waiting.overdue && now >= operation.latch_at) {
    const bool is_group = !operation.is_join && core::traits_of(operation.signature->kind).makes_set;
    const std::string why = control::unanswered(describe(operation), is_group, waited, describe_silence());
    engine_.ending.record(Status(ErrorCode::timeout, why));
    return;
  }
  if (!operation.waiting.overdue && now >= operation.waiting.deadline) {
    operation.waiting.overdue = true;
    record(recorder::Kind::overdue, operation);
    operation.latch_at = now + patience;
    report_overdue(operation, now);
  } else if (operation.waiting.overdue && !operation.waiting.reminded && now >= operation.latch_at - patience / 2) {
    // If the leader stops taking messages meanwhile, this one tells: describe_silence.
    operation.waiting.reminded = true;
    report_overdue(operation, now);
  } else if (now >= warn_at && !operation.waiting.warned) {
    operation.waiting.warned = true;
    record(recorder::Kind::warned, operation);
    if (operation.entry->sequence != nullptr) {
      report_call(operation, waited, false);
    } else if (const auto name_id = name_id_of(operation)) {
      engine_.participant.overdue(*name_id, waited, false);
    }
  }
  base::Time due = operation.waiting.deadline;
  if (operation.waiting.overdue) {
    due = operation.waiting.reminded ? operation.latch_at : operation.latch_at - patience / 2;
  }
  engine_.open.due_at(operation.waiting.warned ? due : std::min(due, warn_at));
}

void Deadlines::record(recorder::Kind kind, const Operation& operation) {
  const Entry& entry = *operation.entry;
  const core::Round round =
      entry.sequence == nullptr && entry.name_id ? engine_.participant.round_of(*entry.name_id) : operation.call;
  engine_.recorder->record(kind, entry.set, operation.name_hash, recorder::saturated(round));
}

/// Its deadline has passed.
void Deadlines::report_overdue(const Operation& operation, base::Time now) {
  const double waited = base::to_seconds(now - operation.waiting.since);
  if (operation.entry->sequence != nullptr) {
    report_call(operation, waited, true);
  } else if (const auto name_id = name_id_of(operation)) {
    engine_.participant.overdue(*name_id, waited, true);
  } else {
    engine_.participant.overdue_running(operation.entry->set, operation.entry->name, waited);
  }
}

/// Of a call that waits for the log, or runs.
void Deadlines::report_call(const Operation& operation, double waited, bool deadline) {
  // The log runs calls in their order: a warning about the first is one about all.
  const core::SetId set = operation.entry->set;
  if (!deadline && (!operation.is_waiting || engine_.sets.sequence_of(set).front().get() != &operation)) return;
  engine_.participant.overdue_call(set, operation.call, operation.signature->kind, waited, deadline,
                                   !operation.is_waiting);
}

void Deadlines::ask_who_is_late(Operation& operation, base::Time now) {
  if (operation.done()) return;
  // Submitted and asked about in one pass it has not waited at all, which would mean that a rank has left.
  const double waited = std::max(base::to_seconds(now - operation.waiting.since), kLeastWait);
  const auto name_id = operation.is_join ? std::nullopt : name_id_of(operation);
  if (operation.entry->sequence != nullptr && operation.is_waiting) {
    engine_.participant.ask_call(operation.entry->set, operation.call, operation.signature->kind, waited);
  } else if (operation.entry->sequence == nullptr && name_id) {
    engine_.participant.ask(*name_id, waited);
  } else {  // it runs: all have submitted it; or it is a join, which waits for no submission
    operation.note_late({});
    engine_.open.waiters.note_change();
  }
}

/// By which the participant knows it; none: its batch runs.
std::optional<control::NameId> Deadlines::name_id_of(const Operation& operation) const {
  if (operation.is_join) return engine_.sets.joins.find(operation.entry->set)->name_id;
  return is_negotiating(operation) ? operation.entry->name_id : std::nullopt;
}

/// What it waits for, as ranks speak of it.
control::Request Deadlines::request_of(const Operation& operation) const {
  const Entry& entry = *operation.entry;
  if (entry.sequence != nullptr) return {entry.set, entry.name, operation.call};
  const core::Round round = entry.name_id ? engine_.participant.round_of(*entry.name_id) : 0;
  const core::Signature& signature = *operation.signature;
  if (!core::traits_of(signature.kind).makes_set) return {entry.set, entry.name, round};
  control::Request request{entry.set, signature.names.front(), round, signature.ranks};
  std::sort(request.members.begin(), request.members.end());
  return request;
}

std::string Deadlines::describe(const Operation& operation) const {
  const std::string group = engine_.sets.words_of(operation.entry->set);
  return operation.is_join ? control::join_of(group) : control::subject(group, request_of(operation));
}

/// Text: which rank should have answered this rank's question. It is the leader if it has not read the question, else
/// rank 0 or a leader between the two.
std::string Deadlines::describe_silence() const {
  const std::string stopped = "; its process is stopped, or kept from running";
  const int leader = engine_.topology.leader_of(engine_.topology.node);
  if (leader > 0 && leader != engine_.topology.rank && engine_.board.has_unread_messages()) {
    return "rank " + std::to_string(leader) + ", the leader of this node, does not answer" + stopped;
  }
  const std::string decider = "rank 0, which coordinates the job,";
  std::vector<std::int32_t> between;
  const auto fanout = static_cast<int>(engine_.settings.tree_fanout);
  for (int node = engine_.topology.node; node > 0; node = core::Topology::tree_parent(node, fanout)) {
    if (node != engine_.topology.node) between.push_back(engine_.topology.leader_of(node));
  }
  if (between.empty()) return decider + " does not answer" + stopped;
  std::sort(between.begin(), between.end());
  return decider + " does not answer, or " + core::describe_ranks(between) + " on the way to it";
}

void Deadlines::answer_all() {
  for (control::AnswerQuery& query : std::exchange(questions_, {})) {
    control::Answer& answer = query.answer;
    if (!engine_.ending.faulted()) engine_.executor.account(answer);
    if (!answer.submitted) answer.wait = oldest_wait();
    engine_.recorder->record(recorder::Kind::answered, 0, 0, 0, answer.submitted ? 1 : 0,
                             static_cast<std::uint8_t>(answer.doing));
    for (const std::int32_t rank : answer.awaited)
      engine_.recorder->record(recorder::Kind::awaits, 0, 0, 0, static_cast<std::uint32_t>(rank));
    engine_.participant.answer(std::move(answer));
  }
}

/// The operation that is not in the log yet and for which a thread of this rank has waited longest.
std::optional<control::Request> Deadlines::oldest_wait() const {
  const Operation* oldest = nullptr;
  for (const Operation* operation : engine_.open) {
    if (!operation->is_awaited() || !is_negotiating(*operation)) continue;
    if (oldest == nullptr || operation->waiting.since < oldest->waiting.since) oldest = operation;
  }
  if (oldest == nullptr) return std::nullopt;
  return request_of(*oldest);
}

bool Deadlines::concerns(const control::Stalled& stall, const Operation& operation) const {
  if (!is_negotiating(operation) || stall.request.join || operation.is_join) return false;
  return control::are_same(request_of(operation), stall.request);
}

void Deadlines::report(const control::Stalled& stall) {
  std::vector<std::int32_t> absent = stall.missing;
  absent.insert(absent.end(), stall.silent.begin(), stall.silent.end());
  for (const std::int32_t rank : absent) {
    engine_.recorder->record(recorder::Kind::late, stall.request.set, base::hash_string(stall.request.name),
                             recorder::saturated(stall.request.round), static_cast<std::uint32_t>(rank));
  }
  for (std::size_t i = 0; i < engine_.open.size(); ++i) {
    if (!concerns(stall, engine_.open[i])) continue;
    const std::vector<int>& members = engine_.sets.state_of(stall.request.set).members;
    std::vector<int> late;
    for (const std::int32_t rank : absent) {
      if (rank == engine_.topology.rank) continue;  // its submission has been overtaken by its question
      late.push_back(static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin()));
    }
    if (late.empty()) continue;
    std::sort(late.begin(), late.end());
    engine_.open[i].note_late(std::move(late));
    engine_.open.waiters.note_change();
  }
  if (stall.asked) return;
  ++engine_.tally.stalls;
  if (engine_.topology.rank != 0) return;
  engine_.deferred.log(LogLevel::warning, control::stalled(engine_.leader->words_of(stall.request.set), stall));
}

}  // namespace kolo::engine
