// SPDX-License-Identifier: Apache-2.0
//
// Two kinds of names, two ways of merging:
//
//   A name that has an id. For every child the relay keeps how far it has submitted (`reached`), whether it said so by
//   a count or by a declaration. A round is complete when every child that speaks has reached it; if some child
//   declared it, one `Declared` goes up, in which those who counted appear as the variant without a signature; else a
//   `Counted`.
//
//   A name that has none yet. All children must declare it. What they said is kept under (set, name) until it is
//   complete, and the fact that it was complete until the log has answered (a query in between is still answered
//   right). A request that names its members never has an id: the children that have one of these must declare it, and
//   it is kept under its list, too.
//
// A child speaks for a set while it has members that are present. What one that does not speak has said stays: the
// sequencer does not take it for the ranks that are absent (their `Joined` speaks for them), and the end of the join
// clears it.
//
// Unnamed asynchronous calls are merged by their numbers (sequence.hpp). What a joined rank had made is waited for as
// far as its `Joined` says, by everybody above it: only a message of its own node's is there before.
//
// Rounds need no book-keeping beyond this, because children are never more than one round apart: round k+1 begins when
// round k has been consumed by the log, and that takes everybody. The exception is a set in which a rank has left:
// there a round can fail before it is complete, and the children of one relay can drift apart. No round of that name
// will ever be complete again, so all that matters is that nothing breaks: the newest round wins.
#include "control/relay.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "control/ranges.hpp"
#include "control/sequence.hpp"

namespace kolo::control {

using core::kNoTensor;
using core::Round;
using core::SetId;
using core::TensorId;

namespace {

/// What has been declared of one round, and by which children.
struct Gathered {
  Round round = 0;
  std::vector<bool> declared;  ///< by child
  std::vector<Declared::Variant> variants;
  bool sent = false;
  /// Whether these children, at least one, have declared it.
  [[nodiscard]] bool holds(const std::vector<std::size_t>& speakers) const {
    return !speakers.empty() && std::all_of(speakers.begin(), speakers.end(), [this](auto c) { return declared[c]; });
  }
};

void merge(std::vector<Declared::Variant>& into, Declared::Variant&& variant) {
  for (Declared::Variant& known : into) {
    if (known.signature != variant.signature) continue;
    const auto middle = static_cast<std::ptrdiff_t>(known.ranks.size());
    known.ranks.insert(known.ranks.end(), variant.ranks.begin(), variant.ranks.end());
    std::inplace_merge(known.ranks.begin(), known.ranks.begin() + middle, known.ranks.end());
    return;
  }
  into.push_back(std::move(variant));
}

}  // namespace

struct Relay::Impl {
  struct Set {
    SetId number = 0;
    TensorId base = 0;
    std::vector<std::int32_t> members;
    std::vector<std::size_t> children;  ///< those with members
    std::vector<std::size_t> speakers;  ///< of these, those with members that are present
    std::vector<std::int32_t> joined;   ///< members that are absent, as far as they are below; ascending
    std::uint64_t appended = 0;         ///< batches, by the log
    std::uint64_t completed_sent = 0;
    bool lazy = false;                         ///< the last batch was a planned one
    std::unique_ptr<SequenceMerger> sequence;  ///< once there is something of it
  };
  /// What each child has reached stands apart, in `reached`: of an id's row the least that has gone up is `forwarded`.
  struct Tensor {
    Set* set = nullptr;                                  ///< null: the id means nothing now
    const std::vector<std::size_t>* speakers = nullptr;  ///< children that are waited for: the set's, of its completed
                                                         ///< and dropped counts all
    std::uint64_t forwarded = 0;
    std::unique_ptr<Gathered> gathered;  ///< declarations of a round that is not complete
    std::uint32_t ahead = 0;             ///< children beyond `forwarded`
    std::uint16_t generation = 0;
    bool completions = false;  ///< the set's completed count
    std::string name;
  };
  using Key = std::pair<SetId, std::string>;
  using RequestKey = std::tuple<SetId, std::vector<std::int32_t>, std::string>;
  /// What ids mean, and how far each child has come with them: by id, then by child.
  struct Ids {
    std::vector<Tensor> tensors;
    std::vector<std::uint64_t> reached;
  };

