// SPDX-License-Identifier: Apache-2.0
//
// Deadlines and questions, deaths, and fatal errors. See the essay in engine.hpp.
#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "control/sentences.hpp"
#include "engine/engine.hpp"

namespace kolo::engine {
namespace {

/// Of what a program asks about, in seconds.
constexpr double kLeastWait = 1e-9;

/// Not in the log yet; else its batch runs.
bool is_negotiating(const Operation& operation) noexcept {
  return operation.is_waiting || operation.entry->operation.get() == &operation;
}

}  // namespace

// ---------------------------------------------------------------- deadlines, deaths, faults

void Engine::check_deadlines(base::Time now) {
  open_.forget_due();
  if (now >= failure_.due) {
    latch(failure_.announced());
    return;
  }
  for (std::size_t i = 0; i < open_.size() && !faulted(); ++i) check_deadline(open_[i], now);
}

void Engine::check_deadline(Operation& operation, base::Time now) {
  const base::Time warn_at = operation.submitted + open_.patience().warn_after;
  const base::Duration patience = base::from_seconds(settings_.latch_timeout_s);
  const double waited = base::to_seconds(now - operation.submitted);
  if (operation.overdue && now >= operation.latch_at) {
    const bool is_group = !operation.joins && core::traits_of(operation.signature->kind).makes_set;
    const std::string why = control::unanswered(describe(operation), is_group, waited, describe_silence());
    latch(Status(ErrorCode::timeout, why));
    return;
  }
  if (!operation.overdue && now >= operation.deadline) {
    operation.overdue = true;
    operation.latch_at = now + patience;
    ask_about(operation, now);
  } else if (operation.overdue && !operation.reminded && now >= operation.latch_at - patience / 2) {
    // If the leader stops taking messages meanwhile, this one tells: describe_silence.
    operation.reminded = true;
    ask_about(operation, now);
  } else if (now >= warn_at && !operation.warned) {
    operation.warned = true;
    if (operation.entry->sequence != nullptr) {
      ask_about_call(operation, waited, false);
    } else if (const auto slot = slot_of(operation)) {
      participant_.overdue(*slot, waited, false);
    }
  }
  base::Time due = operation.deadline;
  if (operation.overdue) {
    due = operation.reminded ? operation.latch_at : operation.latch_at - patience / 2;
  }
  open_.due_at(operation.warned ? due : std::min(due, warn_at));
}

/// The deadline has passed.
void Engine::ask_about(Operation& operation, base::Time now) {
  const double waited = base::to_seconds(now - operation.submitted);
  if (operation.entry->sequence != nullptr) {
    ask_about_call(operation, waited, true);
  } else if (const auto slot = slot_of(operation)) {
    participant_.overdue(*slot, waited, true);
  } else {
    participant_.overdue_running(operation.entry->set, operation.entry->name, waited);
  }
}

/// A program wants to know. Of what runs, or is over, there is nobody to tell.
void Engine::ask_who_is_late(Operation& operation, base::Time now) {
  if (operation.done()) return;
  // Submitted and asked about in one pass it has not waited at all, which would mean that a rank has left.
  const double waited = std::max(base::to_seconds(now - operation.submitted), kLeastWait);
  const auto slot = operation.joins ? std::nullopt : slot_of(operation);
  if (operation.entry->sequence != nullptr && operation.is_waiting) {
    participant_.ask_call(operation.entry->set, operation.call, operation.signature->kind, waited);
  } else if (operation.entry->sequence == nullptr && slot) {
    participant_.ask(*slot, waited);
  } else {  // it runs: all have submitted it; or it is a join, which waits for no submission
    operation.note_late({});
    changes_.note();
  }
}

/// By which the participant knows it; none: its batch runs.
std::optional<control::SlotId> Engine::slot_of(const Operation& operation) const {
  if (operation.joins) return sets_.joins.find(operation.entry->set)->slot;
  return is_negotiating(operation) ? operation.entry->slot : std::nullopt;
}

/// What it waits for, as ranks speak of it.
control::Answer::Wait Engine::wait_of(const Operation& operation) const {
  const Entry& entry = *operation.entry;
  if (entry.sequence != nullptr) return {entry.set, entry.name, operation.call};
  const core::Round round = entry.slot ? participant_.round_of(*entry.slot) : 0;
  const core::Signature& signature = *operation.signature;
  if (!core::traits_of(signature.kind).makes_set) return {entry.set, entry.name, round};
  control::Answer::Wait wait{entry.set, signature.names.front(), round, signature.ranks};
  std::sort(wait.members.begin(), wait.members.end());
  return wait;
}

std::string Engine::describe(const Operation& operation) const {
  if (operation.joins) return control::join_of(sets_.words_of(operation.entry->set));
  const control::Answer::Wait wait = wait_of(operation);
  return control::subject(sets_.words_of(wait.set), wait.name, wait.round, wait.members);
}

/// Who should have answered this rank's question: its leader, if it has not even read it, else the rank that decides,
/// or whoever stands between the two.
std::string Engine::describe_silence() const {
  const std::string stopped = "; its process is stopped, or kept from running";
  const int leader = topology_.leader_of(topology_.node);
  if (leader > 0 && leader != topology_.rank && board_.has_unread_messages()) {
    return "rank " + std::to_string(leader) + ", the leader of this node, does not answer" + stopped;
  }
  const std::string decider = "rank 0, which coordinates the job,";
  std::vector<std::int32_t> between;
  const auto fanout = static_cast<int>(settings_.tree_fanout);
  for (int node = topology_.node; node > 0; node = core::Topology::tree_parent(node, fanout)) {
    if (node != topology_.node) between.push_back(topology_.leader_of(node));
  }
  if (between.empty()) return decider + " does not answer" + stopped;
  std::sort(between.begin(), between.end());
  return decider + " does not answer, or " + core::describe_ranks(between) + " on the way to it";
}

void Engine::answer_questions() {
  for (control::AnswerQuery& query : questions_.take()) {
    control::Answer& answer = query.answer;
    if (!faulted()) executor_.account(answer);
    if (!answer.submitted) answer.wait = oldest_wait();
    participant_.answer(std::move(answer));
  }
}

/// What some thread of this rank has waited for longest, of what is not in the log yet.
std::optional<control::Answer::Wait> Engine::oldest_wait() const {
  const Operation* oldest = nullptr;
  for (const Operation* operation : open_) {
    if (!operation->is_interesting() || !is_negotiating(*operation)) continue;
    if (oldest == nullptr || operation->submitted < oldest->submitted) oldest = operation;
  }
  if (oldest == nullptr) return std::nullopt;
  return wait_of(*oldest);
}

/// A peer of this node is gone. What it said last comes first: after the end of the log it is no loss.
void Engine::on_death(int local_rank) {
  for (const transport::NodeLink::Liveness& peer : link_->liveness()) {
    if (peer.local_rank == local_rank) driver_.poller().remove(peer.fd);
  }
  read_log();
  const int rank = topology_.nodes[static_cast<std::size_t>(topology_.node)][static_cast<std::size_t>(local_rank)];
  if (participant_.has_left(rank)) {  // whose part in what is still open here is done
    while (!ending_.is_closed() && !faulted() && move_backend(base::now())) {
    }
  }
  if (leader_) {
    leader_->on_local_death(local_rank);
    return;
  }
  if (ending_.is_closed() || faulted()) return;
  if (participant_.has_left(rank) && executor_.open() == 0) return close_log();
  latch(Status(ErrorCode::rank_lost, control::rank_lost({rank, ErrorCode::rank_lost, "its process has ended"})));
}

/// A rank that leaves closes its connections to this one, and what the log says of that may come later: by another
/// connection. It does so only when all have left, so a rank that has not left itself knows a loss at once. Else the
/// loss is kept, and the control connections tell: a process that has ended, or the end of the log. True: it is told.
bool Engine::judge_losses() {
  std::vector<Failure::Loss>& losses = failure_.losses;
  if (losses.empty()) return false;
  read_log();  // it may have been written since this pass read it, and before the connection was closed
  if (ending_.is_closed() || faulted()) losses.clear();
  const auto may_have_left = [this](const Failure::Loss& loss) KOLO_REQUIRES(driver_.mutex()) {
    return ending_.is_leaving() || (participant_.has_left(loss.rank) && executor_.open() == 0);
  };
  const auto told = std::stable_partition(losses.begin(), losses.end(), may_have_left);
  const bool is_any = told != losses.end();
  for (auto loss = told; loss != losses.end(); ++loss) announce_loss(loss->rank, ErrorCode::rank_lost, loss->reason);
  losses.erase(told, losses.end());
  return is_any;
}

/// The log has ended: all ranks have left, or one of those that have and that this one hears the log from is gone. What
/// is not in it will never run.
void Engine::close_log() {
  changes_.note();  // a peer's end closes it outside a pass, too
  sets_.close_shortcuts();
  if (ending_.is_leaving()) {
    ending_.close(Status(ErrorCode::shut_down, "the job was shut down"));
    return;  // what is open ends with the engine
  }
  ending_.close(Status(ErrorCode::rank_lost, control::nothing_more(participant_.first_to_leave())));
  for (std::size_t i = open_.size(); i-- > 0;) {
    Operation& operation = open_[i];
    if (operation.joins || is_negotiating(operation)) complete(operation, ending_.closed_as());  // else it runs
  }
  messages_.close(ending_.closed_as());
  settle_messages();
  sets_.clear_sequences();
}

/// Of the exception that is being handled.
void Engine::announce_exception() noexcept {
  found_calls_.first = nullptr;  // it may be over before the next pass; nobody's calls run any more
  try {
    throw;
  } catch (const Error& error) {
    // What a call may fail with and the job go on is fatal here.
    announce_fault(is_fatal(error.code()) ? error.code() : ErrorCode::transport, error.status().message());
  } catch (const std::bad_alloc&) {
    announce_fault(ErrorCode::transport, "there is no memory left");
  } catch (const std::exception& error) {
    announce_fault(ErrorCode::transport, error.what());
  } catch (...) {
    announce_fault(ErrorCode::transport, "an exception that is no std::exception");
  }
}

/// This rank cannot go on because of `rank`, itself or a peer. The world learns of it; if rank 0 does not answer, this
/// rank fails by itself.
void Engine::announce_loss(int rank, ErrorCode code, const std::string& reason) {
  if (!failure_.spares_backends()) {
    if (base::now() >= failure_.due) latch(failure_.announced());  // what throws in every pass keeps no deadline out
    return;
  }
  failure_.announce(Status(code, control::rank_lost({rank, code, reason})),
                    base::now() + base::from_seconds(settings_.latch_timeout_s));
  open_.due_at(failure_.due);
  unsent_.add(control::RankLost{rank, code, reason});
}

void Engine::latch(const Status& status) {
  if (faulted()) return;
  failure_.record(status);
  sets_.close_shortcuts();  // before anything is over because of that
  changes_.note();
  if (inter_) inter_->abandon();
  errands_.log(LogLevel::error, status.message());
  if (leader_) leader_->latch(status, -1);
}

/// After a fatal error, without the lock while the backends end their work. Nobody else uses them meanwhile, which the
/// analysis cannot see.
void Engine::end_batches() {
  failure_.abort_due = false;
  driver_.step_aside([this]() KOLO_NO_THREAD_SAFETY_ANALYSIS { executor_.abort(); });
  executor_.forget();
  fail_open(failure_.status());
  executor_.drop();
}

bool Engine::concerns(const control::Stalled& stall, const Operation& operation) const {
  if (!is_negotiating(operation) || stall.join || operation.joins) return false;
  const control::Answer::Wait wait = wait_of(operation);
  return wait.set == stall.set && wait.name == stall.name && wait.round == stall.round && wait.members == stall.members;
}

void Engine::report_stall(const control::Stalled& stall) {
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (!concerns(stall, open_[i])) continue;
    const std::vector<int>& members = sets_.state_of(stall.set).members;
    std::vector<int> late;
    for (const std::int32_t rank : stall.missing) {
      if (rank == topology_.rank) continue;  // its submission has been overtaken by its question
      late.push_back(static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin()));
    }
    if (late.empty()) continue;
    std::sort(late.begin(), late.end());
    open_[i].note_late(std::move(late));
    changes_.note();
  }
  if (stall.asked) return;
  ++metrics_.stalls;
  if (topology_.rank != 0) return;
  errands_.log(LogLevel::warning, control::stalled(leader_->words_of(stall.set), stall));
}

}  // namespace kolo::engine
