// SPDX-License-Identifier: Apache-2.0
//
// Why a slot needs no round in a batch entry: a name is in flight at most once on every rank, and round k of it is
// consumed (run or failed) by the log at one place for everybody. So when an entry names an id, this rank's
// submission of it is the one that is in flight, and no other can be meant.
//
// Eviction, seen from here: the entry says that the id's meaning is over. A submission in flight was made under it (by
// count or whole) and has not been appended, or it would not be in flight: so it is void, and is sent again, whole, as
// round 1. An idle name is simply forgotten, and starts at round 1 when it comes back. The id's count word is set
// back to zero, so that no word of an old life can be mistaken for one of the new when generations have gone round.
#include "control/participant.hpp"

#include <algorithm>
#include <deque>
#include <map>

#include "base/check.hpp"
#include "base/quote.hpp"
#include "control/ranges.hpp"

namespace kolo::control {

using core::CollectiveKind;
using core::kNoTensor;
using core::Round;
using core::SetId;
using core::Signature;
using core::TensorId;

namespace {
constexpr SlotId kNoSlot = ~SlotId{0};
}

struct Participant::Impl {
  /// A planned batch as this rank sees it. `submitted` counts its members that are in flight here.
  struct PlannedPart {
    std::uint32_t plan = 0;
    std::uint32_t number = 0;
    std::vector<SlotId> members;
    std::size_t submitted = 0;
    bool reported = false;  ///< an Interest in its present state has been sent
    [[nodiscard]] bool partial() const noexcept { return submitted > 0 && submitted < members.size(); }
  };
  struct Plan {
    SetId set = 0;
    std::vector<PlannedPart> batches;  ///< empty when this rank is no member of the set
  };
  struct Set {
    SetId number = 0;
    TensorId base = 0;
    std::vector<std::int32_t> members;
    bool member = false;    ///< this rank is
    bool has_left = false;  ///< some member has left
    std::uint64_t completed = 0;
    std::uint64_t steps = 0;
    std::uint16_t generation = 0;          ///< of the completed and steps counts
    std::uint16_t unnamed_generation = 0;  ///< of the unnamed calls' signature
    std::unordered_map<std::string, SlotId> names;
  };
  struct Slot {
    Set* set = nullptr;                        ///< null when the slot is free
    std::shared_ptr<const Signature> current;  ///< what the id means in this generation
    PlannedPart* part = nullptr;
    Round round = 0;
    TensorId id = kNoTensor;
    std::uint16_t generation = 0;
    bool in_flight = false;
    bool whole = false;                        ///< the submission in flight was sent whole
    bool counted = false;                      ///< the count word of the present id has been written
    std::shared_ptr<const Signature> pending;  ///< of the submission in flight, when it was sent whole
    std::string name;
  };

  Impl(int rank_of_this, int ranks, std::uint32_t ids) : rank(rank_of_this), size(ranks), capacity(ids) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    add_set(core::kGlobalSet, 0, 0, std::move(all));
  }

  // ---- sets and slots

  void add_set(SetId number, TensorId base, std::uint16_t generation, std::vector<std::int32_t> members) {
    Set& set = sets[number];
    set.number = number;
    set.base = base;
    set.generation = set.unnamed_generation = generation;
    set.member = std::binary_search(members.begin(), members.end(), rank);
    set.members = std::move(members);
    reserve_id(base + core::kReservedIds - 1);
  }

  void reserve_id(TensorId id) {
    if (id >= slot_of.size()) slot_of.resize(std::size_t{id} + 1, kNoSlot);
  }

  Set& set_of(SetId number) {
    const auto found = sets.find(number);
    KOLO_CHECK(found != sets.end()) << "process set " << number << " is not known here";
    return found->second;
  }

  SlotId find(Set& set, const std::string& name) const {
    const auto found = set.names.find(name);
    return found == set.names.end() ? kNoSlot : found->second;
  }

  SlotId open(SetId number, const std::string& name) {
    Set& set = set_of(number);
    const auto [place, is_new] = set.names.try_emplace(name, kNoSlot);
    if (!is_new) return place->second;
    if (free.empty()) {
      free.push_back(static_cast<SlotId>(slots.size()));
      slots.emplace_back();
    }
    const SlotId number_of_slot = free.back();
    free.pop_back();
    place->second = number_of_slot;
    Slot& slot = slots[number_of_slot];
    slot = Slot{};
    slot.set = &set;
    slot.name = name;
    if (name.empty()) {
      slot.id = set.base + core::kUnnamed;
      slot.generation = set.unnamed_generation;
      slot_of[slot.id] = number_of_slot;
    }
    return number_of_slot;
  }

