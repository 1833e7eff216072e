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
//
// Joining, seen from here: from `RankJoined` on this rank is absent, and what the log runs or fails without it counts
// as a round of its slot, which is opened if there is none. So when it returns its rounds are the others'. Between
// `join` and that entry nothing can run without it. What is in flight while it joins has been said in `Joined`, and is
// not said again after an eviction.
#include "control/participant.hpp"

#include <algorithm>
#include <map>

#include "base/check.hpp"
#include "base/quote.hpp"
#include "base/stable_vector.hpp"
#include "control/absentees.hpp"
#include "control/ranges.hpp"
#include "control/sequence.hpp"

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
  struct Set;
  struct Plan {
    SetId set = 0;
    Set* owner = nullptr;              ///< the set, which stays as long as it has a plan
    std::vector<PlannedPart> batches;  ///< empty when this rank is no member of the set
  };
  /// Of this rank's unnamed asynchronous calls in a set. `run`: how many the log has run or failed.
  struct Sequence {
    explicit Sequence(SetId set) : said(set) {}
    SequenceSender said;
    Round run = 0;
    Round last = ~Round{0};                ///< no later call can run: a rank has left
    std::map<std::int32_t, Round> joined;  ///< how far the absent ranks have come
    /// Those that have not made this call, ascending.
    [[nodiscard]] std::vector<std::int32_t> without(Round call) const {
      std::vector<std::int32_t> ranks;
      for (const auto& [rank, calls] : joined) {
        if (calls < call) ranks.push_back(rank);
      }
      return ranks;
    }
  };
  struct Set {
    explicit Set(SetId its_number) : number(its_number), sequence(its_number) {}
    SetId number = 0;
    TensorId base = 0;
    std::vector<std::int32_t> members;
    bool member = false;      ///< this rank is
    bool has_left = false;    ///< some member has left
    bool is_dropped = false;  ///< by this rank's program
    bool said_so = false;     ///< and this rank has done with it
    SlotId join = kNoSlot;    ///< of this rank, which has joined
    Absentees absent;         ///< of the members, if this rank is one
    std::uint64_t joins = 0;  ///< that have ended
    std::uint64_t run = 0;    ///< batches that were handed out
    std::uint64_t completed = 0;
    std::uint64_t steps = 0;
    std::uint16_t generation = 0;          ///< of the completed and steps counts
    std::uint16_t unnamed_generation = 0;  ///< of the unnamed calls' signature
    std::unordered_map<std::string, SlotId> names;
    Sequence sequence;
  };
  struct Slot {
    Set* set = nullptr;                        ///< null when the slot is free
    std::shared_ptr<const Signature> current;  ///< what the id means in this generation
    PlannedPart* part = nullptr;
    Round round = 0;
    TensorId id = kNoTensor;
    std::uint16_t generation = 0;
    bool in_flight = false;
    bool whole = false;  ///< the submission in flight was sent whole
    bool is_join = false;
    bool counted = false;                      ///< the count word of the present id has been written
    std::shared_ptr<const Signature> pending;  ///< of the submission in flight, when it was sent whole
    std::string name;
    std::vector<std::int32_t> members;  ///< of a request that names them, ascending
  };
  using Members = std::vector<std::int32_t>;

  Impl(int rank_of_this, int ranks, std::uint32_t ids) : rank(rank_of_this), size(ranks), capacity(ids) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    add_set(core::kGlobalSet, 0, 0, std::move(all));
  }

  // ---- sets and slots

  void add_set(SetId number, TensorId base, std::uint16_t generation, std::vector<std::int32_t> members) {
    Set& set = sets.try_emplace(number, number).first->second;
    set.base = base;
    set.generation = set.unnamed_generation = generation;
    set.member = std::binary_search(members.begin(), members.end(), rank);
    set.has_left = any_left(members);
    set.members = std::move(members);
    reserve_id(base + (number == core::kGlobalSet ? core::kReservedIds : core::kRowIds) - 1);
  }

  void reserve_id(TensorId id) {
    std::vector<SlotId>& slots_by_id = id < core::kFirstRow ? slot_of_name : slot_of_row;
    const std::size_t place = id < core::kFirstRow ? id : id - core::kFirstRow;
    if (place >= slots_by_id.size()) slots_by_id.resize(place + 1, kNoSlot);
  }
  [[nodiscard]] bool is_known(TensorId id) const {
    return id < core::kFirstRow ? id < slot_of_name.size() : id - core::kFirstRow < slot_of_row.size();
  }
  /// The slot of an id that is known.
  SlotId& slot_of(TensorId id) { return id < core::kFirstRow ? slot_of_name[id] : slot_of_row[id - core::kFirstRow]; }

  [[nodiscard]] bool any_left(const Members& members) const {
    return std::any_of(left.begin(), left.end(),
                       [&](auto who) { return std::binary_search(members.begin(), members.end(), who); });
  }

  Set& set_of(SetId number) {
    const auto found = sets.find(number);
    KOLO_CHECK(found != sets.end()) << "process set " << number << " is not known here";
    return found->second;
  }

  SlotId find(const Set& set, const std::string& name) const {
    const auto found = set.names.find(name);
    return found == set.names.end() ? kNoSlot : found->second;
  }
  SlotId find(const Set& set, const std::string& name, const Members& members) const {
    if (members.empty()) return find(set, name);
    const auto found = requests.find({members, name});
    return found == requests.end() ? kNoSlot : found->second;
  }

  SlotId open(SetId number, const std::string& name) {
    Set& set = set_of(number);
    const auto [place, is_new] = set.names.try_emplace(name, kNoSlot);
    if (!is_new) return place->second;
    const SlotId number_of_slot = place->second = new_slot(set, name);
    if (name.empty()) {
      Slot& slot = slots[number_of_slot];
      slot.id = set.base + core::kUnnamed;
      slot.generation = set.unnamed_generation;
      slot_of(slot.id) = number_of_slot;
    }
    return number_of_slot;
  }

  SlotId new_slot(Set& set, const std::string& name) {
    if (free.empty()) {
      free.push_back(static_cast<SlotId>(slots.size()));
      slots.emplace_back();
    }
    const SlotId number = free.back();
    free.pop_back();
    Slot& slot = slots[number] = Slot{};
    slot.set = &set;
    slot.name = name;
    return number;
  }

  void forget(SlotId number, std::vector<Action>& actions) {
    Slot& slot = slots[number];
    if (slot.is_join) {
      slot.set->join = kNoSlot;
    } else if (slot.members.empty()) {
      slot.set->names.erase(slot.name);
    } else {
      requests.erase({slot.members, slot.name});
    }
    slot.set = nullptr;
    slot.members.clear();
    slot.current.reset();
    slot.pending.reset();
    free.push_back(number);
    actions.emplace_back(ForgetSlot{number});
  }

  // ---- submitting

  void submit(SlotId number, const std::shared_ptr<const Signature>& signature, Round round) {
    Slot& slot = slots[number];
    KOLO_CHECK(slot.set != nullptr && slot.set->member) << "no slot of this rank: " << number;
    KOLO_CHECK(!slot.set->is_dropped) << "process set " << slot.set->number << " was dropped";
    KOLO_CHECK(slot.set->join == kNoSlot) << "this rank has joined in process set " << slot.set->number;
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
      out.counts_for_sets = out.counts_for_sets || slot.set->number != core::kGlobalSet;
    } else {
      slot.pending = signature;
      declare(slot);
    }
    if (slot.part != nullptr) enter(*slot.part);
    if (lacks_somebody(slot)) ask(slot, 0, false);
  }

  // ---- sequences

  Round call(Set& set, const std::shared_ptr<const Signature>& signature) {
    KOLO_CHECK(set.member && !set.is_dropped && set.join == kNoSlot && !has_said_left) << "process set " << set.number;
    Sequence& sequence = set.sequence;
    ++counters.called;
    if (sequence.said.calls() < sequence.last) {
      if (!sequence.said.has_news()) grown.push_back(&set);
      sequence.said.add(signature);
    } else {
      sequence.said.go_on_from(sequence.said.calls() + 1);  // it will fail
    }
    if (set.has_left) ask(set);
    return sequence.said.calls();
  }

  /// About the last call: whether a rank has left that will not make it.
  void ask(const Set& set) {
    out.messages.emplace_back(Overdue{rank, set.number, kSequence, set.sequence.said.calls(), 0, false, false});
  }

  /// What sequences have grown by since the last time.
  void speak_of_calls() {
    for (Set* const set : grown) out.messages.emplace_back(set->sequence.said.take());
    grown.clear();
  }

  [[nodiscard]] static bool has_calls_in_flight(const Set& set) { return set.sequence.said.calls() > set.sequence.run; }

  void on(const SequenceAppended& entry, std::vector<Action>& actions) {
    Set& set = set_in_log(entry.set);
    if (!set.member) return;
    Sequence& sequence = set.sequence;
    RunCalls batch{entry.set, entry.calls, sequence.without(sequence.run + 1), entry.repeats};
    batch.uncounted = set.absent.uncounted(batch.absent);
    sequence.run += entry.calls;
    require(sequence.joined.empty() || sequence.without(sequence.run) == batch.absent,
            "other ranks contribute to one part of a batch");
    require(batch.absent.empty() == entry.repeats.empty(), "a batch of a sequence does not say what it is");
    if (!std::binary_search(batch.absent.begin(), batch.absent.end(), rank)) note_run(sequence);
    ++set.run;
    ++counters.batches;
    actions.emplace_back(std::move(batch));
  }

  static void note_run(const Sequence& sequence) {
    require(sequence.run <= sequence.said.calls(), "the log runs a call that this rank has not made");
  }

  void on(const SequenceFailed& entry, std::vector<Action>& actions) {
    Set& set = set_in_log(entry.set);
    if (!set.member) return;
    Sequence& sequence = set.sequence;
    ++sequence.run;
    require(sequence.run == entry.call, "the log fails another call than the next");
    const auto joined = sequence.joined.find(rank);
    if (joined != sequence.joined.end() && joined->second < sequence.run) return;
    note_run(sequence);
    if (entry.code == ErrorCode::mismatch) ++counters.mismatches;
    actions.emplace_back(FailCall{entry.set, Status(entry.code, entry.message)});
    finish_dropped(set);
  }

  void on(const SequenceEnded& entry, std::vector<Action>& actions) {
    if (entry.code == ErrorCode::rank_lost && first_to_leave.empty()) first_to_leave = left;
    Set& set = set_in_log(entry.set);
    if (!set.member) return;
    Sequence& sequence = set.sequence;
    require(sequence.run <= entry.last, "a sequence ends before what has run of it");
    sequence.last = std::min(sequence.last, entry.last);
    if (sequence.said.calls() <= entry.last) return;
    sequence.said.go_on_from(entry.last);
    actions.emplace_back(FailLastCalls{entry.set, entry.last, Status(entry.code, entry.message)});
    finish_dropped(set);
  }

  SlotId ask_for_set(const Members& ranks, const std::string& name) {
    auto signature = std::make_shared<Signature>();
    signature->kind = CollectiveKind::add_process_set;
    signature->ranks = ranks;
    Members members = ranks;
    std::sort(members.begin(), members.end());
    const auto [place, is_new] = requests.try_emplace({members, name}, kNoSlot);
    KOLO_CHECK(is_new) << "a process set of these members is being made";
    const SlotId number = place->second = new_slot(set_of(core::kGlobalSet), name);
    slots[number].members = std::move(members);
    submit(number, signature, 0);
    return number;
  }

  SlotId join(Set& set, Round calls, bool counts) {
    KOLO_CHECK(set.member && !set.is_dropped && set.join == kNoSlot) << "process set " << set.number;
    const SlotId number = set.join = new_slot(set, "");
    slots[number].is_join = slots[number].in_flight = true;
    slots[number].round = set.joins + 1;
    const SlotId unnamed = find(set, "");
    if (unnamed != kNoSlot) calls = std::max(calls, slots[unnamed].round);
    speak_of_calls();
    Joined message{rank, set.number, counters.log_entries, set.steps, {}, calls, counts, set.sequence.said.calls()};
    for (const SlotId member : in_flight_of(set)) {
      const Slot& slot = slots[member];
      message.submissions.push_back({slot.name, slot.round, slot.id, slot.whole ? *slot.pending : *slot.current});
    }
    out.messages.emplace_back(std::move(message));
    return number;
  }

  /// By name, ascending.
  std::vector<SlotId> in_flight_of(const Set& set) const {
    std::vector<SlotId> found;
    for (const auto& [name, number] : set.names) {
      if (slots[number].in_flight) found.push_back(number);
    }
    std::sort(found.begin(), found.end(), [this](SlotId a, SlotId b) { return slots[a].name < slots[b].name; });
    return found;
  }

  /// Whether a rank may be missing that has left, or has joined and will not make the request.
  [[nodiscard]] bool lacks_somebody(const Slot& slot) const {
    if (slot.members.empty()) return slot.set->has_left;
    return (slot.set->has_left && any_left(slot.members)) || slot.set->absent.any_of(slot.members);
  }

  /// Says that this rank has done with a set that its program has dropped, once that is true.
  void finish_dropped(Set& set) {
    if (!set.is_dropped || set.said_so || set.completed < set.run || set.join != kNoSlot) return;
    if (has_calls_in_flight(set)) return;
    const auto is_open = [this](const auto& name) { return slots[name.second].in_flight; };
    if (std::any_of(set.names.begin(), set.names.end(), is_open)) return;
    set.said_so = true;
    out.counts.emplace_back(set.base + core::kDropped, CountWord{set.generation, 1});
  }

  void drop(Set& set) {
    set.is_dropped = true;
    finish_dropped(set);
  }

  void leave() {
    has_said_left = true;
    for (auto& [number, set] : sets) {
      if (number != core::kGlobalSet && set.member && !set.is_dropped) drop(set);
    }
    out.left = Left{rank};
    for (const auto& [number, set] : sets) {
      if (set.sequence.said.calls() > 0) out.left->sequences.push_back({number, set.sequence.said.calls()});
    }
  }

  void declare(Slot& slot) {
    slot.whole = true;
    ++counters.declared;
    Declared declared{slot.set->number, slot.name, slot.round, slot.id, slot.generation, {}, slot.members};
    declared.variants.push_back({*slot.pending, {rank}});
    out.messages.emplace_back(std::move(declared));
  }

  void ask(const Slot& slot, double waited_s, bool deadline) {
    const SetId set = slot.set == nullptr ? core::kGlobalSet : slot.set->number;
    Overdue overdue{rank, set, slot.name, slot.round, waited_s, deadline, false, slot.members, slot.is_join};
    if (const auto& submitted = slot.whole ? slot.pending : slot.current) overdue.kind = submitted->kind;
    out.messages.emplace_back(std::move(overdue));
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
        if (plan.owner->join == kNoSlot) out.messages.emplace_back(interest(part));  // else it lacks nothing
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
  SlotId slot_in_log(const Set& set, TensorId id) {
    require(is_known(id) && slot_of(id) != kNoSlot && slots[slot_of(id)].set == &set,
            "the log runs a tensor that this rank does not know");
    return slot_of(id);
  }

  void on(const Assigned& entry, std::vector<Action>&) {
    Set& set = set_in_log(entry.set);
    const bool is_reserved = entry.id < core::kReservedIds || entry.id >= core::kFirstRow;
    require(entry.name.empty() ? entry.id == set.base + core::kUnnamed : !is_reserved,
            "an id was assigned that is in use");
    reserve_id(entry.id);
    if (entry.name.empty()) set.unnamed_generation = entry.generation;
    if (!set.member) {
      slot_of(entry.id) = kNoSlot;
      return;
    }
    const bool is_absent = set.absent.has(rank);
    const SlotId number = is_absent ? open(entry.set, entry.name) : find(set, entry.name);
    require(number != kNoSlot && (is_absent || slots[number].in_flight),
            "the log names what this rank has not submitted");
    require(slot_of(entry.id) == kNoSlot || slot_of(entry.id) == number, "an id was assigned that is in use");
    require(slots[number].id == kNoTensor || slots[number].id == entry.id, "a name was given a second id");
    Slot& slot = slots[number];
    slot.counted = slot.counted && slot.id == entry.id;
    slot.id = entry.id;
    slot.generation = entry.generation;
    // The caller's own object stays the current one: the next submission then compares equal by its address.
    const bool mine = slot.pending && *slot.pending == entry.signature;
    slot.current = mine ? slot.pending : std::make_shared<const Signature>(entry.signature);
    slot_of(entry.id) = number;
  }

  void on(const Evicted& entry, std::vector<Action>& actions) {
    require(is_known(entry.id), "an id was evicted that means nothing");
    const SlotId number = slot_of(entry.id);
    if (number == kNoSlot) return;
    require(!slots[number].name.empty() && slots[number].part == nullptr, "an id was evicted that is still needed");
    slot_of(entry.id) = kNoSlot;
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
    if (slot.set->join == kNoSlot) declare(slot);
    slot.whole = true;
    if (lacks_somebody(slot)) ask(slot, 0, false);
  }

  void run(SlotId number) {
    Slot& slot = slots[number];
    require(slot.in_flight, "the log runs what this rank has not submitted");
    slot.in_flight = false;
    if (slot.pending) slot.pending.reset();
  }

  void on(const BatchAppended& entry, std::vector<Action>& actions) {
    Set& set = set_in_log(entry.set);
    if (!set.member) return;
    ++set.run;
    RunBatch batch;
    batch.set = entry.set;
    batch.members.reserve(entry.members.size());
    for (const TensorId id : entry.members) {
      const SlotId slot = slot_in_log(set, id);
      batch.members.push_back(slot);
      if (set.absent.empty()) {
        run(slot);
      } else {
        run_without_some(set, slot, batch);
      }
    }
    ++counters.batches;
    actions.emplace_back(std::move(batch));
  }

  /// Some members are absent; this rank may be one of them.
  void run_without_some(Set& set, SlotId number, RunBatch& batch) {
    Slot& slot = slots[number];
    std::vector<std::int32_t> absent = set.absent.without(slot.name);
    require(batch.members.size() == 1 || absent == batch.absent, "other ranks contribute to one part of a batch");
    batch.absent = std::move(absent);
    batch.uncounted = set.absent.uncounted(batch.absent);
    set.absent.consume(slot.name);
    if (!std::binary_search(batch.absent.begin(), batch.absent.end(), rank)) return run(number);
    require(!slot.in_flight && slot.current != nullptr, "the log runs without this rank what it has submitted");
    ++slot.round;
  }

  void on(const PlanDefined& entry, std::vector<Action>&) {
    ++counters.plans;
    Set& set = set_in_log(entry.set);
    require(plans.count(entry.plan) == 0, "a plan was defined that there is already");
    require(set.absent.empty(), "a plan was defined while a rank was absent");
    Plan& plan = plans[entry.plan];
    plan.set = entry.set;
    plan.owner = &set;
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
    ++plan.owner->run;
    ++counters.batches;
    ++counters.planned_batches;
    actions.emplace_back(RunBatch{plan.set, part.members, entry.plan + 1, entry.number});
  }

  void on(const Failed& entry, std::vector<Action>& actions) {
    if (entry.code == ErrorCode::rank_lost && first_to_leave.empty()) first_to_leave = left;
    Set& set = set_in_log(entry.set);
    if (entry.members.empty()) set.absent.consume(entry.name);
    const bool is_absent = entry.members.empty() && set.absent.has(rank);
    SlotId number = set.member ? find(set, entry.name, entry.members) : kNoSlot;
    if (number == kNoSlot && is_absent) number = open(entry.set, entry.name);
    if (number == kNoSlot) return;
    Slot& slot = slots[number];
    if (is_absent && !slot.in_flight) slot.round = std::max(slot.round, entry.round);
    if (!slot.in_flight || slot.round != entry.round) return;
    slot.in_flight = false;
    slot.pending.reset();
    if (entry.code == ErrorCode::mismatch) ++counters.mismatches;
    actions.emplace_back(FailSlot{number, Status(entry.code, entry.message)});
    if (!slot.members.empty()) forget(number, actions);
    finish_dropped(set);
  }

  void on(const Query& entry, std::vector<Action>& actions) {
    if (!entry.deadline) return;
    const auto set = sets.find(entry.set);
    if (set == sets.end()) return;
    const Members& members = entry.members.empty() ? set->second.members : entry.members;
    if (!std::binary_search(members.begin(), members.end(), rank)) return;
    const SlotId number = find(set->second, entry.name, entry.members);
    const bool has_joined = entry.members.empty() && set->second.join != kNoSlot;
    Answer answer;
    answer.query = entry.query;
    answer.rank = rank;
    if (entry.join) {
      answer.submitted = has_joined || set->second.joins >= entry.round;
    } else if (entry.members.empty() && entry.name == kSequence) {
      answer.submitted = has_joined || set->second.sequence.said.calls() >= entry.round;
    } else {
      answer.submitted = entry.round == 0 || has_joined || (number != kNoSlot && slots[number].round >= entry.round);
    }
    actions.emplace_back(AnswerQuery{std::move(answer)});
  }

  void on(const Stalled& entry, std::vector<Action>& actions) { actions.emplace_back(ReportStall{entry}); }

  void on(const SetAdded& entry, std::vector<Action>& actions) {
    require(sets.count(entry.set) == 0, "a process set was added that there is already");
    require(!is_known(entry.base) || slot_of(entry.base) == kNoSlot, "a row of ids was reserved that is in use");
    Members members = entry.members;
    std::sort(members.begin(), members.end());
    const auto request = requests.find({members, entry.name});
    const bool is_member = std::binary_search(members.begin(), members.end(), rank);
    require(is_member == (request != requests.end()), "a process set was made without this rank's request");
    add_set(entry.set, entry.base, entry.generation, std::move(members));
    if (!is_member) return;
    const SlotId number = request->second;
    run(number);
    actions.emplace_back(SetMade{entry.set, entry.members, number});
    forget(number, actions);
    if (has_said_left) drop(sets.at(entry.set));
  }

  void on(const SetRemoved& entry, std::vector<Action>& actions) {
    Set& set = set_in_log(entry.set);
    require(entry.set != core::kGlobalSet, "the world's process set was removed");
    require(std::none_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan.second.owner == &set; }),
            "a process set was removed that has a plan");
    require(set.said_so == set.member, "a process set was removed that this rank has not dropped");
    std::vector<SlotId> numbers;
    numbers.reserve(set.names.size());
    for (const auto& [name, number] : set.names) numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    for (const SlotId number : numbers) {
      const Slot& slot = slots[number];
      if (slot.id != kNoTensor) {
        if (slot.counted) out.counts.emplace_back(slot.id, CountWord{});
        slot_of(slot.id) = kNoSlot;
      }
      forget(number, actions);
    }
    // No word of this use of the row can be mistaken for one of a later use, when generations have gone round.
    if (set.completed > 0) out.counts.emplace_back(set.base + core::kCompleted, CountWord{});
    if (set.steps > 0) out.counts.emplace_back(set.base + core::kSteps, CountWord{});
    if (set.said_so) out.counts.emplace_back(set.base + core::kDropped, CountWord{});
    if (set.member) actions.emplace_back(SetGone{entry.set});
    sets.erase(entry.set);
  }

  void on(const RankLeft& entry, std::vector<Action>&) {
    if (entry.rank == rank) return;
    left.insert(std::upper_bound(left.begin(), left.end(), entry.rank), entry.rank);
    for (auto& [number, set] : sets) {
      if (set.member && std::binary_search(set.members.begin(), set.members.end(), entry.rank)) set.has_left = true;
    }
    for (std::size_t at = 0; at < slots.size(); ++at) {
      const Slot& slot = slots[at];
      if (slot.set != nullptr && slot.in_flight && !slot.is_join && lacks_somebody(slot)) ask(slot, 0, false);
    }
    for (const auto& [number, set] : sets) {
      if (set.has_left && has_calls_in_flight(set)) ask(set);
    }
  }

  void on(const RankJoined& entry, std::vector<Action>&) {
    Set& set = set_in_log(entry.set);
    require(std::binary_search(set.members.begin(), set.members.end(), entry.rank) && !set.absent.has(entry.rank),
            "a rank has joined that cannot");
    if (!set.member) return;
    require(std::none_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan.second.owner == &set; }),
            "a rank has joined in a process set that has a plan");
    if (entry.rank == rank) {
      const auto is_listed = [&](SlotId number, const std::string& name) { return slots[number].name == name; };
      const std::vector<SlotId> mine = in_flight_of(set);
      require(set.join != kNoSlot &&
                  std::equal(mine.begin(), mine.end(), entry.submissions.begin(), entry.submissions.end(), is_listed),
              "this rank has joined with other submissions than it has made");
    }
    Absentees::Submissions submissions;
    for (const std::string& name : entry.submissions) submissions.emplace(name, Joined::Submission{});
    set.absent.add(entry.rank, std::move(submissions), entry.counts);
    set.sequence.joined[entry.rank] = entry.sequence;
    if (entry.rank == rank) publish_completed(set);
    if (entry.set != core::kGlobalSet || entry.rank == rank) return;
    for (const auto& [request, number] : requests) {
      if (lacks_somebody(slots[number])) ask(slots[number], 0, false);
    }
  }

  void on(const JoinEnded& entry, std::vector<Action>& actions) {
    Set& set = set_in_log(entry.set);
    const bool done = entry.code == ErrorCode::ok;
    const SlotId number = set.join;
    if (done && set.member) {
      require(number != kNoSlot && set.absent.size() == set.members.size() && set.absent.are_done(),
              "a join ended that not all members have made");
    }
    if (entry.code == ErrorCode::rank_lost && first_to_leave.empty()) first_to_leave = left;
    ++set.joins;
    set.absent.clear();
    if (set.member) restart_sequence(set.sequence, done);
    if (number == kNoSlot) return;
    slots[number].in_flight = false;
    if (done) count_steps(set, std::max(set.steps, entry.steps));
    const SlotId unnamed = find(set, "");
    const Round calls = std::max(entry.calls, unnamed == kNoSlot ? 0 : slots[unnamed].round);
    actions.emplace_back(JoinDone{entry.set, entry.last, number, calls, Status(entry.code, entry.message)});
    forget(number, actions);
    publish_completed(set);
    finish_dropped(set);
  }

  /// A join has ended. If it failed, nothing in the set can run any more.
  static void restart_sequence(Sequence& sequence, bool done) {
    sequence.joined.clear();
    if (!done) sequence.last = sequence.run;
    require(!done || sequence.said.calls() <= sequence.run, "a join ended with calls in flight");
    if (sequence.said.calls() < sequence.run) sequence.said.go_on_from(sequence.run);
  }

  /// Not between `join` and `RankJoined`: the sequencer takes it for a sign that what was said before has come, and a
  /// count overtakes a message.
  void publish_completed(const Set& set) {
    if (set.completed == 0) return;
    out.counts.emplace_back(set.base + core::kCompleted, CountWord{set.generation, set.completed});
  }

  void count_steps(Set& set, std::uint64_t steps) {
    if (std::exchange(set.steps, steps) == steps) return;
    out.counts.emplace_back(set.base + core::kSteps, CountWord{set.generation, steps});
  }

  void on(const Faulted& entry, std::vector<Action>& actions) {
    actions.emplace_back(WorldFault{Status(entry.code, entry.message), entry.rank});
  }

  void on(const Closed&, std::vector<Action>& actions) { actions.emplace_back(WorldClosed{}); }

  void on(const Push&, std::vector<Action>& actions) { actions.emplace_back(PushTransport{}); }

  const std::int32_t rank;
  const std::int32_t size;
  const std::uint32_t capacity;
  std::map<SetId, Set> sets;       ///< slots point into it
  base::StableVector<Slot> slots;  ///< names are handed out by reference
  std::vector<SlotId> free;
  std::map<std::pair<Members, std::string>, SlotId> requests;  ///< those that name their members; in flight, all
  std::vector<SlotId> slot_of_name;                            ///< by id; its length is the bound of ids
  std::vector<SlotId> slot_of_row;                             ///< from kFirstRow on
  std::map<std::uint32_t, Plan> plans;
  std::vector<Set*> grown;     ///< sets of whose sequences there is something to say
  std::size_t unreported = 0;  ///< planned batches that are partial here and not reported
  bool interested = false;
  bool has_said_left = false;
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
  Impl::Set& known = impl_->set_of(set);
  ++known.completed;
  if (known.join == kNoSlot || known.absent.has(impl_->rank)) impl_->publish_completed(known);
  impl_->finish_dropped(known);
}

