// SPDX-License-Identifier: Apache-2.0
//
// Construction, and the passes of the driver. Submission is in submission.cpp, driving and sleeping in driving.cpp.
#include "engine/engine.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "base/round_up.hpp"
#include "control/sentences.hpp"
#include "data/kernels/float_mode.hpp"
#include "engine/placements.hpp"
#include "engine/records.hpp"
#include "engine/tags.hpp"

namespace kolo::engine {
namespace {

/// How many passes without a find lie between two looks at the descriptors: a system call each.
constexpr std::uint64_t kPassesPerPoll = 64;
/// A leader's sockets carry what the ranks below wait for.
constexpr std::uint64_t kPassesPerSocketPoll = 4;

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

/// What says that this rank has made calls without a name in the world: it is for the leader what a count of a name is.
bool is_of_world_sequence(const control::UpMessage& message) noexcept {
  const auto* const grown = std::get_if<control::SequenceGrown>(&message);
  return grown != nullptr && grown->set == core::kGlobalSet;
}

}  // namespace

control::BoardShape board_shape(const base::Settings& settings, int local_size) {
  constexpr std::size_t kLine = 64;  // the board wants whole cache lines
  const auto ring = [](std::int64_t bytes) { return base::round_up(static_cast<std::size_t>(bytes), kLine); };
  control::BoardShape shape;
  shape.ranks = local_size;
  shape.ids = static_cast<std::uint32_t>(settings.cache_capacity);
  shape.message_ring_bytes = ring(settings.message_ring_bytes);
  shape.log_ring_bytes = ring(settings.log_ring_bytes);
  return shape;
}

NodeLayout node_layout(const base::Settings& settings, const core::Topology& topology, std::size_t ring_bytes,
                       std::size_t rings, std::optional<std::size_t> longest_small) {
  NodeLayout layout;
  layout.ranks = topology.local_size();
  layout.blocks = static_cast<std::size_t>(settings.groups) + 1;
  layout.board_bytes = board_shape(settings, topology.local_size()).bytes();
  if (longest_small) layout.shortcut_bytes = core::ShortcutMemory::column_bytes(*longest_small);
  layout.longest_small = longest_small.value_or(0);
  layout.ring_bytes = ring_bytes;
  layout.rings = rings;
  layout.message_bytes = p2p::NodeChannels::bytes(topology.local_size());
  return layout;
}

Engine::Engine(EngineParts parts)
    : topology_(std::move(parts.topology)), settings_(std::move(parts.settings)), logger_(std::move(parts.logger)),
      link_(std::move(parts.link)), control_(std::move(parts.control)), device_(std::move(parts.device)),
      wait_policy_(parts.wait_policy), inter_(std::move(parts.inter)), has_barriers_(parts.has_barriers),
      mailbox_(static_cast<std::size_t>(settings_.mailbox_capacity)), errands_(*logger_),
      messages_(topology_, parts.layout.messages(link_->memory()), *link_, std::move(parts.peers), parts.read_above,
                wait_policy_.pauses > 0, parts.to_peers, inter_),
      board_(link_->memory(), board_shape(settings_, topology_.local_size()), topology_.local_rank),
      driver_(board_, *link_),
      sets_(topology_, {parts.layout, link_->memory(), std::move(parts.make_plane), std::move(parts.make_device_plane),
                        std::move(parts.make_small_calls)}),
      world_(sets_.world()),
      participant_(topology_.rank, topology_.size, static_cast<std::uint32_t>(settings_.cache_capacity)),
      executor_(sets_.make_world_plane(), device_.get(), topology_.size),
      open_({base::from_seconds(settings_.timeout_s), base::from_seconds(settings_.stall_warning_s)}),
      device_messages_(device_ ? &device_->copies() : nullptr) {
  if (topology_.is_leader()) {
    leader_ = std::make_unique<Leader>(topology_, settings_, board_, *link_, control_.get(), errands_);
  }
  executor_.set_enqueued(
      [this](std::function<void(const Status&)> callback) { errands_.call(std::move(callback), Status()); });
  if (logger_->enabled(LogLevel::debug) || settings_.log_placement) {
    executor_.set_started(
        [this, placements = std::make_shared<Placements>()](const Batch& batch, const data::Layout& layout,
                                                            std::uint32_t plan_key, data::Backend& backend) {
          errands_.log(LogLevel::debug, record_of(batch, plan_key, backend));
          if (!settings_.log_placement) return;
          for (std::string& record : placements->records_of(batch, layout, backend)) errands_.write(std::move(record));
        });
  }
  if (inter_) {
    inter_->report_to({[this](int rank, const std::string& reason) {
                         driver_.assert_held();
                         failure_.losses.push_back({rank, reason});  // a pass judges them
                       },
                       [this] {
                         driver_.assert_held();
                         participant_.starved();
                       }});
  }
  if (control_) control_->attach(driver_.poller(), kControlTag);
  for (const transport::NodeLink::Liveness& peer : link_->liveness()) {
    driver_.poller().add(peer.fd, kLivenessTag + static_cast<std::uint64_t>(peer.local_rank));
  }
}

std::shared_ptr<Engine> Engine::make(EngineParts parts) {
  std::shared_ptr<Engine> engine(new Engine(std::move(parts)));
  engine->self_ = engine;
  engine->sent_ = std::make_shared<MessageOperation>();
  engine->sent_->engine = engine;
  engine->sent_->message = &engine->sent_->own;
  bool was_interesting = false;
  engine->sent_->complete({}, was_interesting);
  engine->driver_.start([raw = engine.get()] { raw->background(); });
  return engine;
}

Engine::~Engine() {
  stop(Status(ErrorCode::shut_down, "the engine was shut down"));
  // Threads may have submitted more meanwhile.
  const Status status(ErrorCode::shut_down, "this context was shut down");
  while (const std::optional<Submission> late = mailbox_.try_pop()) {
    if (!late->starts_operation()) continue;
    bool was_interesting = false;
    for (const auto& callback : late->operation->complete(status, was_interesting))
      engine::call_back(callback, status, *logger_);
  }
}

// ---------------------------------------------------------------- submitting

void Engine::check_usable() const {
  failure_.check();
  if (ending_.is_stopped()) {
    throw Error(ErrorCode::shut_down, "this context was shut down");
  }
}

// ---------------------------------------------------------------- one pass

bool Engine::progress() noexcept {
  const kernels::FloatMode float_mode;  // whatever thread drives
  bool moved = guarded([&]() KOLO_REQUIRES(driver_.mutex()) { return pass(); });
  if (driver_.is_poll_due(moved, control_ ? kPassesPerSocketPoll : kPassesPerPoll)) moved = poll_descriptors();
  if (moved) changes_.note();
  settle_pass();
  return moved;
}

bool Engine::pass() {
  bool moved = false;
  const base::Time now = base::now();
  const bool interest = interest_.look();
  moved |= drain_mailbox(now);
  participant_.set_interested(interest);
  moved |= speak();
  if (leader_) moved |= leader_->step(now);
  moved |= read_log();
  if (leader_) leader_->wake_ranks();
  const bool advanced = move_backend(now);
  moved |= advanced;
  moved |= move_copies();
  moved |= move_messages(now);
  moved |= judge_losses();
  if (questions_.are_due(advanced, now)) answer_questions();
  if (now >= open_.next_due() || now >= failure_.due) check_deadlines(now);
  moved |= speak();  // last: what has come up in this pass is said before anybody sleeps
  return moved;
}

/// The end of everything that changes what others may wait for.
void Engine::settle_pass() noexcept {
  interest_.settle();
  changes_.settle();
}

bool Engine::drain_mailbox(base::Time now) {
  std::size_t found = 0;
  while (std::optional<Submission> item = mailbox_.try_pop()) {
    ++found;
    if (item->command != Command::submit) tell_calls();
    switch (item->command) {
    case Command::submit:
      admit(std::move(item->operation), now);
      break;
    case Command::make_set:
      ask_for_set(std::move(item->operation), now);
      break;
    case Command::join:
    case Command::join_counted:
      begin_join(std::move(item->operation), item->command == Command::join_counted, now);
      break;
    case Command::copy:
      admit_message(static_cast<MessageOperation&>(*item->operation));
      break;
    case Command::end_step:
      if ((item->set != core::kGlobalSet && ending_.is_leaving()) || sets_.joins.find(item->set) != nullptr) break;
      participant_.end_step(item->set);
      if (item->set == core::kGlobalSet) metrics_.end_step();
      break;
    case Command::drop_set:
      if (!ending_.is_leaving()) participant_.drop(item->set);  // else it has dropped all of them
      break;
    case Command::ask:
      ask_who_is_late(*item->operation, now);
      break;
    case Command::leave:
      ending_.leave();
      sets_.close_shortcuts();  // later calls fail on this rank alone
      for (const auto& [set, last] : sets_.avoided()) participant_.pass(set, last);
      participant_.leave();
      break;
    }
  }
  tell_calls();
  if (found > 0) open_.note_found(found);
  return found > 0;
}

/// Takes an operation in; false: it has failed at once. A rank that leaves has dropped its sets, and callbacks may
/// submit while it does.
bool Engine::take_in(Operation& operation, bool in_world, base::Time now) {
  ++metrics_.submissions;
  open_.add(operation, now);
  if (faulted() || ending_.is_closed()) {
    complete(operation, ending_.is_closed() ? ending_.closed_as() : failure_.status());
    return false;
  }
  if (in_world || !ending_.is_leaving()) return true;
  complete(operation, Status(ErrorCode::shut_down, "the context was shut down before this operation was submitted"));
  return false;
}

void Engine::admit(OperationPtr&& operation, base::Time now) {
  Entry& entry = *operation->entry;
  if (entry.sequence != nullptr) return admit_call(std::move(operation), now);
  if (!take_in(*operation, entry.set == core::kGlobalSet, now)) return;
  if (sets_.joins.any() && sets_.joins.find(entry.set) != nullptr) return refuse_absent(*operation);
  if (!entry.slot) sets_.entries.add(entry, participant_.open(entry.set, entry.name));
  entry.operation = std::move(operation);
  if (logger_->enabled(LogLevel::trace)) errands_.log(LogLevel::trace, "submitted: " + record_of(*entry.operation));
  participant_.submit(*entry.slot, entry.operation->signature);
}

/// A request whose entry has a number only while it is open.
void Engine::ask_for_set(OperationPtr operation, base::Time now) {
  if (!take_in(*operation, false, now)) return;
  if (sets_.joins.find(core::kGlobalSet) != nullptr) return refuse_absent(*operation);
  Entry& entry = *operation->entry;
  const core::Signature& signature = *operation->signature;
  sets_.entries.add_for_once(entry, participant_.ask_for_set(signature.ranks, signature.names.front()));
  entry.operation = std::move(operation);
}

void Engine::on_set_made(const control::SetMade& made) {
  const OperationPtr operation = std::move(sets_.entries[made.slot].operation);
  Sets::Made set = sets_.make(made.set, made.members, operation->signature->names.front());
  const core::Topology& topology = set.state->topology;
  executor_.add_set(made.set, std::move(set.plane), topology.size);
  messages_.on_set(set.state->serial);
  if (device_) {
    device_->add_set({made.set, topology.rank, topology.size, made.members, std::move(set.make_device_plane)});
  }
  sets_.entries.forget(made.slot);
  operation->room.set = std::move(set.state);
  complete(*operation, Status());
}

/// Publishes what the participant says: messages first, in order, and nothing before those that wait for room; the
/// departure last.
bool Engine::speak() {
  control::Outbox& outbox = participant_.outbox();
  if (outbox.empty() && unsent_.empty()) return false;
  // Parts of a message that does not fit yet are for the leader, too: it makes the room.
  bool counts = std::any_of(outbox.messages.begin(), outbox.messages.end(), is_of_world_sequence);
  bool loud = !unsent_.empty() || !std::all_of(outbox.messages.begin(), outbox.messages.end(), is_of_world_sequence);
  bool quiet = false;
  // The board has no words for other sets than the world: there may be many, and few of them are busy. What they count
  // comes first: the end of a step before the submissions of the next, a set that is dropped before another is made.
  bool of_sets = false;
  for (const auto& [id, word] : outbox.counts) {
    if (id < core::kFirstRow) continue;
    unsent_.add(control::Counted{id, word});
    of_sets = true;
    (core::counts_completed(id) ? quiet : loud) = true;
  }
  const auto is_said = [](const auto& count) { return count.first >= core::kFirstRow; };
  if (of_sets) {
    outbox.counts.erase(std::remove_if(outbox.counts.begin(), outbox.counts.end(), is_said), outbox.counts.end());
  }
  for (const control::UpMessage& message : outbox.messages) unsent_.add(message);
  outbox.messages.clear();
  std::size_t posted = unsent_.post(board_);
  loud = loud || !unsent_.empty();
  bool moved = posted > 0;
  if (unsent_.empty()) {
    moved |= !outbox.counts.empty();
    std::uint64_t published = 0;
    for (const auto& [id, word] : outbox.counts) {
      if (id == core::kCompleted) {
        quiet = true;
        board_.publish_quietly(id, word);
      } else {
        ++published;
        board_.write_count(id, word);
      }
    }
    if (published > 0) {
      counts = true;
      loud = loud || std::exchange(outbox.counts_for_sets, false);
      board_.ring(published);
    }
    outbox.counts.clear();
    if (outbox.left) {
      unsent_.add(*std::exchange(outbox.left, std::nullopt));
      loud = true;
      posted += unsent_.post(board_);
      moved |= posted > 0;
    }
  }
  metrics_.messages_posted += posted;
  if (!leader_ && ((loud && board_.asleep(0)) || (counts && board_.asleep_hearing_counts(0)) ||
                   (quiet && board_.asleep_hearing_quiet(0)))) {
    link_->wake(0);
    ++metrics_.wakeups_sent;
  }
  return moved;
}

bool Engine::read_log() {
  bool moved = false;
  while (!faulted() && !ending_.is_closed() && board_.next_log_entry(reading_.entry)) {
    moved = true;
    ++metrics_.log_entries;
    const control::ByteView bytes(reading_.entry.data(), reading_.entry.size());
    metrics_.log_bytes += bytes.size();
    const control::LogEntry entry = control::decode_log(bytes);
    if (logger_->enabled(LogLevel::info)) record_plans(entry);
    participant_.on_log(entry, reading_.actions);  // refuses what no log can hold
    sets_.on_log(entry);
    if (!participant_.left().empty()) {
      sets_.close_shortcuts();
      messages_.on_left(participant_.left(), base::now() + base::from_seconds(settings_.latch_timeout_s));
    }
    std::vector<control::Action> actions = std::exchange(reading_.actions, {});  // none is left when one of them throws
    for (control::Action& action : actions) act(action);
    actions.clear();
    reading_.actions = std::move(actions);  // for the memory
  }
  return moved;
}

/// All ranks read the same log: rank 0 tells of it.
void Engine::record_plans(const control::LogEntry& entry) {
  if (topology_.rank != 0) return;
  if (const auto* plan = std::get_if<control::PlanDefined>(&entry)) errands_.log(LogLevel::info, record_of(*plan));
  if (const auto* plan = std::get_if<control::PlanVoided>(&entry)) errands_.log(LogLevel::info, record_of(*plan));
}

void Engine::act(control::Action& action) {
  std::visit(
      Overloaded{
          [this](const control::RunBatch& batch) KOLO_REQUIRES(driver_.mutex()) { run_batch(batch); },
          [this](const control::FailSlot& failed) KOLO_REQUIRES(driver_.mutex()) {
            // Moved out: completing the operation frees its entry for the next submission.
            const OperationPtr operation = std::move(sets_.entries[failed.slot].operation);
            if (core::traits_of(operation->signature->kind).makes_set) sets_.entries.forget(failed.slot);
            if (failed.status.code() == ErrorCode::rank_lost) ending_.note_desertion();
            complete(*operation, failed.status);
          },
          [this](const control::ForgetSlot& forgotten)
              KOLO_REQUIRES(driver_.mutex()) { sets_.entries.forget(forgotten.slot); },
          [this](const control::DropPlan& plan) KOLO_REQUIRES(driver_.mutex()) { executor_.drop_plan(plan.plan_key); },
          [this](const control::ReportStall& report) KOLO_REQUIRES(driver_.mutex()) { report_stall(report.stall); },
          [this](const control::SetMade& made) KOLO_REQUIRES(driver_.mutex()) { on_set_made(made); },
          [this](const control::SetGone& gone) KOLO_REQUIRES(driver_.mutex()) {
            executor_.remove_set(gone.set);
            if (!driver_.in_background() && device_moves()) driver_.ring();
            messages_.on_set_gone(sets_.forget(gone.set));
          },
          [this](const control::JoinDone& done) KOLO_REQUIRES(driver_.mutex()) { end_join(done); },
          [this](const control::RunCalls& batch) KOLO_REQUIRES(driver_.mutex()) { run_calls(batch); },
          [this](const control::FailCall& failed) KOLO_REQUIRES(driver_.mutex()) { fail_call(failed); },
          [this](const control::FailLastCalls& failed) KOLO_REQUIRES(driver_.mutex()) { fail_last_calls(failed); },
          [this](const control::WorldFault& fault) KOLO_REQUIRES(driver_.mutex()) { latch(fault.status); },
          [this](const control::WorldClosed&) KOLO_REQUIRES(driver_.mutex()) { close_log(); },
          [this](const control::PushTransport&) KOLO_REQUIRES(driver_.mutex()) {
            ++metrics_.pushes;
            if (inter_) inter_->push(base::now());
          },
          [this](control::AnswerQuery& query)
              KOLO_REQUIRES(driver_.mutex()) { questions_.add(std::move(query), base::now()); },
      },
      action);
}

void Engine::run_batch(const control::RunBatch& batch) {
  ++metrics_.batches;
  if (!batch.absent.empty()) return run_without_some(batch);
  if (batch.plan_key != 0) ++metrics_.planned_batches;
  std::vector<OperationPtr> members;
  members.reserve(batch.members.size());
  std::uint64_t digest = base::hash_number(batch.members.size());
  for (const control::SlotId slot : batch.members) {
    Entry& entry = sets_.entries[slot];
    digest = base::hash_hash(entry.hash, digest);
    KOLO_CHECK(entry.operation) << "the log runs \"" << entry.name << "\", which this rank has not submitted";
    members.push_back(std::move(entry.operation));
  }
  if (batch.set == core::kGlobalSet)
    metrics_.batch_digest += digest;  // a sum: planned batches come in the order in which they became ready
  start_batch(batch.set, std::move(members), batch.plan_key, batch.number);
}

void Engine::start_batch(core::SetId set, std::vector<OperationPtr> members, std::uint32_t plan_key,
                         std::uint32_t number) {
  executor_.run(set, std::move(members), plan_key, number);
  // A device's work is given to it by the background thread alone.
  if (!driver_.in_background() && device_moves()) driver_.ring();
}

bool Engine::move_backend(base::Time now) {
  if (!failure_.spares_backends()) return false;
  if (inter_) inter_->progress(now);  // first: what has come is tested for in this pass, and not before the next
  const data::Progress result = executor_.progress(
      driver_.in_background(),
      [this](Operation& member, const Status& outcome) {
        driver_.assert_held();
        finish(member, outcome);
      },
      [this](Batch& batch) {
        driver_.assert_held();
        finish(batch);
      });
  if (result != data::Progress::advanced) return false;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the counters' stores stay before these looks
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    if (rank == topology_.local_rank || !board_.asleep_with_batches(rank)) continue;
    link_->wake(rank);
    ++metrics_.wakeups_sent;
  }
  return true;
}