  void forget(SlotId number, std::vector<Action>& actions) {
    Slot& slot = slots[number];
    slot.set->names.erase(slot.name);
    slot.set = nullptr;
    slot.current.reset();
    slot.pending.reset();
    free.push_back(number);
    actions.emplace_back(ForgetSlot{number});
  }

  // ---- submitting

  void submit(SlotId number, const std::shared_ptr<const Signature>& signature, Round round) {
    Slot& slot = slots[number];
    KOLO_CHECK(slot.set != nullptr && slot.set->member) << "no slot of this rank: " << number;
    KOLO_CHECK(!slot.in_flight) << "'" << slot.name << "' is in flight already";
    KOLO_CHECK(round == 0 || round > slot.round) << "round " << round << " after " << slot.round;
    slot.round = round == 0 ? slot.round + 1 : round;
    slot.in_flight = true;
    if (slot.current && (slot.current == signature || *slot.current == *signature)) {
      if (slot.current != signature) slot.current = signature;
      slot.whole = false;
      slot.counted = true;
      ++counters.bare;
      out.counts.emplace_back(slot.id, CountWord{slot.generation, slot.round});
    } else {
      slot.pending = signature;
      declare(slot);
    }
    if (slot.part != nullptr) enter(*slot.part);
    if (slot.set->has_left) ask(slot, 0, false);
  }

  void declare(Slot& slot) {
    slot.whole = true;
    ++counters.declared;
    Declared declared{slot.set->number, slot.name, slot.round, slot.id, slot.generation, {}};
    declared.variants.push_back({*slot.pending, {rank}});
    out.messages.emplace_back(std::move(declared));
  }

  void ask(const Slot& slot, double waited_s, bool deadline) {
    const SetId set = slot.set == nullptr ? core::kGlobalSet : slot.set->number;
    out.messages.emplace_back(Overdue{rank, set, slot.name, slot.round, waited_s, deadline, false});
  }

  // ---- planned batches: how many are partial here and not yet reported

  /// What has been reported is out of date: the sequencer ignores an interest whose first lack has come meanwhile.
  void enter(PlannedPart& part) {
    if (part.partial() && !part.reported) --unreported;
    ++part.submitted;
    part.reported = false;
    if (part.partial()) ++unreported;
  }

  void consume(PlannedPart& part) {
    if (part.partial() && !part.reported) --unreported;
    part.submitted = 0;
    part.reported = false;
  }

  void report_interest() {
    for (auto& [number, plan] : plans) {
      for (PlannedPart& part : plan.batches) {
        if (!part.partial() || part.reported) continue;
        part.reported = true;
        --unreported;
        out.messages.emplace_back(interest(part));
      }
    }
  }

  Interest interest(const PlannedPart& part) const {
    Interest message{rank, part.plan, part.number, {}, 0};
    for (const SlotId member : part.members) {
      const Slot& slot = slots[member];
      if (slot.in_flight) continue;
      if (message.lacking.empty()) message.round = slot.round + 1;
      message.lacking.push_back(slot.id);
    }
    return message;
  }

  // ---- the log

  /// The set of an entry of the log.
  Set& set_in_log(SetId number) {
    const auto found = sets.find(number);
    require(found != sets.end(), "there is no such process set");
    return found->second;
  }

  /// The slot of an id that an entry of the log has for a set.
  SlotId slot_in_log(const Set& set, TensorId id) const {
    require(id < slot_of.size() && slot_of[id] != kNoSlot && slots[slot_of[id]].set == &set,
            "the log runs a tensor that this rank does not know");
    return slot_of[id];
  }

  /// Whether an id counts something else than submissions of that name.
  bool is_reserved(TensorId id, const Set& of, const std::string& name) const {
    return std::any_of(sets.begin(), sets.end(), [&](const auto& item) {
      const Set& set = item.second;
      const bool is_own = &set == &of && id == set.base + core::kUnnamed && name.empty();
      return !is_own && id >= set.base && id < set.base + core::kReservedIds;
    });
  }