  Impl(int ranks, std::vector<std::vector<std::int32_t>> ranks_below, std::size_t local_children, std::uint64_t open,
       std::uint32_t ids)
      : size(ranks), capacity(ids), below(std::move(ranks_below)), local(local_children), open_batches(open) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    add_set(core::kGlobalSet, 0, 0, all);
  }

  // ---- tables

  /// Of these members those below a child.
  std::vector<std::int32_t> below_child(const std::vector<std::int32_t>& members, std::size_t child) const {
    std::vector<std::int32_t> common;
    std::set_intersection(members.begin(), members.end(), below[child].begin(), below[child].end(),
                          std::back_inserter(common));
    return common;
  }
  std::vector<std::size_t> children_with(const std::vector<std::int32_t>& members) const {
    std::vector<std::size_t> children;
    for (std::size_t child = 0; child < below.size(); ++child) {
      if (!below_child(members, child).empty()) children.push_back(child);
    }
    return children;
  }

  void add_set(SetId number, TensorId base, std::uint16_t generation, std::vector<std::int32_t> members) {
    Set& set = sets[number];
    set.number = number;
    set.base = base;
    set.children = set.speakers = children_with(members);
    set.members = std::move(members);
    const TensorId reserved = number == core::kGlobalSet ? core::kReservedIds : core::kRowIds;
    for (TensorId id = base; id < base + reserved; ++id) begin(id, set, "", generation, 0);
    find(base + core::kCompleted)->completions = true;
    find(base + core::kCompleted)->speakers = &set.children;
    if (number != core::kGlobalSet) find(base + core::kDropped)->speakers = &set.children;
  }

  /// From here on the id means this name, of which every child has submitted so many rounds.
  void begin(TensorId id, Set& set, const std::string& name, std::uint16_t generation, Round submitted) {
    Ids& ids = id < core::kFirstRow ? names_ids : rows;
    const std::size_t place = place_of(id);
    if (place >= ids.tensors.size()) {
      ids.tensors.resize(place + 1);
      ids.reached.resize(ids.tensors.size() * below.size());
    }
    Tensor& tensor = ids.tensors[place];
    tensor = Tensor{};
    tensor.set = &set;
    tensor.speakers = &set.speakers;
    tensor.name = name;
    tensor.generation = generation;
    tensor.forwarded = submitted;
    std::fill_n(row(id), below.size(), submitted);
  }

  static std::size_t place_of(TensorId id) { return id < core::kFirstRow ? id : id - core::kFirstRow; }
  [[nodiscard]] const Ids& ids_with(TensorId id) const { return id < core::kFirstRow ? names_ids : rows; }

  /// How far each child has come with this id.
  [[nodiscard]] const std::uint64_t* row(TensorId id) const {
    return ids_with(id).reached.data() + place_of(id) * below.size();
  }
  std::uint64_t* row(TensorId id) { return const_cast<std::uint64_t*>(std::as_const(*this).row(id)); }

  /// What an id means; null: nothing.
  [[nodiscard]] const Tensor* find(TensorId id) const {
    const std::vector<Tensor>& tensors = ids_with(id).tensors;
    const std::size_t place = place_of(id);
    return place < tensors.size() && tensors[place].set != nullptr ? &tensors[place] : nullptr;
  }
  Tensor* find(TensorId id) { return const_cast<Tensor*>(std::as_const(*this).find(id)); }

  Tensor* current(TensorId id, std::uint16_t generation) {
    Tensor* tensor = find(id);
    return tensor != nullptr && tensor->generation == generation ? tensor : nullptr;
  }

  // ---- names with an id