void Engine::finish(Batch& batch) {
  if (batch.sibling == nullptr) participant_.completed(batch.job.set);
  if (batch.absence.is_own) return;
  metrics_.bytes_in_place += batch.job.bytes_in_place;
  for (std::size_t i = 0; i < batch.members.size(); ++i) {
    if (batch.members[i]) finish(*batch.members[i], batch.outcome_of(i));
  }
}

void Engine::finish(Operation& member, const Status& outcome) {
  metrics_.tensors += member.buffers.size();
  for (std::size_t i = 0; i < member.buffers.size(); ++i) {
    metrics_.bytes +=
        static_cast<std::uint64_t>(member.buffers[i].elements) * size_of(member.signature->tensors[i].dtype);
  }
  complete(member, outcome);
}

void Engine::complete(Operation& operation, const Status& status) {
  changes_.note();
  if (logger_->enabled(LogLevel::trace)) {
    errands_.log(LogLevel::trace, (status.ok() ? "done: " : "failed: ") + record_of(operation));
  }
  open_.remove(operation);
  if (!status.ok()) ++metrics_.failures;
  if (status.code() == ErrorCode::mismatch) ++metrics_.mismatches;
  ++(driver_.in_background() ? metrics_.driven_by_background : metrics_.driven_by_waiters);
  Entry& entry = *operation.entry;
  const OperationPtr held = std::move(entry.operation);  // by the entry alone, perhaps
  // Before the handle is done: its owner may submit the name again at once.
  if (entry.sequence == nullptr && !operation.joins) {
    finish_entry(entry);
  } else if (operation.joins) {
    sets_.sequence_of(entry.set).end_join();
  } else if (operation.call != 0) {
    entry.sequence->note_over();
  }
  bool was_interesting = false;
  if (!status.ok() || !operation.complete_unattended(was_interesting)) {
    for (auto& callback : operation.complete(status, was_interesting)) errands_.call(std::move(callback), status);
  }
  if (was_interesting) interest_.note_met();
}