  void on(const Assigned& entry, std::vector<Action>&) {
    Set& set = set_in_log(entry.set);
    require(!is_reserved(entry.id, set, entry.name) && entry.name.empty() == (entry.id == set.base + core::kUnnamed),
            "an id was assigned that is in use");
    reserve_id(entry.id);
    if (entry.name.empty()) set.unnamed_generation = entry.generation;
    if (!set.member) {
      slot_of[entry.id] = kNoSlot;
      return;
    }
    const SlotId number = find(set, entry.name);
    require(number != kNoSlot && slots[number].in_flight, "the log names what this rank has not submitted");
    require(slot_of[entry.id] == kNoSlot || slot_of[entry.id] == number, "an id was assigned that is in use");
    require(slots[number].id == kNoTensor || slots[number].id == entry.id, "a name was given a second id");
    Slot& slot = slots[number];
    slot.counted = slot.counted && slot.id == entry.id;
    slot.id = entry.id;
    slot.generation = entry.generation;
    // The caller's own object stays the current one: the next submission then compares equal by its address.
    const bool mine = slot.pending && *slot.pending == entry.signature;
    slot.current = mine ? slot.pending : std::make_shared<const Signature>(entry.signature);
    slot_of[entry.id] = number;
  }

  void on(const Evicted& entry, std::vector<Action>& actions) {
    require(entry.id < slot_of.size(), "an id was evicted that means nothing");
    const SlotId number = slot_of[entry.id];
    if (number == kNoSlot) return;
    require(!slots[number].name.empty() && slots[number].part == nullptr, "an id was evicted that is still needed");
    slot_of[entry.id] = kNoSlot;
    Slot& slot = slots[number];
    if (slot.counted) out.counts.emplace_back(entry.id, CountWord{});
    slot.counted = false;
    slot.id = kNoTensor;
    slot.generation = 0;
    if (!slot.in_flight) {
      forget(number, actions);
      return;
    }
    if (!slot.whole) slot.pending = slot.current;
    slot.current.reset();
    slot.round = 1;
    declare(slot);
    if (slot.set->has_left) ask(slot, 0, false);
  }

  void run(SlotId number) {
    Slot& slot = slots[number];
    require(slot.in_flight, "the log runs what this rank has not submitted");
    slot.in_flight = false;
    if (slot.pending) slot.pending.reset();
  }

  void on(const BatchAppended& entry, std::vector<Action>& actions) {
    const Set& set = set_in_log(entry.set);
    if (!set.member) return;
    RunBatch batch;
    batch.set = entry.set;
    batch.members.reserve(entry.members.size());
    for (const TensorId id : entry.members) {
      const SlotId slot = slot_in_log(set, id);
      batch.members.push_back(slot);
      run(slot);
    }
    ++counters.batches;
    actions.emplace_back(std::move(batch));
  }

  void on(const PlanDefined& entry, std::vector<Action>&) {
    ++counters.plans;
    const Set& set = set_in_log(entry.set);
    require(plans.count(entry.plan) == 0, "a plan was defined that there is already");
    Plan& plan = plans[entry.plan];
    plan.set = entry.set;
    if (!set.member) return;
    plan.batches.resize(entry.batches.size());  // never again: slots point into it
    for (std::size_t i = 0; i < entry.batches.size(); ++i) {
      PlannedPart& part = plan.batches[i];
      part.plan = entry.plan;
      part.number = static_cast<std::uint32_t>(i);
      for (const TensorId id : entry.batches[i]) {
        const SlotId slot = slot_in_log(set, id);
        require(slots[slot].part == nullptr, "a tensor stands in two planned batches");
        slots[slot].part = &part;
        part.members.push_back(slot);
      }
      for (const SlotId member : part.members) {
        if (slots[member].in_flight) enter(part);
      }
    }
  }

  void on(const PlanVoided& entry, std::vector<Action>& actions) {
    ++counters.plans_voided;
    const auto found = plans.find(entry.plan);
    require(found != plans.end(), "there is no such plan");
    for (PlannedPart& part : found->second.batches) {
      consume(part);
      for (const SlotId member : part.members) slots[member].part = nullptr;
    }
    const bool member = !found->second.batches.empty();
    plans.erase(found);
    if (member) actions.emplace_back(DropPlan{entry.plan + 1});
  }

