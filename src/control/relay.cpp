// SPDX-License-Identifier: Apache-2.0
//
// Two kinds of names, two ways of merging:
//
//   A name that has an id. For every child the relay keeps how many rounds it has submitted (`reached`), by a count or
//   by a declaration. A round is complete when every child that speaks has reached it. If a child has declared it, one
//   `Declared` goes up, in which the ranks that counted are the variant without a signature; else a `Counted`.
//
//   A name that has none yet. All children must declare it (relay/declarations.hpp).
//
// Counts of a child that does not speak for a set (relay/table.hpp) stay in the table. The sequencer does not use them
// for absent ranks (it uses their `Joined`), and the end of the join clears them.
//
// A round was waited for because of the child that completes it (`LastHeard`, there).
//
// Calls without a name are merged by their numbers (sequence_link.hpp). Every relay above a joined rank waits for the
// calls that its `Joined` counts: only those of the rank's own node have them already.
//
// Children are never more than one round apart, because round k+1 begins only when the log has run or failed round k,
// for which all must have submitted it. The exception is a set in which a rank has left: there a round can fail before
// it is complete, and children can be several rounds apart. No round of that name will be complete again, so it is
// enough that the newest round wins.
#include "control/relay.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "control/ranges.hpp"
#include "control/relay/declarations.hpp"
#include "control/relay/table.hpp"
#include "control/sentences.hpp"
#include "control/sequence_link.hpp"

namespace kolo::control {

using core::kNoTensor;
using core::Round;
using core::SetId;
using core::TensorId;

struct Relay::Impl {
  using Set = relay::Set;
  using Tensor = relay::Tensor;

  Impl(int ranks, std::vector<std::vector<std::int32_t>> below, std::size_t local_children, std::uint64_t open,
       std::uint32_t ids)
      : size(ranks), capacity(ids), local(local_children), open_batches(open), table(std::move(below)) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    table.add_set(core::kGlobalSet, 0, 0, std::move(all));
  }

  // ---- names with an id

  void on_count(std::size_t child, TensorId id, CountWord word, std::int32_t last = -1) {
    Tensor* tensor = table.current(id, word.generation);
    if (tensor != nullptr && word.count > table.row(id)[child]) reach(id, *tensor, child, word.count, last);
  }

  /// `last`: as the child's message has it.
  relay::Voice voice(std::size_t child, std::int32_t last) const {
    const std::vector<std::int32_t>& below = table.below(child);
    return {below.size() == 1 ? below.front() : last, pass, child == 0 && local > 0};
  }

  void reach(TensorId id, Tensor& tensor, std::size_t child, std::uint64_t count, std::int32_t last) {
    std::uint64_t& so_far = table.row(id)[child];
    const bool speaks = tensor.set->joined.empty() || relay::is_one_of(*tensor.speakers, child);
    if (speaks && so_far <= tensor.forwarded && count > tensor.forwarded) {
      ++tensor.ahead;
      tensor.last.hear(voice(child, last));
    }
    so_far = count;
    if (speaks && tensor.ahead == tensor.speakers->size()) advance(id, tensor);
  }

  void advance(TensorId id, Tensor& tensor) {
    Set& set = *tensor.set;
    const std::uint64_t* const counts = table.row(id);
    std::uint64_t least = ~std::uint64_t{0};
    for (const std::size_t child : *tensor.speakers) least = std::min(least, counts[child]);
    tensor.forwarded = least;
    tensor.ahead = ahead_of(id, tensor);
    if (tensor.completions) {
      if (!set.lazy || blocking(set)) send_completed(set);
      return;
    }
    if (tensor.gathered && tensor.gathered->round <= least) {
      if (tensor.gathered->round == least) up.emplace_back(declaration(id, tensor));
      tensor.gathered.reset();
    } else {
      up.emplace_back(Counted{id, CountWord{tensor.generation, least}, tensor.last.rank});
    }
    if (set.lazy) send_completed(set);
  }

  std::uint32_t ahead_of(TensorId id, const Tensor& tensor) const {
    const std::uint64_t* const counts = table.row(id);
    std::uint32_t ahead = 0;
    for (const std::size_t child : *tensor.speakers) ahead += counts[child] > tensor.forwarded ? 1U : 0U;
    return ahead;
  }

