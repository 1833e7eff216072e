// SPDX-License-Identifier: Apache-2.0
//
// Why a slot needs no round in a batch entry: a name is in flight at most once on every rank, and round k of it is
// consumed (run or failed) by the log at one place for all ranks. An entry that names an id therefore means the
// submission that this rank has in flight.
//
// Eviction. The entry ends the id's meaning. A submission in flight was made under that meaning and has not been
// appended; it is void, and is sent again, whole, as round 1. An idle name is forgotten, and starts at round 1 when it
// comes back. The id's count word is set to zero, so that an old word is not mistaken for a new one when generations
// have wrapped around.
#include "control/participant.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "control/participant/departed_ranks.hpp"
#include "control/participant/joining.hpp"
#include "control/participant/sequences.hpp"
#include "control/participant/planned_parts.hpp"
#include "control/participant/publisher.hpp"
#include "control/participant/names.hpp"
#include "control/ranges.hpp"

namespace kolo::control {

using core::CollectiveKind;
using core::kNoTensor;
using core::Round;
using core::SetId;
using core::Signature;
using core::TensorId;
using participant::kNoSlot;

struct Participant::Impl {
  using Members = participant::Members;
  using Set = participant::Set;
  using Slot = participant::Slot;

  Impl(int rank_of_this, int ranks, std::uint32_t ids) : rank(rank_of_this), size(ranks), capacity(ids) {
    Members all(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    slots.add_set(core::kGlobalSet, 0, 0, std::move(all));
  }

  // ---- submitting

  void submit(SlotId number, const std::shared_ptr<const Signature>& signature) {
    Slot& slot = slots[number];
    KOLO_CHECK(slot.set != nullptr && slot.set->member) << "no slot of this rank: " << number;
    KOLO_CHECK(!slot.set->is_dropped) << "process set " << slot.set->number << " was dropped";
    KOLO_CHECK(slot.set->join == kNoSlot) << "this rank has joined in process set " << slot.set->number;
    KOLO_CHECK(!slot.in_flight) << "'" << slot.name << "' is in flight already";
    ++slot.round;
    slot.serial = ++submissions;
    slot.in_flight = true;
    if (slot.current && (slot.current == signature || *slot.current == *signature)) {
      if (slot.current != signature) slot.current = signature;
      publisher.count(slot);
    } else {
      slot.pending = signature;
      publisher.declare(slot);
    }
    if (slot.part != nullptr) plans.enter(*slot.part);
    if (publisher.lacks_somebody(slot)) publisher.ask(slot, 0, false);
  }

  void call(Set& set, const std::shared_ptr<const Signature>& signature, Round first, std::uint64_t count) {
    KOLO_CHECK(set.member && !set.is_dropped && set.join == kNoSlot && !has_said_departure)
        << "process set " << set.number;
    KOLO_CHECK(first > std::max(set.sequence.made, set.sequence.passed) && count > 0) << "call " << first;
    calls.call(set, signature, first, count);
  }

  SlotId ask_for_set(const Members& ranks, const std::string& name) {
    auto signature = std::make_shared<Signature>();
    signature->kind = CollectiveKind::add_process_set;
    signature->ranks = ranks;
    Members members = ranks;
    std::sort(members.begin(), members.end());
    const SlotId number = slots.open_request(members, name);
    submit(number, signature);
    return number;
  }

  SlotId join(Set& set, Round begun, bool counts) {
    KOLO_CHECK(set.member && !set.is_dropped && set.join == kNoSlot) << "process set " << set.number;
    return joins.join(set, begun, counts);
  }

  void leave() {
    has_said_departure = true;
    for (auto& [number, set] : slots.sets()) {
      if (number != core::kGlobalSet && set.member && !set.is_dropped) publisher.drop(set);
    }
    Departed& departure = publisher.outbox().departed.emplace(Departed{rank});
    for (const auto& [number, set] : slots.sets()) {
      const Round calls_made = std::max(set.sequence.made, set.sequence.passed);
      if (calls_made > 0) departure.sequences.push_back({number, calls_made, set.sequence.passed});
    }
  }

  // ---- the log: names and batches

  void on(const Assigned& entry, std::vector<Action>&) {
    Set& set = slots.set_in_log(entry.set);
    slots.reserve_id(entry.id);
    if (!set.member) {
      slots.slot_of(entry.id) = kNoSlot;
      return;
    }
    const bool is_absent = set.absent.has(rank);
    const SlotId number = is_absent ? slots.open(set, entry.name) : slots.find(set, entry.name);
    require(number != kNoSlot && (is_absent || slots[number].in_flight),
            "the log names what this rank has not submitted");
    require(slots.slot_of(entry.id) == kNoSlot || slots.slot_of(entry.id) == number,
            "an id was assigned that is in use");
    require(slots[number].id == kNoTensor || slots[number].id == entry.id, "a name was given a second id");
    Slot& slot = slots[number];
    slot.counted = slot.counted && slot.id == entry.id;
    slot.id = entry.id;
    slot.generation = entry.generation;
    // The caller's own object stays the current one: the next submission then compares equal by its address.
    const bool mine = slot.pending && *slot.pending == entry.signature;
    slot.current = mine ? slot.pending : std::make_shared<const Signature>(entry.signature);
    slots.slot_of(entry.id) = number;
  }

  void on(const Evicted& entry, std::vector<Action>& actions) {
    require(slots.is_known(entry.id), "an id was evicted that means nothing");
    const SlotId number = slots.slot_of(entry.id);
    if (number == kNoSlot) return;
    require(slots[number].part == nullptr, "an id was evicted that is still needed");
    slots.slot_of(entry.id) = kNoSlot;
    Slot& slot = slots[number];
    if (slot.counted) publisher.clear_word(entry.id);
    slot.counted = false;
    slot.id = kNoTensor;
    slot.generation = 0;
    if (!slot.in_flight) {
      slots.forget(number, actions);
      return;
    }
    if (!slot.whole) slot.pending = slot.current;
    slot.current.reset();
    slot.round = 1;
    if (slot.set->join == kNoSlot) publisher.declare(slot);
    slot.whole = true;
    if (publisher.lacks_somebody(slot)) publisher.ask(slot, 0, false);
  }

  void on(const BatchAppended& entry, std::vector<Action>& actions) {
    Set& set = slots.set_in_log(entry.set);
    if (!set.member) return;
    ++set.run;
    RunBatch batch;
    batch.set = entry.set;
    batch.last = entry.last;
    batch.members.reserve(entry.members.size());
    for (const TensorId id : entry.members) {
      const SlotId slot = slots.slot_in_log(set, id);
      batch.members.push_back(slot);
      if (set.absent.empty()) {
        slots.run(slot);
      } else {
        joins.run_without_some(set, slot, batch);
      }
    }
    ++counters.batches;
    actions.emplace_back(std::move(batch));
  }

  void on(const Failed& entry, std::vector<Action>& actions) {
    const Request& request = entry.request;
    if (entry.code == ErrorCode::rank_lost) departed.note_failure();
    Set& set = slots.set_in_log(request.set);
    if (request.members.empty()) set.absent.consume(request.name);
    const bool is_absent = request.members.empty() && set.absent.has(rank);
    SlotId number = set.member ? slots.find(set, request.name, request.members) : kNoSlot;
    if (number == kNoSlot && is_absent) number = slots.open(set, request.name);
    if (number == kNoSlot) return;
    Slot& slot = slots[number];
    if (is_absent && !slot.in_flight) slot.round = std::max(slot.round, request.round);
    if (!slot.in_flight || slot.round != request.round) return;
    slot.in_flight = false;
    slot.serial = 0;
    slot.pending.reset();
    if (entry.code == ErrorCode::mismatch) ++counters.mismatches;
    actions.emplace_back(FailSlot{number, Status(entry.code, entry.message)});
    if (!slot.members.empty()) slots.forget(number, actions);
    publisher.finish_dropped(set);
  }

  void on(const PlanDefined& entry, std::vector<Action>&) { plans.on(entry); }
  void on(const PlanVoided& entry, std::vector<Action>& actions) { plans.on(entry, actions); }
  void on(const PlannedBatch& entry, std::vector<Action>& actions) { plans.on(entry, actions); }
  void on(const SequenceAppended& entry, std::vector<Action>& actions) { calls.on(entry, actions); }
  void on(const SequenceFailed& entry, std::vector<Action>& actions) { calls.on(entry, actions); }
  void on(const SequenceEnded& entry, std::vector<Action>& actions) { calls.on(entry, actions); }

  // ---- the log: waits

  void on(const Query& entry, std::vector<Action>& actions) {
    const Request& request = entry.request;
    const auto set = slots.sets().find(request.set);
    if (set == slots.sets().end()) return;
    const Members& members = request.members.empty() ? set->second.members : request.members;
    if (!std::binary_search(members.begin(), members.end(), rank)) return;
    Answer answer;
    answer.query = entry.query;
    answer.rank = rank;
    answer.submitted = has_submitted(set->second, request, entry.asker == rank);
    actions.emplace_back(AnswerQuery{std::move(answer)});
  }

  /// `is_mine`: this rank asks, so the serial is its own.
  bool has_submitted(const Set& set, const Request& request, bool is_mine) const {
    const bool has_joined = request.members.empty() && set.join != kNoSlot;
    if (has_joined || (request.round == 0 && !request.join)) return true;
    if (request.join) return set.joins >= request.round;
    if (request.is_call()) return std::max(set.sequence.made, set.sequence.passed) >= request.round;
    const SlotId number = slots.find(set, request.name, request.members);
    if (number == kNoSlot) return false;
    const Slot& slot = slots[number];
    return is_mine ? slot.serial == request.serial : slot.in_flight || slot.round >= request.round;
  }

  void on(const Stalled& entry, std::vector<Action>& actions) { actions.emplace_back(ReportStall{entry}); }
  void on(const Push&, std::vector<Action>& actions) { actions.emplace_back(PushTransport{}); }

  // ---- the log: sets and ranks

  void on(const SetAdded& entry, std::vector<Action>& actions) {
    require(slots.sets().count(entry.set) == 0, "a process set was added that there is already");
    const auto has_row = [&entry](const auto& item) { return item.second.base == entry.base; };
    require(std::none_of(slots.sets().begin(), slots.sets().end(), has_row),
            "a row of ids was reserved that is in use");
    Members members = entry.members;
    std::sort(members.begin(), members.end());
    const auto request = slots.requests().find({members, entry.name});
    const bool is_member = std::binary_search(members.begin(), members.end(), rank);
    require(is_member == (request != slots.requests().end()), "a process set was made without this rank's request");
    Set& set = slots.add_set(entry.set, entry.base, entry.generation, std::move(members));
    set.has_departed = departed.has_any(set.members);
    if (!is_member) return;
    const SlotId number = request->second;
    slots.run(number);
    actions.emplace_back(SetMade{entry.set, entry.members, number});
    slots.forget(number, actions);
    if (has_said_departure) publisher.drop(set);
  }

  void on(const SetRemoved& entry, std::vector<Action>& actions) {
    Set& set = slots.set_in_log(entry.set);
    require(entry.set != core::kGlobalSet, "the world's process set was removed");
    require(!plans.has_plan(set), "a process set was removed that has a plan");
    require(set.said_so == set.member, "a process set was removed that this rank has not dropped");
    std::vector<SlotId> numbers;
    numbers.reserve(set.names.size());
    for (const auto& [name, number] : set.names) numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    for (const SlotId number : numbers) {
      const Slot& slot = slots[number];
      if (slot.id != kNoTensor) {
        if (slot.counted) publisher.clear_word(slot.id);
        slots.slot_of(slot.id) = kNoSlot;
      }
      slots.forget(number, actions);
    }
    // An old word must not be mistaken for one of a later use of the row when generations have wrapped around.
    if (set.completed > 0) publisher.clear_word(set.base + core::kCompleted);
    if (set.steps > 0) publisher.clear_word(set.base + core::kSteps);
    if (set.said_so) publisher.clear_word(set.base + core::kDropped);
    if (set.member) actions.emplace_back(SetGone{entry.set});
    slots.sets().erase(entry.set);
  }

  void on(const RankDeparted& entry, std::vector<Action>&) {
    if (entry.rank == rank) return;
    departed.add(entry.rank, entry.because);
    for (auto& [number, set] : slots.sets()) {
      if (set.member && std::binary_search(set.members.begin(), set.members.end(), entry.rank)) set.has_departed = true;
    }
    for (SlotId at = 0; at < slots.size(); ++at) {
      const Slot& slot = slots[at];
      if (slot.set != nullptr && slot.in_flight && !slot.is_join && publisher.lacks_somebody(slot))
        publisher.ask(slot, 0, false);
    }
    for (const auto& [number, set] : slots.sets()) {
      if (set.has_departed && has_calls_in_flight(set)) publisher.ask(set);
    }
  }

  void on(const RankJoined& entry, std::vector<Action>&) { joins.on(entry); }
  void on(const JoinEnded& entry, std::vector<Action>& actions) { joins.on(entry, actions); }

  void on(const Faulted& entry, std::vector<Action>& actions) {
    actions.emplace_back(WorldFault{Status(entry.code, entry.message), entry.rank});
  }

  void on(const Closed&, std::vector<Action>& actions) { actions.emplace_back(WorldClosed{}); }

  // Each part uses those before it.
  const std::int32_t rank;
  const std::int32_t size;
  const std::uint32_t capacity;
  ParticipantCounters counters;
  participant::SlotTable slots{rank};
  participant::DepartedRanks departed;
  participant::Publisher publisher{rank, slots, departed, counters};
  participant::PlannedParts plans{rank, slots, publisher, counters};
  participant::OwnCalls calls{rank, slots, departed, publisher, counters};
  participant::Joins joins{rank, slots, departed, publisher, plans, calls, counters};
  std::uint64_t submissions = 0;  ///< made by this rank, of all names
  bool awaiting = false;
  bool has_said_departure = false;
};

Participant::Participant(int rank, int size, std::uint32_t capacity)
    : impl_(std::make_unique<Impl>(rank, size, capacity)) {}
Participant::~Participant() = default;

SlotId Participant::open(SetId set, const std::string& name) {
  return impl_->slots.open(impl_->slots.set_of(set), name);
}

void Participant::submit(SlotId slot, const std::shared_ptr<const Signature>& signature) {
  impl_->submit(slot, signature);
}

void Participant::completed(SetId set) {
  Impl::Set& known = impl_->slots.set_of(set);
  ++known.completed;
  if (known.join == kNoSlot || known.absent.has(impl_->rank)) impl_->publisher.publish_completed(known);
  impl_->publisher.finish_dropped(known);
}

void Participant::call(SetId set, const std::shared_ptr<const Signature>& signature, Round first, std::uint64_t count) {
  impl_->call(impl_->slots.set_of(set), signature, first, count);
}

void Participant::pass(SetId set, Round last) { participant::OwnCalls::pass(impl_->slots.set_of(set).sequence, last); }

void Participant::overdue_call(SetId set, Round call, core::CollectiveKind kind, double waited_s, bool deadline,
                               bool running) {
  const Request request{impl_->slots.set_of(set).number, kSequence, call};
  impl_->publisher.say(Overdue{impl_->rank, request, waited_s, deadline, running, kind});
}

SlotId Participant::ask_for_set(const std::vector<std::int32_t>& ranks, const std::string& name) {
  return impl_->ask_for_set(ranks, name);
}

SlotId Participant::join(SetId set, Round calls, bool counts) {
  return impl_->join(impl_->slots.set_of(set), calls, counts);
}

void Participant::drop(SetId set) {
  Impl::Set& known = impl_->slots.set_of(set);
  KOLO_CHECK(set != core::kGlobalSet && known.member && !known.is_dropped) << "process set " << set;
  impl_->publisher.drop(known);
}

void Participant::end_step(SetId set) {
  Impl::Set& known = impl_->slots.set_of(set);
  KOLO_CHECK(known.member) << "a step of process set " << set << " ends on a rank that is no member";
  impl_->publisher.count_steps(known, known.steps + 1);
}

void Participant::set_awaiting(bool awaiting) { impl_->awaiting = awaiting; }

void Participant::overdue(SlotId slot, double waited_s, bool deadline) {
  impl_->publisher.ask(impl_->slots[slot], waited_s, deadline);
}

void Participant::ask(SlotId slot, double waited_s) { impl_->publisher.ask(impl_->slots[slot], waited_s, false, true); }

void Participant::ask_call(SetId set, Round call, core::CollectiveKind kind, double waited_s) {
  const Request request{impl_->slots.set_of(set).number, kSequence, call};
  impl_->publisher.say(Overdue{impl_->rank, request, waited_s, false, false, kind, true});
}

void Participant::overdue_running(SetId set, const std::string& name, double waited_s) {
  const auto found = impl_->slots.sets().find(set);
  const SlotId slot = found == impl_->slots.sets().end() ? kNoSlot : impl_->slots.find(found->second, name);
  Request request{set, name};
  if (slot != kNoSlot) {
    request.round = impl_->slots[slot].round;
    request.serial = impl_->slots[slot].serial;
  }
  impl_->publisher.say(Overdue{impl_->rank, request, waited_s, true, true});
}

void Participant::answer(Answer answer) { impl_->publisher.say(std::move(answer)); }

Round Participant::round_of(SlotId slot) const { return impl_->slots[slot].round; }

void Participant::starved() { impl_->publisher.say(Starved{impl_->rank}); }

void Participant::leave() { impl_->leave(); }

void Participant::on_log(const LogEntry& entry, std::vector<Action>& actions) {
  ++impl_->counters.log_entries;
  check_ranges(entry, impl_->size, impl_->capacity);
  std::visit([this, &actions](const auto& value) { impl_->on(value, actions); }, entry);
}

Outbox& Participant::outbox() {
  if (impl_->awaiting && impl_->plans.has_unreported()) impl_->plans.report_awaited();
  if (impl_->calls.has_news()) impl_->calls.speak_of_calls();
  return impl_->publisher.outbox();
}

const ParticipantCounters& Participant::counters() const noexcept { return impl_->counters; }
bool Participant::in_flight(SlotId slot) const { return impl_->slots[slot].in_flight; }
const std::string& Participant::name_of(SlotId slot) const { return impl_->slots[slot].name; }
const std::shared_ptr<const core::Signature>& Participant::signature_of(SlotId slot) const {
  return impl_->slots[slot].current;
}
const std::vector<std::int32_t>& Participant::departed() const noexcept { return impl_->departed.all(); }
const std::map<std::int32_t, std::int32_t>& Participant::causes_of_departures() const noexcept {
  return impl_->departed.because();
}
std::vector<std::int32_t> Participant::first_to_leave() const { return impl_->departed.first(); }
std::int32_t Participant::earliest_to_leave(const std::vector<std::int32_t>& ranks) const {
  return impl_->departed.earliest_of(ranks);
}
bool Participant::has_departed(std::int32_t rank) const noexcept { return impl_->departed.has(rank); }
TensorId Participant::id_bound() const noexcept { return impl_->slots.id_bound(); }

}  // namespace kolo::control