  void on(const PlannedBatch& entry, std::vector<Action>& actions) {
    const auto found = plans.find(entry.plan);
    require(found != plans.end(), "there is no such plan");
    Plan& plan = found->second;
    if (plan.batches.empty()) return;
    require(entry.number < plan.batches.size(), "there is no such batch of the plan");
    PlannedPart& part = plan.batches[entry.number];
    for (const SlotId member : part.members) run(member);
    consume(part);
    ++counters.batches;
    ++counters.planned_batches;
    actions.emplace_back(RunBatch{plan.set, part.members, entry.plan + 1, entry.number});
  }

  void on(const Failed& entry, std::vector<Action>& actions) {
    if (entry.code == ErrorCode::rank_lost && first_to_leave.empty()) first_to_leave = left;
    Set& set = set_in_log(entry.set);
    const SlotId number = set.member ? find(set, entry.name) : kNoSlot;
    if (number == kNoSlot) return;
    Slot& slot = slots[number];
    if (!slot.in_flight || slot.round != entry.round) return;
    slot.in_flight = false;
    slot.pending.reset();
    if (entry.code == ErrorCode::mismatch) ++counters.mismatches;
    actions.emplace_back(FailSlot{number, Status(entry.code, entry.message)});
  }

  void on(const Query& entry, std::vector<Action>& actions) {
    if (!entry.deadline) return;
    const auto set = sets.find(entry.set);
    if (set == sets.end() || !set->second.member) return;
    const SlotId number = find(set->second, entry.name);
    Answer answer;
    answer.query = entry.query;
    answer.rank = rank;
    answer.submitted = entry.round == 0 || (number != kNoSlot && slots[number].round >= entry.round);
    actions.emplace_back(AnswerQuery{std::move(answer)});
  }

  void on(const Stalled& entry, std::vector<Action>& actions) { actions.emplace_back(ReportStall{entry}); }

  SlotId complete_request(const std::string& name) {
    const SlotId number = find(set_of(core::kGlobalSet), name);
    require(number != kNoSlot, "a process set changed without this rank's request");
    run(number);
    return number;
  }

  void on(const SetAdded& entry, std::vector<Action>& actions) {
    require(sets.count(entry.set) == 0, "a process set was added that there is already");
    for (TensorId id = entry.base; id < entry.base + core::kReservedIds; ++id) {
      require(id >= slot_of.size() || slot_of[id] == kNoSlot, "an id was assigned that is in use");
    }
    const SlotId request = complete_request(entry.name);
    add_set(entry.set, entry.base, entry.generation, entry.members);
    actions.emplace_back(SetChanged{entry.set, entry.members, request});
  }

  void on(const SetRemoved& entry, std::vector<Action>& actions) {
    Set& set = set_in_log(entry.set);
    require(entry.set != core::kGlobalSet, "the world's process set was removed");
    require(std::none_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan.second.set == entry.set; }),
            "a process set was removed that has a plan");
    const SlotId request = complete_request(entry.name);
    std::vector<SlotId> numbers;
    numbers.reserve(set.names.size());
    for (const auto& [name, number] : set.names) numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    for (const SlotId number : numbers) {
      Slot& slot = slots[number];
      if (slot.in_flight) {
        const std::string what = slot.name.empty() ? "an unnamed call" : "tensor " + base::quoted(slot.name);
        actions.emplace_back(
            FailSlot{number, Status(ErrorCode::invalid_argument, "process set " + std::to_string(entry.set) +
                                                                     " was removed while " + what +
                                                                     " was in flight; wait for its handle first")});
      }
      if (slot.id != kNoTensor) {
        if (slot.counted) out.counts.emplace_back(slot.id, CountWord{});
        slot_of[slot.id] = kNoSlot;
      }
      forget(number, actions);
    }
    sets.erase(entry.set);
    actions.emplace_back(SetChanged{entry.set, {}, request});
  }

  void on(const RankLeft& entry, std::vector<Action>&) {
    if (entry.rank == rank) return;
    left.insert(std::upper_bound(left.begin(), left.end(), entry.rank), entry.rank);
    for (auto& [number, set] : sets) {
      if (set.member && std::binary_search(set.members.begin(), set.members.end(), entry.rank)) set.has_left = true;
    }
    for (const Slot& slot : slots) {
      if (slot.set != nullptr && slot.in_flight && slot.set->has_left) ask(slot, 0, false);
    }
  }

  void on(const Faulted& entry, std::vector<Action>& actions) {
    actions.emplace_back(WorldFault{Status(entry.code, entry.message), entry.rank});
  }

  void on(const Closed&, std::vector<Action>& actions) { actions.emplace_back(WorldClosed{}); }

  void on(const Push&, std::vector<Action>& actions) { actions.emplace_back(PushTransport{}); }

  const std::int32_t rank;
  const std::int32_t size;
  const std::uint32_t capacity;
  std::map<SetId, Set> sets;  ///< slots point into it
  std::deque<Slot> slots;     ///< names are handed out by reference
  std::vector<SlotId> free;
  std::vector<SlotId> slot_of;  ///< by id; its length is the bound of ids
  std::map<std::uint32_t, Plan> plans;
  std::size_t unreported = 0;  ///< planned batches that are partial here and not reported
  bool interested = false;
  std::vector<std::int32_t> left;
  std::vector<std::int32_t> first_to_leave;  ///< empty until a submission has failed because of that
  Outbox out;
  ParticipantCounters counters;
};