Round Participant::call(SetId set, const std::shared_ptr<const Signature>& signature) {
  return impl_->call(impl_->set_of(set), signature);
}

void Participant::overdue_call(SetId set, Round call, core::CollectiveKind kind, double waited_s, bool deadline,
                               bool running) {
  Overdue overdue{impl_->rank, impl_->set_of(set).number, kSequence, call, waited_s, deadline, running};
  overdue.kind = kind;
  impl_->out.messages.emplace_back(std::move(overdue));
}

SlotId Participant::ask_for_set(const std::vector<std::int32_t>& ranks, const std::string& name) {
  return impl_->ask_for_set(ranks, name);
}

SlotId Participant::join(SetId set, Round calls, bool counts) { return impl_->join(impl_->set_of(set), calls, counts); }

void Participant::drop(SetId set) {
  Impl::Set& known = impl_->set_of(set);
  KOLO_CHECK(set != core::kGlobalSet && known.member && !known.is_dropped) << "process set " << set;
  impl_->drop(known);
}

void Participant::end_step(SetId set) {
  Impl::Set& known = impl_->set_of(set);
  KOLO_CHECK(known.member) << "a step of process set " << set << " ends on a rank that is no member";
  impl_->count_steps(known, known.steps + 1);
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

void Participant::leave() { impl_->leave(); }

void Participant::on_log(const LogEntry& entry, std::vector<Action>& actions) {
  ++impl_->counters.log_entries;
  check_ranges(entry, impl_->size, impl_->capacity);
  std::visit([this, &actions](const auto& value) { impl_->on(value, actions); }, entry);
}

Outbox& Participant::outbox() noexcept {
  if (impl_->interested && impl_->unreported > 0) impl_->report_interest();
  if (!impl_->grown.empty()) impl_->speak_of_calls();
  return impl_->out;
}

const ParticipantCounters& Participant::counters() const noexcept { return impl_->counters; }
bool Participant::in_flight(SlotId slot) const { return impl_->slots[slot].in_flight; }
const std::string& Participant::name_of(SlotId slot) const { return impl_->slots[slot].name; }
const std::shared_ptr<const core::Signature>& Participant::signature_of(SlotId slot) const {
  return impl_->slots[slot].current;
}
const std::vector<std::int32_t>& Participant::left() const noexcept { return impl_->left; }
const std::vector<std::int32_t>& Participant::first_to_leave() const noexcept {
  return impl_->first_to_leave.empty() ? impl_->left : impl_->first_to_leave;
}
bool Participant::has_left(std::int32_t rank) const noexcept {
  return std::binary_search(impl_->left.begin(), impl_->left.end(), rank);
}
TensorId Participant::id_bound() const noexcept { return static_cast<TensorId>(impl_->slot_of_name.size()); }

}  // namespace kolo::control