/// Everything that is open. Batches may hold it: they are dropped after this.
void Engine::fail_open(const Status& status) {
  while (!open_.empty()) complete(open_[open_.size() - 1], status);
  for (MessageOperation* operation : device_messages_.take()) complete_message(*operation, status);
  messages_.close(status);
  settle_messages();
  found_calls_ = {};
  sets_.clear_sequences();
}

// ---------------------------------------------------------------- what the poller has

/// True when something has been heard that another pass must deal with before anybody sleeps.
bool Engine::poll_descriptors() noexcept {
  return guarded([&]() KOLO_REQUIRES(driver_.mutex()) {
    const bool is_news = handle_events(driver_.poll());
    return is_news || (leader_ && leader_->has_news());
  });
}

/// Whether a ring or a death was among them. A ring is heard once, and what it was for may have come after the last
/// look at that.
bool Engine::handle_events(const std::vector<base::Poller::Event>& events) {
  bool is_news = false;
  bool sockets = false;
  for (const base::Poller::Event& event : events) {
    if (event.tag == kWakeTag) {
      driver_.hear_ring();
      is_news = true;
    } else if (event.tag == kAlarmTag) {
      driver_.hear_alarm();  // the pass that follows looks at the deadlines
    } else if (event.tag == kTransportTag) {
      // The pass that follows takes what has come. It is reported once for each time that the transport was armed.
    } else if (event.tag == kControlTag) {
      sockets = true;
    } else {
      on_death(static_cast<int>(event.tag - kLivenessTag));
      is_news = true;
    }
  }
  if (sockets && leader_) leader_->service_sockets();
  return is_news;
}