Participant::Participant(int rank, int size, std::uint32_t capacity)
    : impl_(std::make_unique<Impl>(rank, size, capacity)) {}
Participant::~Participant() = default;

SlotId Participant::open(SetId set, const std::string& name) { return impl_->open(set, name); }

void Participant::submit(SlotId slot, const std::shared_ptr<const Signature>& signature, Round round) {
  impl_->submit(slot, signature, round);
}

void Participant::completed(SetId set) {
  // A batch may complete after its set is gone.
  const auto found = impl_->sets.find(set);
  if (found == impl_->sets.end()) return;
  Impl::Set& known = found->second;
  impl_->out.counts.emplace_back(known.base + core::kCompleted, CountWord{known.generation, ++known.completed});
}

void Participant::end_step(SetId set) {
  Impl::Set& known = impl_->set_of(set);
  KOLO_CHECK(known.member) << "a step of process set " << set << " ends on a rank that is no member";
  impl_->out.counts.emplace_back(known.base + core::kSteps, CountWord{known.generation, ++known.steps});
}

void Participant::set_interested(bool interested) { impl_->interested = interested; }

void Participant::overdue(SlotId slot, double waited_s, bool deadline) {
  impl_->ask(impl_->slots[slot], waited_s, deadline);
}

void Participant::overdue_running(SetId set, const std::string& name, double waited_s) {
  const auto found = impl_->sets.find(set);
  const SlotId slot = found == impl_->sets.end() ? kNoSlot : impl_->find(found->second, name);
  const Round round = slot == kNoSlot ? 0 : impl_->slots[slot].round;
  impl_->out.messages.emplace_back(Overdue{impl_->rank, set, name, round, waited_s, true, true});
}

void Participant::answer(Answer answer) { impl_->out.messages.emplace_back(std::move(answer)); }

Round Participant::round_of(SlotId slot) const { return impl_->slots[slot].round; }

void Participant::starved() { impl_->out.messages.emplace_back(Starved{impl_->rank}); }

void Participant::leave() { impl_->out.left = Left{impl_->rank}; }

void Participant::on_log(const LogEntry& entry, std::vector<Action>& actions) {
  ++impl_->counters.log_entries;
  check_ranges(entry, impl_->size, impl_->capacity);
  std::visit([this, &actions](const auto& value) { impl_->on(value, actions); }, entry);
}

Outbox& Participant::outbox() noexcept {
  if (impl_->interested && impl_->unreported > 0) impl_->report_interest();
  return impl_->out;
}

const ParticipantCounters& Participant::counters() const noexcept { return impl_->counters; }
bool Participant::in_flight(SlotId slot) const { return impl_->slots[slot].in_flight; }
const std::string& Participant::name_of(SlotId slot) const { return impl_->slots[slot].name; }
const std::vector<std::int32_t>& Participant::left() const noexcept { return impl_->left; }
const std::vector<std::int32_t>& Participant::first_to_leave() const noexcept {
  return impl_->first_to_leave.empty() ? impl_->left : impl_->first_to_leave;
}
bool Participant::has_left(std::int32_t rank) const noexcept {
  return std::binary_search(impl_->left.begin(), impl_->left.end(), rank);
}
TensorId Participant::id_bound() const noexcept { return static_cast<TensorId>(impl_->slot_of.size()); }

}  // namespace kolo::control
