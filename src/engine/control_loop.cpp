// SPDX-License-Identifier: Apache-2.0
#include "engine/control_loop.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "control/sentences.hpp"
#include "data/p2p/message_sentences.hpp"
#include "engine/name_table.hpp"
#include "engine/records.hpp"

namespace kolo::engine {
namespace {

/// Whether the message says that this rank has made calls without a name in the world; for the leader it is like a
/// count of a name.
bool is_of_world_sequence(const control::UpMessage& message) noexcept {
  const auto* const grown = std::get_if<control::SequenceGrown>(&message);
  return grown != nullptr && grown->set == core::kGlobalSet;
}

/// What the log says of ranks.
void record_entry(recorder::Recorder& recorder, const control::Participant& participant,
                  const control::LogEntry& entry) {
  using recorder::Kind;
  const auto* const left = std::get_if<control::RankDeparted>(&entry);
  if (left != nullptr && !participant.has_departed(left->rank))
    recorder.record(Kind::rank_left, 0, 0, 0, static_cast<std::uint32_t>(left->rank));
  if (const auto* const fault = std::get_if<control::Faulted>(&entry))
    recorder.record(Kind::blamed, 0, 0, 0, static_cast<std::uint32_t>(fault->rank));
}

std::vector<std::int32_t> ascending(std::vector<std::int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::uint32_t bytes_of(const Operation& operation) {
  return recorder::saturated(static_cast<std::uint64_t>(operation.bytes()));
}

}  // namespace

// ---------------------------------------------------------------- submissions

bool ControlLoop::take_submissions(base::Time now) {
  if (half_taken_ != nullptr && !engine_.ending.faulted() && !engine_.ending.is_closed()) return false;
  FoundCalls found;
  std::size_t count = 0;
  for (;; ++count) {
    engine_.open.make_room();  // nothing may get lost between the mailbox and the list of what is open
    std::optional<Submission> item = mailbox.try_pop();
    if (!item) break;
    try {
      if (item->command != Command::submit) tell(found);
      take(*item, found, now);
    } catch (...) {
      half_taken_ = std::move(item->operation);
      throw;
    }
  }
  tell(found);
  if (count > 0) engine_.open.note_found(count);
  return count > 0;
}

/// What starts an operation is held by its entry, its sequence or its join from here on.
void ControlLoop::take(Submission& item, FoundCalls& found, base::Time now) {
  switch (item.command) {
  case Command::submit:
    admit(std::move(item.operation), found, now);
    break;
  case Command::make_set:
    ask_for_set(std::move(item.operation), now);
    break;
  case Command::join:
  case Command::join_counted:
    begin_join(std::move(item.operation), item.command == Command::join_counted, now);
    break;
  case Command::end_step:
    end_step(item.set);
    break;
  case Command::drop_set:
    if (!engine_.ending.is_leaving()) engine_.participant.drop(item.set);  // else it has dropped all of them
    break;
  case Command::ask:
    deadlines_.ask_who_is_late(*item.operation, now);
    break;
  case Command::leave:
    leave();
    break;
  }
}

/// Takes an operation in; false: it has failed at once. A rank that leaves has dropped its sets, and callbacks may
/// submit while it does.
bool ControlLoop::take_in(Operation& operation, bool in_world, base::Time now) {
  ++engine_.tally.submissions;
  engine_.open.add(operation, now);
  if (engine_.ending.faulted() || engine_.ending.is_closed()) {
    engine_.open.complete(operation, engine_.ending.is_closed() ? engine_.ending.closed_as() : engine_.ending.status());
    return false;
  }
  if (in_world || !engine_.ending.is_leaving()) return true;
  engine_.open.complete(operation,
                        Status(ErrorCode::shut_down, "the context was shut down before this operation was submitted"));
  return false;
}

void ControlLoop::admit(OperationPtr&& operation, FoundCalls& found, base::Time now) {
  Entry& entry = *operation->entry;
  if (entry.sequence != nullptr) return admit_call(std::move(operation), found, now);
  if (!take_in(*operation, entry.set == core::kGlobalSet, now)) return;
  if (engine_.sets.joins.any() && engine_.sets.joins.find(entry.set) != nullptr) return refuse_absent(*operation);
  if (!entry.name_id) {
    engine_.sets.entries.add(entry, engine_.participant.open(entry.set, entry.name));
    engine_.recorder->text(entry.hash, entry.name);
  }
  entry.operation = std::move(operation);
  if (engine_.deferred.logs(LogLevel::trace))
    engine_.deferred.log(LogLevel::trace, "submitted: " + record_of(*entry.operation));
  const Operation& one = *entry.operation;
  engine_.participant.submit(*entry.name_id, one.signature);
  if (engine_.recorder->is_on()) {
    engine_.recorder->record(recorder::Kind::submitted, entry.set, entry.hash,
                             recorder::saturated(engine_.participant.round_of(*entry.name_id)), bytes_of(one),
                             static_cast<std::uint8_t>(one.signature->kind));
  }
}

/// A request whose entry has a number only while it is open.
void ControlLoop::ask_for_set(OperationPtr&& operation, base::Time now) {
  if (!take_in(*operation, false, now)) return;
  if (engine_.sets.joins.find(core::kGlobalSet) != nullptr) return refuse_absent(*operation);
  Entry& entry = *operation->entry;
  const core::Signature& signature = *operation->signature;
  const std::string& name = signature.names.front();
  if (const std::optional<Status> failed = engine_.participant.take_failure(signature.ranks, name)) {
    return engine_.open.complete(*operation, *failed);
  }
  const control::NameId named = engine_.participant.ask_for_set(signature.ranks, name, operation->fails_alone);
  engine_.sets.entries.add_for_once(entry, named);
  engine_.recorder->list(entry.hash, control::group_of(name, ascending(signature.ranks)));
  engine_.recorder->record(recorder::Kind::submitted, entry.set, entry.hash,
                           recorder::saturated(engine_.participant.round_of(named)), 0,
                           static_cast<std::uint8_t>(signature.kind));
  entry.operation = std::move(operation);
}

void ControlLoop::admit_call(OperationPtr&& operation, FoundCalls& found, base::Time now) {
  Operation& one = *operation;
  if (!take_in(one, false, now)) return;
  if (one.call == 0) return refuse_absent(one);
  const core::SetId set = one.entry->set;
  engine_.recorder->record(recorder::Kind::called, set, 0, recorder::saturated(one.call), bytes_of(one),
                           static_cast<std::uint8_t>(one.signature->kind));
  engine_.sets.sequence_of(set).push(std::move(operation));
  if (!found.is_one_more(one)) {
    tell(found);
    found = {set, &one, one.call, 0};
  }
  ++found.count;
  if (engine_.deferred.logs(LogLevel::trace)) engine_.deferred.log(LogLevel::trace, "submitted: " + record_of(one));
}

/// Tells the participant of calls that have been found together: before anything else is taken in that must come behind
/// them, and before anything is published.
void ControlLoop::tell(FoundCalls& found) {
  if (found.first == nullptr) return;
  const Operation& first = *std::exchange(found.first, nullptr);
  engine_.participant.call(found.set, first.signature, found.number, found.count);
}

void ControlLoop::begin_join(OperationPtr&& operation, bool counts, base::Time now) {
  const core::SetId set = operation->entry->set;
  if (!take_in(*operation, set == core::kGlobalSet, now)) return;
  engine_.recorder->record(recorder::Kind::join_begun, set, 0);
  const control::NameId name_id = engine_.participant.join(set, operation->call, counts);
  engine_.sets.joins.add(set, name_id, std::move(operation));
}

/// What this rank submits to a set that it has joined in; a group that it asks for is the world's.
void ControlLoop::refuse_absent(Operation& operation) {
  const core::CollectiveTraits& traits = core::traits_of(operation.signature->kind);
  std::string subject = std::string(traits.name) + " of " + base::quoted(operation.entry->name);
  if (traits.makes_set) subject = "a group cannot be made";
  if (operation.entry->sequence != nullptr) subject = "unnamed " + std::string(traits.name);
  engine_.open.complete(operation,
                        Status(ErrorCode::invalid_argument,
                               subject + ": this rank has joined, and takes part in nothing more until every rank has "
                                         "joined; wait for the join first"));
}

void ControlLoop::end_step(core::SetId set) {
  if ((set != core::kGlobalSet && engine_.ending.is_leaving()) || engine_.sets.joins.find(set) != nullptr) return;
  engine_.participant.end_step(set);
  if (set != core::kGlobalSet) return;
  engine_.tally.end_step();
  engine_.recorder->record(recorder::Kind::step_ended, 0, 0, 0, recorder::saturated(engine_.tally.steps));
}

void ControlLoop::leave() {
  engine_.ending.leave();
  engine_.recorder->record(recorder::Kind::leaving, 0, 0);
  engine_.recorder->set_state(recorder::State::leaving);
  engine_.sets.close_shortcuts();  // later calls fail on this rank alone
  for (const auto& [set, last] : engine_.sets.avoided()) engine_.participant.pass(set, last);
  engine_.participant.leave();
}

// ---------------------------------------------------------------- what this rank says

/// Publishes what the participant says: messages first, in order, and nothing before those that wait for space;
/// the departure last.
bool ControlLoop::publish() {
  control::Outbox& outbox = engine_.participant.outbox();
  if (outbox.empty() && engine_.to_leader.empty()) return false;
  // The leader must also read the parts of a message that does not fit yet: that makes space.
  bool counts = std::any_of(outbox.messages.begin(), outbox.messages.end(), is_of_world_sequence);
  bool loud =
      !engine_.to_leader.empty() || !std::all_of(outbox.messages.begin(), outbox.messages.end(), is_of_world_sequence);
  bool quiet = false;
  // The board has no words for other sets than the world: there may be many, and few of them are busy. What they count
  // comes first: the end of a step before the submissions of the next, a set that is dropped before another is made.
  bool of_sets = false;
  for (const auto& [id, word] : outbox.counts) {
    if (id < core::kFirstRow) continue;
    engine_.to_leader.add(control::Counted{id, word});
    of_sets = true;
    (core::counts_completed(id) ? quiet : loud) = true;
  }
  const auto is_said = [](const auto& count) { return count.first >= core::kFirstRow; };
  if (of_sets) std::erase_if(outbox.counts, is_said);
  for (const control::UpMessage& message : outbox.messages) engine_.to_leader.add(message);
  outbox.messages.clear();
  std::size_t posted = engine_.to_leader.post(engine_.board);
  loud = loud || !engine_.to_leader.empty();
  bool moved = posted > 0;
  if (engine_.to_leader.empty()) {
    moved |= !outbox.counts.empty();
    std::uint64_t published = 0;
    for (const auto& [id, word] : outbox.counts) {
      if (id == core::kCompleted) {
        quiet = true;
        engine_.board.publish_quietly(id, word);
      } else {
        ++published;
        engine_.board.write_count(id, word);
      }
    }
    if (published > 0) {
      counts = true;
      loud = loud || std::exchange(outbox.counts_for_sets, false);
      engine_.board.ring(published);
    }
    outbox.counts.clear();
    if (outbox.departed) {
      engine_.to_leader.add(*std::exchange(outbox.departed, std::nullopt));
      loud = true;
      posted += engine_.to_leader.post(engine_.board);
      moved |= posted > 0;
    }
  }
  engine_.tally.messages_posted += posted;
  if (!engine_.leader && ((loud && engine_.board.asleep(0)) || (counts && engine_.board.asleep_hearing_counts(0)) ||
                          (quiet && engine_.board.asleep_hearing_quiet(0)))) {
    engine_.link->wake(0);
    ++engine_.tally.wakeups_sent;
  }
  return moved;
}

// ---------------------------------------------------------------- the log

bool ControlLoop::read_log() {
  bool moved = false;
  while (!engine_.ending.faulted() && !engine_.ending.is_closed() && engine_.board.next_log_entry(entry_)) {
    moved = true;
    ++engine_.tally.log_entries;
    const control::ByteView bytes(entry_.data(), entry_.size());
    engine_.tally.log_bytes += bytes.size();
    const control::LogEntry entry = control::decode_log(bytes);
    if (engine_.deferred.logs(LogLevel::info)) record_plans(entry);
    record_entry(*engine_.recorder, engine_.participant, entry);
    engine_.participant.on_log(entry, actions_);  // refuses what no log can hold
    engine_.sets.on_log(entry);
    if (!engine_.participant.departed().empty()) {
      engine_.sets.close_shortcuts();
      engine_.messenger.on_departed(engine_.participant.departed(), engine_.participant.causes_of_departures(),
                                    base::now() + base::from_seconds(engine_.settings.latch_timeout_s));
    }
    std::vector<control::Action> actions = std::exchange(actions_, {});  // none is left when one of them throws
    for (control::Action& action : actions) {
      std::visit(
          [this](auto& one) {
            Driver::assert_held();
            on(one);
          },
          action);
    }
    actions.clear();
    actions_ = std::move(actions);  // for the memory
  }
  return moved;
}

/// All ranks read the same log: rank 0 tells of it.
void ControlLoop::record_plans(const control::LogEntry& entry) {
  if (engine_.topology.rank != 0) return;
  if (const auto* plan = std::get_if<control::PlanDefined>(&entry))
    engine_.deferred.log(LogLevel::info, record_of(*plan));
  if (const auto* plan = std::get_if<control::PlanVoided>(&entry))
    engine_.deferred.log(LogLevel::info, record_of(*plan));
}

void ControlLoop::count_batch(core::SetId set, std::int32_t last) {
  ++engine_.tally.batches;
  if (last == engine_.topology.rank && engine_.sets.state_of(set).topology.size > 1) ++engine_.tally.awaited_batches;
}

/// Whether this rank contributes nothing to the batch.
template <class Ready>
bool ControlLoop::is_absent_from(const Ready& batch) const {
  return std::binary_search(batch.absent.begin(), batch.absent.end(), engine_.topology.rank);
}

template <class Ready>
void ControlLoop::start(const Ready& batch, std::vector<OperationPtr>&& members, Executor::How how) {
  if (!batch.absent.empty()) {
    how.absence = {batch.uncounted, is_absent_from(batch)};
    // A join may last as long as the others work.
    if (const Joins::Open* join = engine_.sets.joins.find(batch.set))
      engine_.open.restart(*join->operation, base::now());
  }
  engine_.executor.run(batch.set, std::move(members), how);
}

void ControlLoop::on(const control::RunBatch& batch) {
  count_batch(batch.set, batch.last);
  if (batch.plan_key != 0) ++engine_.tally.planned_batches;
  const bool is_absent = is_absent_from(batch);
  std::vector<OperationPtr> members;
  members.reserve(batch.members.size());
  std::vector<std::shared_ptr<const core::Signature>> signatures;
  std::uint64_t digest = base::hash_number(batch.members.size());
  for (const control::NameId name_id : batch.members) {
    if (is_absent) {
      digest = base::hash_hash(base::hash_string(engine_.participant.name_of(name_id)), digest);
      signatures.push_back(engine_.participant.signature_of(name_id));
      continue;
    }
    Entry& entry = engine_.sets.entries[name_id];
    digest = base::hash_hash(entry.hash, digest);
    KOLO_CHECK(entry.operation) << "the log runs \"" << entry.name << "\", which this rank has not submitted";
    members.push_back(std::move(entry.operation));
  }
  if (batch.set == core::kGlobalSet)
    engine_.tally.batch_digest += digest;  // a sum: planned batches come in the order in which they became ready
  if (is_absent) members = stand_ins(batch.set, signatures);
  start(batch, std::move(members), {batch.plan_key, batch.number, batch.last});
}

/// The operations with which an absent rank takes part in a batch. Throws Error (unsupported): a fatal error.
std::vector<OperationPtr>
ControlLoop::stand_ins(core::SetId set, const std::vector<std::shared_ptr<const core::Signature>>& signatures) {
  const bool on_device = std::any_of(signatures.begin(), signatures.end(),
                                     [](const auto& signature) { return signature->device != DeviceKind::cpu; });
  if (on_device && engine_.device == nullptr) {
    throw Error(ErrorCode::unsupported, "tensors of a device cannot be reduced while this rank has joined, because "
                                        "this rank's build of Kolo has no CUDA "
                                        "part; build it with CUDA for all ranks, or for none");
  }
  const core::Topology& topology = engine_.sets.state_of(set).topology;
  return engine::stand_ins(signatures, topology.rank, topology.size);
}

void ControlLoop::on(const control::RunCalls& batch) {
  count_batch(batch.set, batch.last);
  Sequence& sequence = engine_.sets.sequence_of(batch.set);
  if (batch.set == core::kGlobalSet)
    engine_.tally.batch_digest += base::hash_hash(sequence.hash(), base::hash_number(batch.calls));
  const bool is_absent = is_absent_from(batch);
  std::vector<OperationPtr> members;
  if (is_absent) {
    std::vector<std::shared_ptr<const core::Signature>> signatures;
    for (const control::SequenceAppended::Repeat& repeat : batch.repeats) {
      signatures.insert(signatures.end(), repeat.count, std::make_shared<const core::Signature>(repeat.signature));
    }
    members = stand_ins(batch.set, signatures);
  } else {
    members.reserve(batch.calls);
    for (std::uint64_t i = 0; i < batch.calls; ++i) members.push_back(sequence.pop());
  }
  start(batch, std::move(members), {0, 0, batch.last});
}

void ControlLoop::on(const control::FailCall& failed) {
  const OperationPtr operation = engine_.sets.sequence_of(failed.set).pop();
  const bool is_message = operation->message != nullptr;  // of which one side has given up its part
  engine_.open.complete(*operation, is_message ? p2p::given_up_there(*operation->message) : failed.status);
}

void ControlLoop::on(const control::FailLastCalls& failed) {
  const int left = engine_.participant.earliest_to_leave(engine_.sets.state_of(failed.set).members);
  for (const OperationPtr& operation : engine_.sets.sequence_of(failed.set).pop_behind(failed.last)) {
    if (!operation->is_own) engine_.note_desertion(left);
    messages_.give_up_other_half(*operation, failed.status);
    engine_.open.complete(*operation, failed.status);
  }
}

void ControlLoop::on(const control::FailName& failed) {
  // Moved out: completing the operation frees its entry for the next submission.
  const OperationPtr operation = std::move(engine_.sets.entries[failed.name].operation);
  const bool makes_set = core::traits_of(operation->signature->kind).makes_set;
  const std::vector<std::int32_t> members =
      makes_set ? operation->signature->ranks : engine_.sets.state_of(operation->entry->set).members;
  if (makes_set) engine_.sets.entries.forget(failed.name);
  if (failed.status.code() == ErrorCode::rank_lost && !operation->is_own)
    engine_.note_desertion(engine_.participant.earliest_to_leave(members));
  engine_.open.complete(*operation, failed.status);
}

void ControlLoop::on(const control::SetMade& made) {
  const OperationPtr operation = std::move(engine_.sets.entries[made.name].operation);
  Sets::Made set = engine_.sets.make(made.set, made.members, operation->signature->names.front());
  const core::Topology& topology = set.state->topology;
  engine_.recorder->add_set(made.set, set.state->serial, set.state->words, set.state->members);
  engine_.recorder->record(recorder::Kind::group_made, made.set, operation->name_hash);
  engine_.executor.add_set(made.set, std::move(set.plane), topology.size);
  engine_.messenger.on_set(set.state->serial);
  if (engine_.device != nullptr) {
    const bool is_pair = operation->signature->names.front().starts_with(DevicePairs::kNames);
    engine_.device->add_set(
        {made.set, topology.rank, topology.size, made.members, is_pair, std::move(set.make_device_plane)});
  }
  engine_.sets.entries.forget(made.name);
  operation->outputs.first.set = std::move(set.state);
  engine_.open.complete(*operation, Status());
}

void ControlLoop::on(const control::JoinDone& done) {
  SetState& set = engine_.sets.state_of(done.set);
  const OperationPtr operation = engine_.sets.joins.take(done.set);
  engine_.recorder->record(recorder::Kind::join_ended, done.set, 0);
  set.sequence.go_on_from(done.calls);
  if (done.status.ok()) {
    engine_.sets.reopen(set);
    const auto place = std::find(set.members.begin(), set.members.end(), done.last);
    operation->outputs.first.last = static_cast<int>(place - set.members.begin());
  }
  if (done.status.code() == ErrorCode::rank_lost)
    engine_.note_desertion(engine_.participant.earliest_to_leave(set.members));
  engine_.open.complete(*operation, done.status);
}

// ---------------------------------------------------------------- ends

/// A peer of this node is gone. Its last messages are read first: after the end of the log its end is no loss.
void ControlLoop::on_death(int local_rank) {
  for (const transport::NodeLink::Liveness& peer : engine_.link->liveness()) {
    if (peer.local_rank == local_rank) engine_.driver.poller().remove(peer.fd);
  }
  read_log();
  const int rank =
      engine_.topology.nodes[static_cast<std::size_t>(engine_.topology.node)][static_cast<std::size_t>(local_rank)];
  engine_.recorder->record(recorder::Kind::death_seen, 0, 0, 0, static_cast<std::uint32_t>(rank));
  if (engine_.participant.has_departed(rank)) {  // whose part in what is still open here is done
    while (!engine_.ending.is_closed() && !engine_.ending.faulted() && execution_.move(base::now())) {
    }
  }
  if (engine_.leader) {
    engine_.leader->on_local_death(local_rank);
    return;
  }
  if (engine_.ending.is_closed() || engine_.ending.faulted()) return;
  if (engine_.participant.has_departed(rank) && engine_.executor.open() == 0) return close_log();
  engine_.ending.record(
      Status(ErrorCode::rank_lost, control::rank_lost({rank, ErrorCode::rank_lost, "its process has ended"})));
}

void ControlLoop::go() {
  if (engine_.ending.is_closed() || engine_.ending.faulted()) return;
  publish();
  // What says that this rank has left must come first. If the leader does not take it, the end of this process tells.
  if (!engine_.to_leader.empty() || engine_.participant.outbox().departed) return;
  engine_.ending.go();
  const int rank = engine_.topology.rank;
  if (engine_.leader) return engine_.leader->go(base::now());
  engine_.to_leader.add(control::RankLost{rank, ErrorCode::rank_lost, control::kStopped});
}

/// Decides whether lost connections of the transport are lost ranks. A rank that leaves closes its connections, and the
/// log entry about that may come later, by another connection. It closes them only when all have left. If this rank has
/// not left, a closed connection is therefore a loss. Otherwise the loss is kept until the control connections show a
/// dead process or the end of the log. Returns whether a loss was reported.
bool ControlLoop::judge_losses() {
  std::vector<Ending::Loss>& losses = engine_.ending.losses;
  if (losses.empty()) return false;
  read_log();  // it may have been written since this pass read it, and before the connection was closed
  if (engine_.ending.is_closed() || engine_.ending.faulted()) losses.clear();
  const auto may_have_departed = [this](const Ending::Loss& loss) KOLO_REQUIRES(kDriving) {
    return engine_.ending.is_leaving() || (engine_.participant.has_departed(loss.rank) && engine_.executor.open() == 0);
  };
  const auto told = std::stable_partition(losses.begin(), losses.end(), may_have_departed);
  const bool is_any = told != losses.end();
  for (auto loss = told; loss != losses.end(); ++loss) {
    engine_.recorder->record(recorder::Kind::death_seen, 0, 0, 0, static_cast<std::uint32_t>(loss->rank));
    engine_.ending.report_loss(loss->rank, ErrorCode::rank_lost, loss->reason);
  }
  losses.erase(told, losses.end());
  return is_any;
}

/// The log has ended: all ranks have left, or a leader that has left and from which this rank gets the log is gone.
/// Operations that are not in the log will never run.
void ControlLoop::close_log() {
  engine_.open.waiters.note_change();  // a peer's end closes it outside a pass, too
  engine_.recorder->record(recorder::Kind::closed, 0, 0);
  engine_.sets.close_shortcuts();
  if (engine_.ending.is_leaving()) {
    engine_.ending.close(Status(ErrorCode::shut_down, "the job was shut down"));
    return;  // what is open ends with the engine
  }
  engine_.ending.close(Status(ErrorCode::rank_lost, control::nothing_more({engine_.participant.first_to_leave()})));
  for (std::size_t i = engine_.open.size(); i-- > 0;) {
    Operation& operation = engine_.open[i];
    if (operation.is_join || is_negotiating(operation))
      engine_.open.complete(operation, engine_.ending.closed_as());  // else it runs
  }
  messages_.close(engine_.ending.closed_as());
  engine_.sets.clear_sequences();
}

void ControlLoop::fail_on_cpu(const Status& status) {
  for (std::size_t i = engine_.open.size(); i-- > 0;) {
    if (engine_.open[i].device() == DeviceKind::cpu) engine_.open.complete(engine_.open[i], status);
  }
}

void ControlLoop::fail_open(const Status& status) {
  while (!engine_.open.empty()) engine_.open.complete(engine_.open[engine_.open.size() - 1], status);
  messages_.fail(status);
  engine_.sets.clear_sequences();
  half_taken_.reset();
}

void ControlLoop::fail_all(const Status& status) {
  for (;;) {
    engine_.open.make_room();
    const std::optional<Submission> item = mailbox.try_pop();
    if (!item) break;
    if (!item->starts_operation()) continue;
    if (take_in(*item->operation, false, base::now())) engine_.open.complete(*item->operation, status);
  }
  fail_open(status);
}

}  // namespace kolo::engine
