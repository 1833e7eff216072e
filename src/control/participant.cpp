// SPDX-License-Identifier: Apache-2.0
//
// Why a name needs no round in a batch entry: a name is in flight at most once on every rank, and round k of it is
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
#include "control/participant/names.hpp"
#include "control/participant/planned_parts.hpp"
#include "control/participant/publisher.hpp"
#include "control/participant/sequences.hpp"
#include "control/ranges.hpp"

namespace kolo::control {

using core::CollectiveKind;
using core::kNoTensor;
using core::Round;
using core::SetId;
using core::Signature;
using core::TensorId;
using participant::kNoName;

struct Participant::Impl {
  using Members = participant::Members;
  using Set = participant::Set;
  using Name = participant::Name;

  Impl(int rank_of_this, int ranks, std::uint32_t ids) : rank(rank_of_this), size(ranks), capacity(ids) {
    Members all(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    names.add_set(core::kGlobalSet, 0, 0, std::move(all));
  }

  // ---- submitting

  void submit(NameId number, const std::shared_ptr<const Signature>& signature) {
    Name& named = names[number];
    KOLO_CHECK(named.set != nullptr && named.set->member) << "no name of this rank: " << number;
    KOLO_CHECK(!named.set->is_dropped) << "process set " << named.set->number << " was dropped";
    KOLO_CHECK(named.set->join == kNoName) << "this rank has joined in process set " << named.set->number;
    KOLO_CHECK(!named.in_flight) << "'" << named.name << "' is in flight already";
    ++named.round;
    named.serial = ++submissions;
    named.in_flight = true;
    if (named.current && (named.current == signature || *named.current == *signature)) {
      if (named.current != signature) named.current = signature;
      publisher.count(named);
    } else {
      named.pending = signature;
      publisher.declare(named);
    }
    if (named.part != nullptr) plans.enter(*named.part);
    if (publisher.lacks_somebody(named)) publisher.ask(named, 0, false);
  }

  void call(Set& set, const std::shared_ptr<const Signature>& signature, Round first, std::uint64_t count) {
    KOLO_CHECK(set.member && !set.is_dropped && set.join == kNoName && !has_said_departure)
        << "process set " << set.number;
    KOLO_CHECK(first > std::max(set.sequence.made, set.sequence.passed) && count > 0) << "call " << first;
    calls.call(set, signature, first, count);
  }

  NameId ask_for_set(const Members& ranks, const std::string& name, bool fails_alone) {
    auto signature = std::make_shared<Signature>();
    signature->kind = CollectiveKind::add_process_set;
    signature->ranks = ranks;
    Members members = ranks;
    std::sort(members.begin(), members.end());
    const NameId number = names.open_request(members, name);
    const auto ended = given_up.find({members, name});
    KOLO_CHECK(ended == given_up.end() || ended->second.owed == 0) << "a request has failed before it was made";
    if (ended != given_up.end()) names[number].round = ended->second.round;
    names[number].fails_alone = fails_alone;
    submit(number, signature);
    return number;
  }

  std::optional<Status> take_failure(Members members, const std::string& name) {
    std::sort(members.begin(), members.end());
    const auto ended = given_up.find({std::move(members), name});
    if (ended == given_up.end() || ended->second.owed == 0) return std::nullopt;
    --ended->second.owed;
    return ended->second.status;
  }

  /// A deadline has given up a request that names this rank.
  void give_up(const Failed& entry) {
    GivenUp& ended = given_up[{entry.request.members, entry.request.name}];
    require(entry.request.round == ended.round + 1, "a request was given up that nobody has made");
    ended.round = entry.request.round;
    if (names.requests().count({entry.request.members, entry.request.name}) != 0) return;
    ++ended.owed;
    ended.status = Status(entry.code, entry.message);
  }

  NameId join(Set& set, Round begun, bool counts) {
    KOLO_CHECK(set.member && !set.is_dropped && set.join == kNoName) << "process set " << set.number;
    return joins.join(set, begun, counts);
  }

  void leave() {
    has_said_departure = true;
    for (auto& [number, set] : names.sets()) {
      if (number != core::kGlobalSet && set.member && !set.is_dropped) publisher.drop(set);
    }
    Departed& departure = publisher.outbox().departed.emplace(Departed{rank});
    for (const auto& [number, set] : names.sets()) {
      const Round calls_made = std::max(set.sequence.made, set.sequence.passed);
      if (calls_made > 0) departure.sequences.push_back({number, calls_made, set.sequence.passed});
    }
  }

  // ---- the log: names and batches

  void on(const Assigned& entry, std::vector<Action>&) {
    Set& set = names.set_in_log(entry.set);
    names.reserve_id(entry.id);
    if (!set.member) {
      names.name_of(entry.id) = kNoName;
      return;
    }
    const bool is_absent = set.absent.has(rank);
    const NameId number = is_absent ? names.open(set, entry.name) : names.find(set, entry.name);
    require(number != kNoName && (is_absent || names[number].in_flight),
            "the log names what this rank has not submitted");
    require(names.name_of(entry.id) == kNoName || names.name_of(entry.id) == number,
            "an id was assigned that is in use");
    require(names[number].id == kNoTensor || names[number].id == entry.id, "a name was given a second id");
    Name& named = names[number];
    named.counted = named.counted && named.id == entry.id;
    named.id = entry.id;
    named.generation = entry.generation;
    // The caller's own object stays the current one: the next submission then compares equal by its address.
    const bool mine = named.pending && *named.pending == entry.signature;
    named.current = mine ? named.pending : std::make_shared<const Signature>(entry.signature);
    names.name_of(entry.id) = number;
  }

  void on(const Evicted& entry, std::vector<Action>& actions) {
    require(names.is_known(entry.id), "an id was evicted that means nothing");
    const NameId number = names.name_of(entry.id);
    if (number == kNoName) return;
    require(names[number].part == nullptr, "an id was evicted that is still needed");
    names.name_of(entry.id) = kNoName;
    Name& named = names[number];
    if (named.counted) publisher.clear_word(entry.id);
    named.counted = false;
    named.id = kNoTensor;
    named.generation = 0;
    if (!named.in_flight) {
      names.forget(number, actions);
      return;
    }
    if (!named.whole) named.pending = named.current;
    named.current.reset();
    named.round = 1;
    if (named.set->join == kNoName) publisher.declare(named);
    named.whole = true;
    if (publisher.lacks_somebody(named)) publisher.ask(named, 0, false);
  }

  void on(const BatchAppended& entry, std::vector<Action>& actions) {
    Set& set = names.set_in_log(entry.set);
    if (!set.member) return;
    ++set.run;
    RunBatch batch;
    batch.set = entry.set;
    batch.last = entry.last;
    batch.members.reserve(entry.members.size());
    for (const TensorId id : entry.members) {
      const NameId named = names.name_in_log(set, id);
      batch.members.push_back(named);
      if (set.absent.empty()) {
        names.run(named);
      } else {
        joins.run_without_some(set, named, batch);
      }
    }
    ++counters.batches;
    actions.emplace_back(std::move(batch));
  }

  void on(const Failed& entry, std::vector<Action>& actions) {
    const Request& request = entry.request;
    if (entry.code == ErrorCode::rank_lost) departed.note_failure();
    Set& set = names.set_in_log(request.set);
    const Members& members = request.members;
    if (entry.code == ErrorCode::expired && std::binary_search(members.begin(), members.end(), rank)) give_up(entry);
    if (request.members.empty()) set.absent.consume(request.name);
    const bool is_absent = request.members.empty() && set.absent.has(rank);
    NameId number = set.member ? names.find(set, request.name, request.members) : kNoName;
    if (number == kNoName && is_absent) number = names.open(set, request.name);
    if (number == kNoName) return;
    Name& named = names[number];
    if (is_absent && !named.in_flight) named.round = std::max(named.round, request.round);
    if (!named.in_flight || named.round != request.round) return;
    named.in_flight = false;
    named.serial = 0;
    named.pending.reset();
    if (entry.code == ErrorCode::mismatch) ++counters.mismatches;
    actions.emplace_back(FailName{number, Status(entry.code, entry.message)});
    if (!named.members.empty()) names.forget(number, actions);
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
    const auto set = names.sets().find(request.set);
    if (set == names.sets().end()) return;
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
    const bool has_joined = request.members.empty() && set.join != kNoName;
    if (has_joined || (request.round == 0 && !request.join)) return true;
    if (request.join) return set.joins >= request.round;
    if (request.is_call()) return std::max(set.sequence.made, set.sequence.passed) >= request.round;
    const NameId number = names.find(set, request.name, request.members);
    if (number == kNoName) return false;
    const Name& named = names[number];
    return is_mine ? named.serial == request.serial : named.in_flight || named.round >= request.round;
  }

  void on(const Stalled& entry, std::vector<Action>& actions) { actions.emplace_back(ReportStall{entry}); }
  void on(const Push&, std::vector<Action>& actions) { actions.emplace_back(PushTransport{}); }

  // ---- the log: sets and ranks

  void on(const SetAdded& entry, std::vector<Action>& actions) {
    require(names.sets().count(entry.set) == 0, "a process set was added that there is already");
    const auto has_row = [&entry](const auto& item) { return item.second.base == entry.base; };
    require(std::none_of(names.sets().begin(), names.sets().end(), has_row),
            "a row of ids was reserved that is in use");
    Members members = entry.members;
    std::sort(members.begin(), members.end());
    const auto request = names.requests().find({members, entry.name});
    const bool is_member = std::binary_search(members.begin(), members.end(), rank);
    require(is_member == (request != names.requests().end()), "a process set was made without this rank's request");
    given_up.erase({members, entry.name});
    Set& set = names.add_set(entry.set, entry.base, entry.generation, std::move(members));
    set.has_departed = departed.has_any(set.members);
    if (!is_member) return;
    const NameId number = request->second;
    names.run(number);
    actions.emplace_back(SetMade{entry.set, entry.members, number});
    names.forget(number, actions);
    if (has_said_departure) publisher.drop(set);
  }

  void on(const SetRemoved& entry, std::vector<Action>& actions) {
    Set& set = names.set_in_log(entry.set);
    require(entry.set != core::kGlobalSet, "the world's process set was removed");
    require(!plans.has_plan(set), "a process set was removed that has a plan");
    require(set.said_so == set.member, "a process set was removed that this rank has not dropped");
    std::vector<NameId> numbers;
    numbers.reserve(set.names.size());
    for (const auto& [name, number] : set.names) numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    for (const NameId number : numbers) {
      const Name& named = names[number];
      if (named.id != kNoTensor) {
        if (named.counted) publisher.clear_word(named.id);
        names.name_of(named.id) = kNoName;
      }
      names.forget(number, actions);
    }
    // An old word must not be mistaken for one of a later use of the row when generations have wrapped around.
    if (set.completed > 0) publisher.clear_word(set.base + core::kCompleted);
    if (set.steps > 0) publisher.clear_word(set.base + core::kSteps);
    if (set.said_so) publisher.clear_word(set.base + core::kDropped);
    if (set.member) actions.emplace_back(SetGone{entry.set});
    names.sets().erase(entry.set);
  }

  void on(const RankDeparted& entry, std::vector<Action>&) {
    if (entry.rank == rank || departed.has(entry.rank)) return;
    departed.add(entry.rank, entry.because);
    for (auto& [number, set] : names.sets()) {
      if (set.member && std::binary_search(set.members.begin(), set.members.end(), entry.rank)) set.has_departed = true;
    }
    for (NameId at = 0; at < names.size(); ++at) {
      const Name& named = names[at];
      if (named.set != nullptr && named.in_flight && !named.is_join && publisher.lacks_somebody(named))
        publisher.ask(named, 0, false);
    }
    for (const auto& [number, set] : names.sets()) {
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
  participant::Names names{rank};
  participant::DepartedRanks departed;
  participant::Publisher publisher{rank, names, departed, counters};
  participant::PlannedParts plans{rank, names, publisher, counters};
  participant::Sequences calls{rank, names, departed, publisher, counters};
  participant::Joining joins{rank, names, departed, publisher, plans, calls, counters};
  /// How requests that name this rank were given up, since their set was made last ("Members").
  struct GivenUp {
    Round round = 0;         ///< the last
    std::uint64_t owed = 0;  ///< failures that requests of this rank will take
    Status status;           ///< of the last of these
  };
  std::map<std::pair<Members, std::string>, GivenUp> given_up;
  std::uint64_t submissions = 0;  ///< made by this rank, of all names
  bool awaiting = false;
  bool has_said_departure = false;
};

Participant::Participant(int rank, int size, std::uint32_t capacity)
    : impl_(std::make_unique<Impl>(rank, size, capacity)) {}
Participant::~Participant() = default;

NameId Participant::open(SetId set, const std::string& name) {
  return impl_->names.open(impl_->names.set_of(set), name);
}

void Participant::submit(NameId name, const std::shared_ptr<const Signature>& signature) {
  impl_->submit(name, signature);
}

void Participant::completed(SetId set) {
  Impl::Set& known = impl_->names.set_of(set);
  ++known.completed;
  if (known.join == kNoName || known.absent.has(impl_->rank)) impl_->publisher.publish_completed(known);
  impl_->publisher.finish_dropped(known);
}

void Participant::call(SetId set, const std::shared_ptr<const Signature>& signature, Round first, std::uint64_t count) {
  impl_->call(impl_->names.set_of(set), signature, first, count);
}

void Participant::pass(SetId set, Round last) { participant::Sequences::pass(impl_->names.set_of(set).sequence, last); }

void Participant::overdue_call(SetId set, Round call, core::CollectiveKind kind, double waited_s, bool deadline,
                               bool running) {
  const Request request{impl_->names.set_of(set).number, kSequence, call};
  impl_->publisher.say(Overdue{impl_->rank, request, waited_s, deadline, running, kind});
}

NameId Participant::ask_for_set(const std::vector<std::int32_t>& ranks, const std::string& name, bool fails_alone) {
  return impl_->ask_for_set(ranks, name, fails_alone);
}

std::optional<Status> Participant::take_failure(std::vector<std::int32_t> ranks, const std::string& name) {
  return impl_->take_failure(std::move(ranks), name);
}

NameId Participant::join(SetId set, Round calls, bool counts) {
  return impl_->join(impl_->names.set_of(set), calls, counts);
}

void Participant::drop(SetId set) {
  Impl::Set& known = impl_->names.set_of(set);
  KOLO_CHECK(set != core::kGlobalSet && known.member && !known.is_dropped) << "process set " << set;
  impl_->publisher.drop(known);
}

void Participant::end_step(SetId set) {
  Impl::Set& known = impl_->names.set_of(set);
  KOLO_CHECK(known.member) << "a step of process set " << set << " ends on a rank that is no member";
  impl_->publisher.count_steps(known, known.steps + 1);
}

void Participant::set_awaiting(bool awaiting) { impl_->awaiting = awaiting; }

void Participant::overdue(NameId name, double waited_s, bool deadline) {
  impl_->publisher.ask(impl_->names[name], waited_s, deadline);
}

void Participant::ask(NameId name, double waited_s) { impl_->publisher.ask(impl_->names[name], waited_s, false, true); }

void Participant::ask_call(SetId set, Round call, core::CollectiveKind kind, double waited_s) {
  const Request request{impl_->names.set_of(set).number, kSequence, call};
  impl_->publisher.say(Overdue{impl_->rank, request, waited_s, false, false, kind, true});
}

void Participant::overdue_running(SetId set, const std::string& name, double waited_s) {
  const auto found = impl_->names.sets().find(set);
  const NameId named = found == impl_->names.sets().end() ? kNoName : impl_->names.find(found->second, name);
  Request request{set, name};
  if (named != kNoName) {
    request.round = impl_->names[named].round;
    request.serial = impl_->names[named].serial;
  }
  impl_->publisher.say(Overdue{impl_->rank, request, waited_s, true, true});
}

void Participant::answer(Answer answer) { impl_->publisher.say(std::move(answer)); }

Round Participant::round_of(NameId name) const { return impl_->names[name].round; }

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
bool Participant::in_flight(NameId name) const { return impl_->names[name].in_flight; }
const std::string& Participant::name_of(NameId name) const { return impl_->names[name].name; }
const std::shared_ptr<const core::Signature>& Participant::signature_of(NameId name) const {
  return impl_->names[name].current;
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
TensorId Participant::id_bound() const noexcept { return impl_->names.id_bound(); }

}  // namespace kolo::control