  void on_count(std::size_t child, TensorId id, CountWord word) {
    Tensor* tensor = current(id, word.generation);
    if (tensor != nullptr && word.count > row(id)[child]) reach(id, *tensor, child, word.count);
  }

  void reach(TensorId id, Tensor& tensor, std::size_t child, std::uint64_t count) {
    std::uint64_t& so_far = row(id)[child];
    const bool speaks = tensor.set->joined.empty() || is_one_of(*tensor.speakers, child);
    if (speaks && so_far <= tensor.forwarded && count > tensor.forwarded) ++tensor.ahead;
    so_far = count;
    if (speaks && tensor.ahead == tensor.speakers->size()) advance(id, tensor);
  }

  static bool is_one_of(const std::vector<std::size_t>& children, std::size_t child) {
    return std::binary_search(children.begin(), children.end(), child);
  }

  void advance(TensorId id, Tensor& tensor) {
    Set& set = *tensor.set;
    const std::uint64_t* const counts = row(id);
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
      up.emplace_back(Counted{id, CountWord{tensor.generation, least}});
    }
    if (set.lazy) send_completed(set);
  }

  std::uint32_t ahead_of(TensorId id, const Tensor& tensor) const {
    const std::uint64_t* const counts = row(id);
    std::uint32_t ahead = 0;
    for (const std::size_t child : *tensor.speakers) ahead += counts[child] > tensor.forwarded ? 1U : 0U;
    return ahead;
  }

  Declared declaration(TensorId id, Tensor& tensor) {
    Gathered& gathered = *tensor.gathered;
    for (const std::size_t child : *tensor.speakers) {
      if (!gathered.declared[child]) merge(gathered.variants, {std::nullopt, below_child(tensor.set->members, child)});
    }
    return {tensor.set->number, tensor.name, gathered.round, id, tensor.generation, std::move(gathered.variants)};
  }

  // ---- completed counts

  /// Whether the sequencer may be waiting for a count that is held back here.
  bool blocking(const Set& set) const { return set.appended - set.completed_sent >= open_batches; }

  void send_completed(Set& set) {
    const TensorId id = set.base + core::kCompleted;
    const Tensor& tensor = *find(id);
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

  static bool has_members(const Set& set, std::size_t child) { return is_one_of(set.children, child); }

  /// What a node below says, of counts that ranks of this node have on the board.
  void on_counted(std::size_t child, const Counted& counted) {
    const Tensor* tensor = current(counted.id, counted.word.generation);
    if (tensor == nullptr) return;
    require(has_members(*tensor->set, child), "a rank submits to a process set that it is no member of");
    on_count(child, counted.id, counted.word);
  }

  void gather(Gathered& gathered, std::size_t child, Declared&& declared) const {
    if (gathered.declared.empty()) gathered.declared.resize(below.size(), false);
    if (gathered.declared[child]) return;
    gathered.declared[child] = true;
    for (Declared::Variant& variant : declared.variants) merge(gathered.variants, std::move(variant));
  }

  void on_declared(std::size_t child, Declared&& declared) {
    const auto set = sets.find(declared.set);
    if (set == sets.end()) return;
    require(!declared.members.empty() || has_members(set->second, child),
            "a rank submits to a process set that it is no member of");
    for (const Declared::Variant& variant : declared.variants) {
      require(std::includes(below[child].begin(), below[child].end(), variant.ranks.begin(), variant.ranks.end()),
              "a rank submits for another one");
    }
    if (declared.id == kNoTensor) {
      const bool named = !declared.members.empty();
      on_declared_new(child, named ? children_with(declared.members) : set->second.speakers, std::move(declared));
      return;
    }
    Tensor* tensor = current(declared.id, declared.generation);
    const Round round = declared.round;
    if (tensor == nullptr) return;
    require(id_of({declared.set, declared.name}) == declared.id, "an id was declared under another name");
    if (round <= row(declared.id)[child]) return;
    if (!tensor->gathered || tensor->gathered->round < round) {
      tensor->gathered = std::make_unique<Gathered>();
      tensor->gathered->round = round;
    }
    const TensorId id = declared.id;
    if (tensor->gathered->round == round) gather(*tensor->gathered, child, std::move(declared));
    reach(id, *tensor, child, round);
  }

  /// `speakers`: the children that must declare it.
  void on_declared_new(std::size_t child, const std::vector<std::size_t>& speakers, Declared&& declared) {
    const RequestKey key(declared.set, declared.members, declared.name);
    Gathered& gathered = fresh[key];
    const Round round = declared.round;
    if (round < gathered.round) return;
    if (round > gathered.round) {
      gathered = Gathered{};
      gathered.round = round;
    }
    gather(gathered, child, std::move(declared));
    send_new(key, gathered, speakers);
  }

  void send_new(const RequestKey& key, Gathered& gathered, const std::vector<std::size_t>& speakers) {
    if (gathered.sent || !gathered.holds(speakers)) return;
    gathered.sent = true;
    const auto& [set, members, name] = key;
    up.emplace_back(Declared{set, name, gathered.round, kNoTensor, 0, std::exchange(gathered.variants, {}), members});
  }

  // ---- sequences

  SequenceMerger& sequence_of(Set& set) {
    if (!set.sequence) {
      std::vector<std::vector<std::int32_t>> members;
      for (std::size_t child = 0; child < below.size(); ++child) members.push_back(below_child(set.members, child));
      set.sequence = std::make_unique<SequenceMerger>(set.number, std::move(members));
    }
    return *set.sequence;
  }

  void on_grown(std::size_t child, SequenceGrown&& message) {
    const auto set = sets.find(message.set);
    if (set == sets.end()) return;
    require(has_members(set->second, child), "a rank submits to a process set that it is no member of");
    sequence_of(set->second).hear(child, std::move(message));
    merge_sequence(set->second);
  }

  void merge_sequence(Set& set) {
    if (!set.sequence) return;
    set.sequence->merge(set.speakers);
    if (set.sequence->up().has_news()) up.emplace_back(set.sequence->up().take());
  }

  void note_run(SetId number, std::uint64_t calls) {
    Set& set = set_of(number);
    if (!set.children.empty()) sequence_of(set).note_run(calls);
  }

  void on(const SequenceAppended& entry) {
    note_run(entry.set, entry.calls);
    note_batch(set_of(entry.set), false);
  }
  void on(const SequenceFailed& entry) { note_run(entry.set, 1); }
  void on(const SequenceEnded& entry) { set_of(entry.set); }

  // ---- joining

  void on_joined(std::size_t child, Joined&& joined) {
    const auto found = sets.find(joined.set);
    if (found == sets.end()) return;
    Set& set = found->second;
    const std::int32_t rank = joined.rank;
    const Round calls = joined.sequence;
    require(std::binary_search(below[child].begin(), below[child].end(), rank), "a rank joins for another one");
    require(std::binary_search(set.members.begin(), set.members.end(), rank),
            "a rank joins in a process set that it is no member of");
    up.emplace_back(std::move(joined));  // before what is complete without that rank
    const auto place = std::lower_bound(set.joined.begin(), set.joined.end(), rank);
    if (place != set.joined.end() && *place == rank) return;  // that join failed, and this one will
    set.joined.insert(place, rank);
    if (calls > 0) sequence_of(set).expect(child, calls);
    hear_speakers(set);
  }

  /// Finds out who speaks for the set, and passes on what is complete by that.
  void hear_speakers(Set& set) {
    std::vector<std::int32_t> present;
    std::set_difference(set.members.begin(), set.members.end(), set.joined.begin(), set.joined.end(),
                        std::back_inserter(present));
    set.speakers = children_with(present);
    for (const TensorId id : ids_of(set)) {
      Tensor& tensor = *find(id);
      tensor.ahead = ahead_of(id, tensor);
      if (!set.speakers.empty() && tensor.ahead == set.speakers.size()) advance(id, tensor);
    }
    for (auto request = first_fresh(set); is_of(request, set); ++request) {
      send_new(request->first, request->second, set.speakers);
    }
    merge_sequence(set);
  }

  /// Those of its names, and the reserved ones that absent ranks are not waited for at.
  std::vector<TensorId> ids_of(const Set& set) const {
    std::vector<TensorId> ids{set.base + core::kUnnamed, set.base + core::kSteps};
    for (auto name = names.lower_bound(Key(set.number, "")); name != names.end() && name->first.first == set.number;
         ++name) {
      ids.push_back(name->second);
    }
    return ids;
  }

  /// Its requests without an id, but for those that name their members.
  std::map<RequestKey, Gathered>::iterator first_fresh(const Set& set) {
    return fresh.lower_bound(RequestKey(set.number, {}, ""));
  }
  bool is_of(std::map<RequestKey, Gathered>::const_iterator request, const Set& set) const {
    return request != fresh.end() && std::get<SetId>(request->first) == set.number &&
           std::get<1>(request->first).empty();
  }

  void on(const RankJoined& entry) { set_of(entry.set); }

  void on(const JoinEnded& entry) {
    Set& set = set_of(entry.set);
    if (entry.code == ErrorCode::ok) {  // nothing is in flight
      for (auto request = first_fresh(set); is_of(request, set);) request = fresh.erase(request);
      for (const TensorId id : ids_of(set)) find(id)->gathered.reset();
      if (set.sequence) set.sequence->restart();
    }
    set.joined.clear();
    hear_speakers(set);
  }

  // ---- the log

  void on(const Assigned& entry) {
    const auto set = sets.find(entry.set);
    require(set != sets.end(), "there is no such process set");
    Tensor* const known = find(entry.id);
    const TensorId of_name = id_of({entry.set, entry.name});
    require(of_name == (known != nullptr ? entry.id : kNoTensor), "an id was assigned to another name");
    if (known != nullptr) {
      known->generation = entry.generation;
      return;
    }
    require(entry.id < core::kFirstRow, "an id was assigned that is in use");
    const auto found = fresh.find(RequestKey(entry.set, {}, entry.name));
    Round round = 0;
    if (found != fresh.end()) {
      round = found->second.round;
      fresh.erase(found);
    }
    begin(entry.id, set->second, entry.name, entry.generation, round);
    names[Key(entry.set, entry.name)] = entry.id;
  }

  void on(const Evicted& entry) {
    Tensor* const tensor = find(entry.id);
    require(tensor != nullptr && !tensor->name.empty(), "an id was evicted that means nothing");
    names.erase(Key(tensor->set->number, tensor->name));
    *tensor = Tensor{};
  }

  Set& set_of(SetId number) {
    const auto set = sets.find(number);
    require(set != sets.end(), "there is no such process set");
    return set->second;
  }

  void on(const BatchAppended& entry) { note_batch(set_of(entry.set), false); }
  void on(const PlannedBatch& entry) {
    const auto plan = plans.find(entry.plan);
    require(plan != plans.end(), "there is no such plan");
    note_batch(set_of(plan->second), true);
  }
  void on(const PlanDefined& entry) {
    set_of(entry.set);
    plans[entry.plan] = entry.set;
  }
  void on(const PlanVoided& entry) { plans.erase(entry.plan); }

  void on(const Failed& entry) {
    set_of(entry.set);
    const auto waiting = fresh.find(RequestKey(entry.set, entry.members, entry.name));
    if (waiting != fresh.end() && waiting->second.round <= entry.round) fresh.erase(waiting);
    const TensorId id = entry.members.empty() ? id_of({entry.set, entry.name}) : kNoTensor;
    if (id == kNoTensor) return;
    Tensor& tensor = *find(id);
    if (tensor.gathered && tensor.gathered->round <= entry.round) tensor.gathered.reset();
  }

  TensorId id_of(const Key& key) const {
    if (key.second.empty()) return sets.at(key.first).base + core::kUnnamed;
    const auto name = names.find(key);
    return name == names.end() ? kNoTensor : name->second;
  }

  /// For a deadline every rank answers by itself.
  void on(const Query& entry) {
    if (!entry.deadline) up.emplace_back(Missing{entry.query, missing(entry)});
  }

  /// The ranks of this node that are members and have not submitted.
  std::vector<std::int32_t> missing(const Query& query) const {
    std::vector<std::int32_t> ranks;
    const auto set = sets.find(query.set);
    if (set == sets.end()) return ranks;
    const std::vector<std::int32_t>& members = query.members.empty() ? set->second.members : query.members;
    for (const std::size_t child : children_with(members)) {
      if (child < local && !has_submitted(query, child)) ranks.push_back(below[child].front());
    }
    return ranks;
  }

  bool has_submitted(const Query& query, std::size_t child) const {
    if (query.members.empty() && !is_one_of(sets.at(query.set).speakers, child)) return true;
    if (query.name == kSequence && query.members.empty()) {
      const Set& set = sets.at(query.set);
      return query.round == 0 || (set.sequence && set.sequence->calls_of(child) >= query.round);
    }
    const TensorId id = query.members.empty() ? id_of({query.set, query.name}) : kNoTensor;
    if (id != kNoTensor) return row(id)[child] >= query.round;
    const auto waiting = fresh.find(RequestKey(query.set, query.members, query.name));
    if (waiting == fresh.end() || waiting->second.round < query.round) return false;
    return waiting->second.round > query.round || waiting->second.declared[child];
  }

  void on(const SetAdded& entry) {
    require(sets.count(entry.set) == 0, "a process set was added that there is already");
    require(find(entry.base) == nullptr, "a row of ids was reserved that is in use");
    std::vector<std::int32_t> members = entry.members;
    std::sort(members.begin(), members.end());
    fresh.erase(RequestKey(core::kGlobalSet, members, entry.name));
    add_set(entry.set, entry.base, entry.generation, std::move(members));
  }

  void on(const SetRemoved& entry) {
    require(entry.set != core::kGlobalSet, "the world's process set was removed");
    const TensorId base = set_of(entry.set).base;
    for (TensorId id = base; id < base + core::kRowIds; ++id) *find(id) = Tensor{};
    auto name = names.lower_bound(Key(entry.set, ""));
    for (; name != names.end() && name->first.first == entry.set; name = names.erase(name)) {
      *find(name->second) = Tensor{};
    }
    auto request = fresh.lower_bound(RequestKey(entry.set, {}, ""));
    while (request != fresh.end() && std::get<SetId>(request->first) == entry.set) request = fresh.erase(request);
    sets.erase(entry.set);
  }

  void on(const Stalled&) {}
  void on(const RankLeft&) {}
  void on(const Faulted&) {}
  void on(const Closed&) {}
  void on(const Push&) { asked_to_push = false; }

  const std::int32_t size;
  const std::uint32_t capacity;
  const std::vector<std::vector<std::int32_t>> below;  ///< ranks, by child
  const std::size_t local;
  const std::uint64_t open_batches;
  std::map<SetId, Set> sets;  ///< tensors point into it
  Ids names_ids;              ///< those of names, and the world's reserved ones
  Ids rows;                   ///< from kFirstRow on
  std::map<Key, TensorId> names;
  std::map<RequestKey, Gathered> fresh;  ///< requests without an id
  std::map<std::uint32_t, SetId> plans;
  bool asked_to_push = false;  ///< a Starved has gone up, and no Push has come since
  std::vector<UpMessage> up;
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

std::vector<UpMessage>& Relay::outbox() noexcept { return impl_->up; }
SetId Relay::set_of_plan(std::uint32_t plan) const { return impl_->plans.at(plan); }
TensorId Relay::id_bound() const noexcept { return static_cast<TensorId>(impl_->names_ids.tensors.size()); }

}  // namespace kolo::control