  Declared declaration(TensorId id, Tensor& tensor) {
    relay::Gathered& gathered = *tensor.gathered;
    for (const std::size_t child : *tensor.speakers) {
      if (!gathered.declared[child])
        relay::merge(gathered.variants, {std::nullopt, table.below_child(tensor.set->members, child)});
    }
    Declared whole{tensor.set->number,          tensor.name, gathered.round, id, tensor.generation,
                   std::move(gathered.variants)};
    whole.last = tensor.last.rank;
    return whole;
  }

  // ---- completed counts

  /// Whether the sequencer may be waiting for a count that is held back here.
  bool blocking(const Set& set) const { return set.appended - set.completed_sent >= open_batches; }

  void send_completed(Set& set) {
    const TensorId id = set.base + core::kCompleted;
    const Tensor& tensor = *table.find(id);
    if (tensor.forwarded == set.completed_sent) return;
    set.completed_sent = tensor.forwarded;
    up.emplace_back(Counted{id, CountWord{tensor.generation, tensor.forwarded}});
  }

  void note_batch(Set& set, bool planned) {
    ++set.appended;
    set.lazy = planned;
    if (!planned || blocking(set)) send_completed(set);
  }

  // ---- declarations

  /// A count of a node below. (Ranks of this node have theirs on the board.)
  void on_counted(std::size_t child, const Counted& counted) {
    const Tensor* tensor = table.current(counted.id, counted.word.generation);
    if (tensor == nullptr) return;
    require(has_members(*tensor->set, child), "a rank submits to a process set that it is no member of");
    on_count(child, counted.id, counted.word, counted.last);
  }

  void on_declared(std::size_t child, Declared&& declared) {
    const Set* const set = table.find_set(declared.set);
    if (set == nullptr) return;
    require(!declared.members.empty() || has_members(*set, child),
            "a rank submits to a process set that it is no member of");
    for (const Declared::Variant& variant : declared.variants) {
      require(std::includes(table.below(child).begin(), table.below(child).end(), variant.ranks.begin(),
                            variant.ranks.end()),
              "a rank submits for another one");
    }
    if (declared.id == kNoTensor) {
      const bool named = !declared.members.empty();
      fresh.on_declared_new(child, voice(child, declared.last),
                            named ? table.children_with(declared.members) : set->speakers, std::move(declared));
      return;
    }
    Tensor* tensor = table.current(declared.id, declared.generation);
    const Round round = declared.round;
    if (tensor == nullptr) return;
    require(table.id_of(declared.set, declared.name) == declared.id, "an id was declared under another name");
    if (round <= table.row(declared.id)[child]) return;
    if (!tensor->gathered || tensor->gathered->round < round) {
      tensor->gathered = std::make_unique<relay::Gathered>();
      tensor->gathered->round = round;
    }
    const TensorId id = declared.id;
    const std::int32_t last = declared.last;
    if (tensor->gathered->round == round) tensor->gathered->gather(child, table.children(), std::move(declared));
    reach(id, *tensor, child, round, last);
  }

  // ---- sequences

  SequenceMerger& sequence_of(Set& set) {
    if (!set.sequence) {
      std::vector<std::vector<std::int32_t>> members;
      for (std::size_t child = 0; child < table.children(); ++child)
        members.push_back(table.below_child(set.members, child));
      set.sequence = std::make_unique<SequenceMerger>(set.number, std::move(members));
    }
    return *set.sequence;
  }

  void on_grown(std::size_t child, SequenceGrown&& message) {
    Set* const set = table.find_set(message.set);
    if (set == nullptr) return;
    require(has_members(*set, child), "a rank submits to a process set that it is no member of");
    set->last_call.hear(voice(child, message.last));
    sequence_of(*set).hear(child, std::move(message));
    merge_sequence(*set, set->last_call.rank);
  }

  void merge_sequence(Set& set, std::int32_t last) {
    if (!set.sequence) return;
    set.sequence->merge(set.speakers);
    if (!set.sequence->up().has_news()) return;
    SequenceGrown grown = set.sequence->up().next_message();
    grown.last = last;
    up.emplace_back(std::move(grown));
  }

  void on(const SequenceAppended& entry) { note_batch(table.set_of(entry.set), false); }
  void on(const SequenceFailed& entry) { table.set_of(entry.set); }
  void on(const SequenceEnded& entry) { table.set_of(entry.set); }