// ---------------------------------------------------------------- what any thread may ask

bool Engine::uses(const std::byte* begin, std::size_t bytes) {
  if (ending_.is_stopped()) return false;
  driver_.take_over();
  const HandOver after(*this);
  progress();  // what lies in the mailbox is open, too
  const auto inside = [&](const std::byte* data) { return data >= begin && data < begin + bytes; };
  const bool used = std::any_of(open_.begin(), open_.end(), [&](const Operation* operation) {
    return std::any_of(operation->buffers.begin(), operation->buffers.end(),
                       [&](const Buffer& buffer) { return inside(buffer.input) || inside(buffer.output); });
  });
  return used || messages_.uses(begin, bytes) || device_messages_.uses(begin, bytes);
}

Metrics Engine::metrics() {
  driver_.take_over();
  const HandOver after(*this);
  Metrics metrics = metrics_.counted();
  const control::ParticipantCounters& counters = participant_.counters();
  const Sets::ShortcutCounts shortcuts = sets_.shortcuts();
  metrics.shortcuts = shortcuts.calls;
  metrics.submissions += shortcuts.calls;
  metrics.tensors += shortcuts.calls;
  metrics.driven_by_waiters += shortcuts.calls;
  metrics.bytes += shortcuts.bytes;
  metrics.signatures_sent = counters.declared;
  metrics.counts_published = counters.bare;
  metrics.plans = counters.plans;
  metrics.plans_voided = counters.plans_voided;
  const p2p::MessageCounters messages = messages_.counters();
  metrics.messages_sent = messages.sent;
  metrics.message_bytes_sent = messages.bytes_sent;
  metrics.messages_received = messages.received;
  metrics.message_bytes_received = messages.bytes_received;
  if (leader_) {
    metrics.control_frames_sent = leader_->counters().frames_sent;
    metrics.control_frames_received = leader_->counters().frames_received;
    metrics.control_bytes_sent = leader_->counters().bytes_sent;
    metrics.wakeups_sent += leader_->counters().wakeups;
  }
  return metrics;
}

}  // namespace kolo::engine