  // ---- joining

  void on_joined(std::size_t child, Joined&& joined) {
    Set* const found = table.find_set(joined.set);
    if (found == nullptr) return;
    Set& set = *found;
    const std::int32_t rank = joined.rank;
    const Round calls = joined.sequence;
    require(std::binary_search(table.below(child).begin(), table.below(child).end(), rank),
            "a rank joins for another one");
    require(std::binary_search(set.members.begin(), set.members.end(), rank),
            "a rank joins in a process set that it is no member of");
    up.emplace_back(std::move(joined));  // before requests that are complete without that rank
    const auto place = std::lower_bound(set.joined.begin(), set.joined.end(), rank);
    if (place != set.joined.end() && *place == rank) return;  // the rank's earlier join failed, and this one will fail
    set.joined.insert(place, rank);
    if (calls > 0) sequence_of(set).expect(child, calls);
    hear_speakers(set);
  }

  /// Finds which children speak for the set now, and sends up what is complete because of that.
  void hear_speakers(Set& set) {
    std::vector<std::int32_t> present;
    std::set_difference(set.members.begin(), set.members.end(), set.joined.begin(), set.joined.end(),
                        std::back_inserter(present));
    set.speakers = table.children_with(present);
    for (const TensorId id : table.ids_of(set)) {
      Tensor& tensor = *table.find(id);
      tensor.ahead = ahead_of(id, tensor);
      tensor.last.rank = -1;
      if (!set.speakers.empty() && tensor.ahead == set.speakers.size()) advance(id, tensor);
    }
    fresh.hear_speakers(set.number, set.speakers);
    merge_sequence(set, -1);
  }

  void on(const RankJoined& entry) { table.set_of(entry.set); }

  void on(const JoinEnded& entry) {
    Set& set = table.set_of(entry.set);
    if (entry.code == ErrorCode::ok) {  // nothing is in flight
      fresh.forget_names(set.number);
      for (const TensorId id : table.ids_of(set)) table.find(id)->gathered.reset();
    }
    set.joined.clear();
    hear_speakers(set);
  }

  // ---- the log

  void on(const Assigned& entry) {
    Set& set = table.set_of(entry.set);
    Tensor* const known = table.find(entry.id);
    const TensorId of_name = table.id_of(entry.set, entry.name);
    require(of_name == (known != nullptr ? entry.id : kNoTensor), "an id was assigned to another name");
    if (known != nullptr) {
      known->generation = entry.generation;
      return;
    }
    require(entry.id < core::kFirstRow, "an id was assigned that is in use");
    table.assign(entry.id, set, entry.name, entry.generation, fresh.remove(entry.set, entry.name));
  }

  void on(const Evicted& entry) {
    const Tensor* const tensor = table.find(entry.id);
    require(tensor != nullptr && !tensor->name.empty(), "an id was evicted that means nothing");
    table.evict(entry.id);
  }

  void on(const BatchAppended& entry) { note_batch(table.set_of(entry.set), false); }
  void on(const PlannedBatch& entry) {
    const auto plan = plans.find(entry.plan);
    require(plan != plans.end(), "there is no such plan");
    note_batch(table.set_of(plan->second), true);
  }
  void on(const PlanDefined& entry) {
    table.set_of(entry.set);
    plans[entry.plan] = entry.set;
  }
  void on(const PlanVoided& entry) { plans.erase(entry.plan); }

  void on(const Failed& entry) {
    const Request& request = entry.request;
    table.set_of(request.set);
    fresh.fail(request);
    const TensorId id = request.members.empty() ? table.id_of(request.set, request.name) : kNoTensor;
    if (id == kNoTensor) return;
    Tensor& tensor = *table.find(id);
    if (tensor.gathered && tensor.gathered->round <= request.round) tensor.gathered.reset();
  }

  /// Answers for the ranks of this node that have left. The asker answers by itself: it alone knows whether its wait is
  /// over.
  void on(const Query& entry) {
    const Request& request = entry.request;
    const Set* const set = table.find_set(request.set);
    if (set == nullptr || departed.empty()) return;
    for (const std::size_t child : table.children_with(request.members.empty() ? set->members : request.members)) {
      const std::int32_t rank = table.below(child).front();
      if (child >= local || departed.count(rank) == 0 || rank == entry.asker) continue;
      Answer answer;
      answer.query = entry.query;
      answer.rank = rank;
      answer.submitted = has_submitted(*set, request, child);
      up.emplace_back(std::move(answer));
    }
  }

  bool has_submitted(const Set& set, const Request& request, std::size_t child) const {
    if (request.round == 0) return true;
    if (request.members.empty() && !relay::is_one_of(set.speakers, child)) return true;  // it has joined
    if (request.join) return false;
    if (request.is_call()) return set.sequence && set.sequence->calls_of(child) >= request.round;
    const TensorId id = request.members.empty() ? table.id_of(request.set, request.name) : kNoTensor;
    if (id != kNoTensor) return table.row(id)[child] >= request.round;
    return fresh.has_declared(request, child);
  }

  void on(const SetAdded& entry) {
    require(table.find_set(entry.set) == nullptr, "a process set was added that there is already");
    require(table.find(entry.base) == nullptr, "a row of ids was reserved that is in use");
    std::vector<std::int32_t> members = entry.members;
    std::sort(members.begin(), members.end());
    fresh.forget(core::kGlobalSet, members, entry.name);
    std::string words = group_of(entry.name, members);
    table.add_set(entry.set, entry.base, entry.generation, std::move(members)).words = std::move(words);
  }

  void on(const SetRemoved& entry) {
    require(entry.set != core::kGlobalSet, "the world's process set was removed");
    table.remove_set(entry.set);
    fresh.forget_set(entry.set);
  }

  void on(const Stalled&) {}
  void on(const RankDeparted& entry) { departed.insert(entry.rank); }
  void on(const Faulted&) {}
  void on(const Closed&) {}
  void on(const Push&) { asked_to_push = false; }

  const std::int32_t size;
  const std::uint32_t capacity;
  const std::size_t local;
  const std::uint64_t open_batches;
  std::vector<UpMessage> up;
  relay::Table table;
  relay::NewNames fresh{table.children(), up};  ///< requests without an id
  std::map<std::uint32_t, SetId> plans;
  std::set<std::int32_t> departed;
  bool asked_to_push = false;  ///< a Starved has gone up, and no Push has come since
  std::uint64_t pass = 1;
};

Relay::Relay(int size, std::vector<std::vector<std::int32_t>> children, std::size_t local, std::uint64_t open_batches,
             std::uint32_t capacity)
    : impl_(std::make_unique<Impl>(size, std::move(children), local, open_batches, capacity)) {}
Relay::~Relay() = default;

void Relay::on_count(std::size_t child, TensorId id, CountWord word) { impl_->on_count(child, id, word); }

void Relay::on_message(std::size_t child, UpMessage message) {
  check_ranges(message, impl_->size);
  if (const auto* counted = std::get_if<Counted>(&message)) {
    impl_->on_counted(child, *counted);
  } else if (auto* declared = std::get_if<Declared>(&message)) {
    impl_->on_declared(child, std::move(*declared));
  } else if (auto* grown = std::get_if<SequenceGrown>(&message)) {
    impl_->on_grown(child, std::move(*grown));
  } else if (auto* joined = std::get_if<Joined>(&message)) {
    impl_->on_joined(child, std::move(*joined));
  } else if (!std::holds_alternative<Starved>(message) || !std::exchange(impl_->asked_to_push, true)) {
    impl_->up.push_back(std::move(message));
  }
}

void Relay::on_log(const LogEntry& entry) {
  check_ranges(entry, impl_->size, impl_->capacity);
  std::visit([this](const auto& value) { impl_->on(value); }, entry);
}

void Relay::end_pass() noexcept { ++impl_->pass; }
std::vector<UpMessage>& Relay::outbox() noexcept { return impl_->up; }
SetId Relay::set_of_plan(std::uint32_t plan) const { return impl_->plans.at(plan); }
const std::vector<std::size_t>* Relay::children_of(SetId set) const {
  const relay::Set* const known = impl_->table.find_set(set);
  return known == nullptr ? nullptr : &known->children;
}
std::string Relay::words_of(SetId set) const {
  const relay::Set* const known = impl_->table.find_set(set);
  return known == nullptr ? std::string() : known->words;
}
TensorId Relay::id_bound() const noexcept { return impl_->table.id_bound(); }

}  // namespace kolo::control
