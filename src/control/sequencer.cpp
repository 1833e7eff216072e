// SPDX-License-Identifier: Apache-2.0
//
// What is heard makes tensors *ready*; what is ready stands in its set's queue, in the order in which it became ready;
// what the backends have room for is taken from the queue and appended. A planned tensor does not queue by itself: its
// batch does, when the last member has become ready. So the queue holds tensors and planned batches, and a plan that
// is voided turns back into its ready members.
//
// The queue is ordered by priority, and by time among equals. Without priorities that is a comparison with the last
// one, and things come to the end.
//
// Nothing is decided by the time at which something was heard, except what stands together in a batch outside a plan;
// and whatever is decided is in the log, so that nobody has to come to the same conclusion by himself.
//
// Every entry passes `append`; after `Faulted` or `Closed` it takes no more.
//
// Calls of a set's sequence have a queue of their own, for they run in the order of their numbers. The set's queue
// holds a place for it; who has had a batch goes to the end.
//
// Joining needs to know what a rank had in flight when it joined, as of now; the rank says it as of the entry that it
// had read. Of a name with an id the rounds tell whether the log has run or failed it since. Names that have lost their
// id, or failed before they had one, are remembered until every member has read of it (`Set::over`).
#include "control/sequencer.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.hpp"
#include "control/absentees.hpp"
#include "control/planner.hpp"
#include "control/ranges.hpp"
#include "control/sentences.hpp"
#include "control/sequence.hpp"
#include "control/tensor_table.hpp"

namespace kolo::control {

using core::CollectiveKind;
using core::kNoTensor;
using core::Round;
using core::SetId;
using core::Signature;
using core::TensorId;

namespace {

/// As it stands in the log.
Signature without_names(Signature signature) {
  signature.names.clear();
  return signature;
}

}  // namespace

struct Sequencer::Impl {
  struct Queued {
    bool planned = false;  ///< a batch of the set's plan, by number; else a tensor, by id
    std::uint32_t which = 0;
    bool calls = false;  ///< instead: calls of the set's sequence
    std::int32_t priority = 0;
    std::uint64_t since = 0;  ///< batches of the set before it was queued
    [[nodiscard]] bool is_tensor() const noexcept { return !planned && !calls; }
  };
  /// Unnamed asynchronous calls.
  struct Sequence {
    SequenceReceiver heard;
    std::deque<Calls> queue;               ///< of these, what is not in the log
    Round run = 0;                         ///< what is
    Round last = ~Round{0};                ///< no later one can run: a rank has left that had come to here
    Round asked = 0;                       ///< the highest that a member in a set with such a rank has made
    std::map<std::int32_t, Round> joined;  ///< how far the absent ranks have come
    /// Those that have not made this call, ascending.
    [[nodiscard]] std::vector<std::int32_t> without(Round call) const {
      std::vector<std::int32_t> ranks;
      for (const auto& [rank, calls] : joined) {
        if (calls < call) ranks.push_back(rank);
      }
      return ranks;
    }
    /// Whether everything that the absent ranks had made is in the log.
    [[nodiscard]] bool is_done() const {
      return queue.empty() &&
             std::all_of(joined.begin(), joined.end(), [this](auto& one) { return one.second <= run; });
    }
  };
  struct Plan {
    Plan(std::uint32_t plan, Planner::Batches cut)
        : number(plan), batches(std::move(cut)), ready(batches.size(), 0), priorities(batches.size(), 0) {}
    std::uint32_t number;
    Planner::Batches batches;
    std::vector<std::size_t> ready;        ///< members that are, by batch
    std::vector<std::int32_t> priorities;  ///< the highest of its members', by batch
  };
  /// A name that the log knows nothing of any more, and what it had come to.
  struct Over {
    std::string name;
    Round round = 0;            ///< the last that was run or failed
    std::uint64_t entry = 0;    ///< of the log, from 1, which said so
    std::uint64_t batches = 0;  ///< of the set before it: when every member has completed more, all have read it
  };
  struct Set {
    Set(SetId id, TensorTable& tensors, std::int64_t threshold) : number(id), planner(id, tensors, threshold) {}
    SetId number;
    TensorId base = 0;
    std::vector<std::int32_t> members;
    std::vector<std::int32_t> order;  ///< the same, in the set's order
    std::string words;                ///< the group, for people; empty: the world's
    std::deque<Queued> queue;
    bool waits = false;  ///< stands in `waiting`, as every set does whose queue is not empty
    std::uint64_t appended = 0;
    std::uint64_t completed = 0;
    std::uint64_t steps = 0;  ///< heard; a set that never says so has its steps recognised by repetition
    bool has_left = false;    ///< some member has
    bool has_gone = false;    ///< some member has left, and its process has ended or cannot be reached
    bool ends = false;        ///< the set, or the log, is about to end: there is no step that a plan could be for
    Planner planner;
    std::optional<Plan> plan;
    Sequence sequence;
    // Joining:
    Absentees absent;
    std::int32_t last = -1;        ///< of them, who joined
    std::uint64_t most_steps = 0;  ///< that one of them has ended
    Round most_calls = 0;          ///< unnamed ones that one of them has begun
    std::uint64_t joins = 0;       ///< that have ended
    std::deque<Over> over;
  };
  /// Agreed upon, and waits for an id.
  struct Newcomer {
    SetId set = 0;
    std::string name;
    Round round = 0;
    Signature signature;
  };
  /// Of a request: sets may use one name for different things, and so may requests that name their members.
  using Key = std::tuple<SetId, std::vector<std::int32_t>, std::string, bool>;
  struct Request {
    SetId set = 0;
    std::string name;
    Round round = 0;
    std::vector<std::int32_t> members{};  ///< who makes it; empty: the set's members
    bool join = false;                    ///< the set's join, of this number
    [[nodiscard]] Key key() const { return {set, members, name, join}; }
  };
  struct Question {
    Request request;
    std::int32_t asker = 0;  ///< the first
    bool deadline = false;
    double waited_s = 0;
    // For a warning:
    core::CollectiveKind kind = core::CollectiveKind::allreduce;  ///< of the asker's submission
    int answers = 0;
    std::vector<std::int32_t> missing;
    std::vector<std::int32_t> gone;    ///< of these, who had left when the answer came
    std::vector<std::int32_t> absent;  ///< and who had joined the world, if the request names its members
    std::uint64_t joins = 0;           ///< of the world that had ended then
    // For a deadline:
    bool running = false;    ///< every member has submitted it
    Time due = Time::max();  ///< when the answers that have come must do
    std::vector<Answer> heard;
  };
  explicit Impl(const SequencerOptions& chosen)
      : options(chosen), tensors(chosen.capacity), memberships(static_cast<std::size_t>(chosen.size), 0),
        left(static_cast<std::size_t>(chosen.size), false), gone(static_cast<std::size_t>(chosen.size), false) {
    KOLO_CHECK(options.capacity > core::kReservedIds && options.open_batches > 0 && options.size > 0);
    std::vector<std::int32_t> all(static_cast<std::size_t>(options.size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    tensors.reserve_for_the_world();
    add_set(core::kUnnamed, std::move(all));
  }

  // ---------------------------------------------------------------- the log

  void append(LogEntry entry) {
    if (ended) return;
    ++counters.entries;
    out.push_back(std::move(entry));
  }

  void fault(ErrorCode code, std::int32_t rank, const std::string& message) {
    append(Faulted{code, rank, message});
    ended = true;
  }

  // ---------------------------------------------------------------- readiness

  void on(const Counted& message, Time) {
    if (!tensors.is_current(message.id, message.word.generation)) return;
    const Tensor& tensor = tensors[message.id];
    Set& set = tensor.set == core::kGlobalSet ? sets.begin()->second : sets.at(tensor.set);  // the first of them
    if (message.id == set.base + core::kCompleted) {
      require(message.word.count <= set.appended, "more batches are complete than there were");
      set.completed = message.word.count;
    } else if (message.id == set.base + core::kSteps) {
      set.steps = message.word.count;
      end_step(set);
    } else if (tensor.reserved && message.id != set.base + core::kUnnamed) {
      remove_set(set);
    } else if (message.word.count > tensor.round) {
      if (set.absent.empty()) return become_ready(set, message.id, message.word.count);
      on_complete(
          set,
          {set.number, tensor.name, message.word.count, message.id, tensor.generation, {{std::nullopt, set.members}}});
    }
  }

  void become_ready(Set& set, TensorId id, Round round) {
    Tensor& tensor = tensors[id];
    require(!tensor.ready, "a tensor was submitted again before its batch");
    if (!hopeless_rounds.empty() || set.has_gone) {
      const Request request{set.number, tensor.name, round};
      if (is_hopeless(request)) return fail_hopeless(request);
      if (set.has_gone) return fail_without_members(request);
    }
    require(tensor.signature.has_value(), "a tensor was counted before it had a signature");
    tensor.round = round;
    tensor.ready = true;
    tensor.came = ++readied;
    if (!tensor.planned) return enqueue(set, queued(set, id));
    if (++set.plan->ready[tensor.batch] == set.plan->batches[tensor.batch].size()) {
      enqueue(set, queued_batch(set, tensor.batch));
    }
  }

  Queued queued(const Set& set, TensorId id) const { return {false, id, false, tensors[id].priority, set.appended}; }
  static Queued queued_batch(const Set& set, std::uint32_t number) {
    return {true, number, false, set.plan->priorities[number], set.appended};
  }
  static Queued queued_calls(const Set& set) { return {false, 0, true, 0, set.appended}; }

  /// Behind what is as urgent.
  void enqueue(Set& set, const Queued& item) {
    const auto precedes = [](const Queued& a, const Queued& b) { return a.priority > b.priority; };
    auto place = set.queue.end();
    if (!set.queue.empty() && precedes(item, set.queue.back()))
      place = std::upper_bound(set.queue.begin(), set.queue.end(), item, precedes);
    set.queue.insert(place, item);
    if (!std::exchange(set.waits, true)) waiting.push_back(set.number);
  }

  /// Brings what has been overtaken for long to the front, for the next batch.
  void be_fair(Set& set) const {
    if (set.queue.front().priority == set.queue.back().priority) return;
    const auto oldest = std::min_element(set.queue.begin(), set.queue.end(),
                                         [](const Queued& a, const Queued& b) { return a.since < b.since; });
    if (set.appended - oldest->since < options.patience) return;
    std::rotate(set.queue.begin(), oldest, std::next(oldest));
  }

  // ---------------------------------------------------------------- declarations

  void on(const Declared& message, Time) {
    const auto found = sets.find(message.set);
    if (found == sets.end()) return;
    if (!message.members.empty()) return make_set(message);
    const bool known = message.id != kNoTensor;
    if (known && !tensors.is_current(message.id, message.generation)) return;
    require(!known || is_id_of(message.id, message.set, message.name), "an id was declared under another name");
    require(known || tensors.find(message.set, message.name) == kNoTensor, "a name was declared without its id");
    if (const Request request = request_of(message); is_hopeless(request)) return fail_hopeless(request);
    if (found->second.has_gone) return fail_without_members(request_of(message));
    on_complete(found->second, message);
  }

  /// Every member that is present has submitted it.
  void on_complete(Set& set, const Declared& message) {
    std::vector<Opinion> opinions = opinions_of(message);
    if (!set.absent.empty()) hear_absent(set, message.name, opinions);
    if (opinions.size() > 1) return disagree(set, message, opinions);
    const Signature& signature = opinions.front().signature;
    require(!core::traits_of(signature.kind).makes_set, "a process set was asked for without its members");
    if (!set.absent.empty()) {
      const std::string why = why_not(set, request_of(message), signature, set.absent.without(message.name));
      if (!why.empty()) return fail_round(set, message, ErrorCode::invalid_argument, why);
    }
    if (message.id == kNoTensor) {
      newcomers.push_back({message.set, message.name, message.round, signature});
      assign_ids();
      return;
    }
    if (tensors[message.id].signature != signature) change_signature(set, message.id, signature);
    become_ready(set, message.id, message.round);
  }

  bool is_id_of(TensorId id, SetId set, const std::string& name) const {
    return tensors.find(set, name) == id;  // of reserved ids only that of the unnamed calls has a name, which is empty
  }

  /// Who said what; those who counted meant the present signature.
  std::vector<Opinion> opinions_of(const Declared& message) const {
    std::vector<Opinion> opinions;
    for (const Declared::Variant& variant : message.variants) {
      const bool whole = variant.signature.has_value();
      require(whole || (message.id != kNoTensor && tensors[message.id].signature),
              "a tensor was counted before it had a signature");
      add_opinion(opinions, whole ? *variant.signature : *tensors[message.id].signature, variant.ranks);
    }
    return opinions;
  }

  static void add_opinion(std::vector<Opinion>& opinions, const Signature& signature,
                          const std::vector<std::int32_t>& ranks) {
    const auto same = std::find_if(opinions.begin(), opinions.end(),
                                   [&signature](const Opinion& o) { return o.signature == signature; });
    if (same == opinions.end()) {
      opinions.push_back({signature, ranks});
    } else {
      same->ranks.insert(same->ranks.end(), ranks.begin(), ranks.end());
    }
  }

  void disagree(Set& set, const Declared& message, const std::vector<Opinion>& opinions) {
    fail_round(set, message, ErrorCode::mismatch, disagreement_about(request_of(message), opinions));
  }

  /// Every member has submitted it, and it cannot run.
  void fail_round(Set& set, const Declared& message, ErrorCode code, const std::string& sentence) {
    if (message.id != kNoTensor) {
      if (tensors[message.id].planned) void_plan(set, PlanEnd::failed);
      tensors[message.id].round = message.round;
    }
    fail(request_of(message), code, sentence);
    if (message.id != kNoTensor || !message.members.empty()) return;
    // The last failure of a name says all that those before it do.
    const auto is_older = [&](const Over& over) { return over.name == message.name && over.round <= message.round; };
    set.over.erase(std::remove_if(set.over.begin(), set.over.end(), is_older), set.over.end());
    note_over(set, message.name, message.round);
  }

  template <class Message>
  static Request request_of(const Message& message) {
    return {message.set, message.name, message.round, message.members};
  }
  [[nodiscard]] std::string words_of(SetId set) const {
    const auto found = sets.find(set);
    return found == sets.end() ? std::string() : found->second.words;
  }
  [[nodiscard]] std::string subject_of(const Request& request) const {
    const std::string group = words_of(request.set);
    return request.join ? join_of(group) : subject(group, request.name, request.round, request.members);
  }
  [[nodiscard]] std::string disagreement_about(const Request& request, const std::vector<Opinion>& opinions) const {
    return disagreement(subject({}, request.name, request.round, request.members), words_of(request.set), opinions);
  }
  void fail(const Request& request, ErrorCode code, const std::string& sentence) {
    if (request.members.empty()) sets.at(request.set).absent.consume(request.name);
    append(Failed{request.set, request.name, request.round, code, sentence, request.members});
  }
  /// Those who make it, ascending.
  const std::vector<std::int32_t>& members_of(const Request& request) const {
    return request.members.empty() ? sets.at(request.set).members : request.members;
  }

  void change_signature(Set& set, TensorId id, const Signature& signature) {
    if (tensors[id].planned) void_plan(set, PlanEnd::signature);
    tensors.change(id, signature);
    append(Assigned{id, tensors[id].generation, set.number, tensors[id].name, without_names(signature)});
  }

  // ---------------------------------------------------------------- sequences

  void on(SequenceGrown message, Time) {
    const auto found = sets.find(message.set);
    if (found == sets.end()) return;
    Set& set = found->second;
    Sequence& sequence = set.sequence;
    const bool was_empty = sequence.queue.empty();
    Round number = sequence.heard.calls();
    for (Calls& calls : sequence.heard.take(std::move(message))) {
      if (number >= sequence.last) break;
      calls.count = std::min(calls.count, sequence.last - number);
      number += calls.count;
      sequence.queue.push_back(std::move(calls));
    }
    if (was_empty && !sequence.queue.empty()) enqueue(set, queued_calls(set));
  }

  /// Appends what fails of the next calls, and one batch, if there is one.
  void append_calls(Set& set) {
    Sequence& sequence = set.sequence;
    SequenceAppended batch{set.number, 0};
    std::vector<std::int32_t> absent;
    BatchRoom room(options.fusion_threshold);
    while (!sequence.queue.empty()) {
      Calls& next = sequence.queue.front();
      const Round number = sequence.run + 1;
      std::vector<std::int32_t> without = sequence.without(number);
      const Request request{set.number, kSequence, number};
      if (const std::string why = why_not(set, request, next, without); !why.empty()) {
        if (batch.calls > 0) break;
        append(SequenceFailed{set.number, number, next.signature ? ErrorCode::invalid_argument : ErrorCode::mismatch,
                              why});
        pop_calls(sequence, 1);
        continue;
      }
      const std::int64_t bytes = next.signature->bytes();
      if (batch.calls > 0 && (without != absent || !room.takes(next.signature->kind, bytes))) break;
      absent = std::move(without);
      const std::uint64_t count = room.add_alike(next.signature->kind, bytes, alike(sequence, next.count));
      if (!absent.empty()) batch.repeats.push_back({count, without_names(*next.signature)});
      batch.calls += count;
      pop_calls(sequence, count);
    }
    if (batch.calls == 0) return;
    ++set.appended;
    append(std::move(batch));
  }

  static void pop_calls(Sequence& sequence, std::uint64_t count) {
    sequence.run += count;
    sequence.queue.front().count -= count;
    if (sequence.queue.front().count == 0) sequence.queue.pop_front();
  }

  /// Of the next calls, so many at most, those to which the same ranks contribute.
  static std::uint64_t alike(const Sequence& sequence, std::uint64_t count) {
    for (const auto& [rank, calls] : sequence.joined) {
      if (calls > sequence.run) count = std::min(count, calls - sequence.run);
    }
    return count;
  }

  /// Why this call cannot run; empty: it can.
  std::string why_not(const Set& set, const Request& request, const Calls& calls,
                      const std::vector<std::int32_t>& absent) const {
    if (calls.signature) return why_not(set, request, *calls.signature, absent);
    std::vector<Opinion> opinions;
    for (const Declared::Variant& variant : calls.variants) {
      std::vector<std::int32_t> ranks;
      std::set_difference(variant.ranks.begin(), variant.ranks.end(), absent.begin(), absent.end(),
                          std::back_inserter(ranks));
      if (!ranks.empty()) opinions.push_back({*variant.signature, std::move(ranks)});
    }
    require(opinions.size() > 1, "a call was disputed on which ranks agree");
    return disagreement_about(request, opinions);
  }

  /// Some member waits for this call, in a set with a rank that has left.
  void note_asked(Set& set, Round call) {
    set.sequence.asked = std::max(set.sequence.asked, call);
    end_sequence(set);
  }

  /// Says that calls will never be complete, if somebody has made one.
  void end_sequence(Set& set) {
    if (set.sequence.asked <= set.sequence.last) return;
    const Request request{set.number, kSequence, set.sequence.last + 1};
    std::vector<std::int32_t> absent;
    for (const std::int32_t member : set.members) {
      if (has_left(member)) absent.push_back(member);
    }
    const std::vector<std::int32_t> culprits = first_of(absent);
    set.sequence.asked = set.sequence.last;
    append(SequenceEnded{set.number, set.sequence.last, ErrorCode::rank_lost,
                         culprits.empty() ? nothing_more(first_to_leave)
                                          : hopeless(subject_of(request), false, culprits)});
  }

  /// Later calls cannot run.
  void cut_sequence(Set& set, Round last) {
    Sequence& sequence = set.sequence;
    if (last >= sequence.last) return;
    sequence.last = last;
    end_sequence(set);
  }

  // ---------------------------------------------------------------- ids

  void assign_ids() {
    while (!newcomers.empty()) {
      const Newcomer& next = newcomers.front();
      const auto set = sets.find(next.set);
      const Request request{next.set, next.name, next.round};
      if (set != sets.end() && is_hopeless(request)) {
        fail_hopeless(request);  // no id: those who submitted it have given it up
      } else if (set != sets.end()) {
        const TensorId id = make_room();
        if (id == kNoTensor) return;
        tensors.assign(id, next.set, next.name, next.signature);
        append(Assigned{id, tensors[id].generation, next.set, next.name, without_names(next.signature)});
        become_ready(set->second, id, next.round);
      }
      newcomers.pop_front();
    }
  }

  /// A free id; kNoTensor when every id is ready and has to be appended first.
  TensorId make_room() {
    const TensorId id = tensors.free_id();
    if (id != kNoTensor) return id;
    const TensorId oldest = tensors.least_recently_used();
    if (oldest != kNoTensor) {
      evict(oldest);
      return oldest;
    }
    // Ready members of incomplete planned batches would never drain by themselves.
    for (auto& [number, set] : sets) {
      if (set.plan) void_plan(set, PlanEnd::evicted);
    }
    return kNoTensor;
  }

  void evict(TensorId id) {
    Set& set = sets.at(tensors[id].set);
    if (tensors[id].planned) void_plan(set, PlanEnd::evicted);
    append(Evicted{id, tensors[id].generation});
    set.absent.restart(tensors[id].name);
    note_over(set, tensors[id].name, tensors[id].round);
    tensors.release(id);
    ++counters.evictions;
  }

  // ---------------------------------------------------------------- joining

  void note_over(Set& set, const std::string& name, Round round) {
    while (!set.over.empty() && set.over.front().batches < set.completed) set.over.pop_front();
    set.over.push_back({name, round, counters.entries, set.appended});
  }

  void on(const Joined& message, Time) {
    const auto found = sets.find(message.set);
    if (found == sets.end()) return;
    Set& set = found->second;
    require(std::binary_search(set.members.begin(), set.members.end(), message.rank),
            "a rank joins in a process set that it is no member of");
    if (set.has_left) return end_join_without(set);
    require(!set.absent.has(message.rank), "a rank joins that has joined");
    if (set.plan) void_plan(set, PlanEnd::joined);
    RankJoined entry{set.number, message.rank, {}, message.counts, message.sequence};
    Absentees::Submissions submissions;
    for (const Joined::Submission& submission : message.submissions) {
      if (is_over(set, submission, message.read)) continue;
      entry.submissions.push_back(submission.name);
      Joined::Submission& listed = submissions[submission.name] = submission;
      // Its id was evicted, and the rank has not read it, or had not been able to submit it again.
      if (submission.id != kNoTensor && tensors.find(set.number, submission.name) == kNoTensor) listed.round = 1;
    }
    append(std::move(entry));
    set.absent.add(message.rank, std::move(submissions), message.counts);
    set.sequence.joined[message.rank] = message.sequence;
    set.last = message.rank;
    set.most_steps = std::max(set.most_steps, message.steps);
    set.most_calls = std::max(set.most_calls, message.calls);
    if (set.absent.size() < set.members.size()) return;
    ending.push_back(set.number);
    complete_rest(set);
  }

  /// Whether the log has run or failed it since the rank had read so many entries.
  bool is_over(const Set& set, const Joined::Submission& submission, std::uint64_t read) const {
    const TensorId id = tensors.find(set.number, submission.name);
    if (id != kNoTensor) return tensors[id].round >= submission.round && !tensors[id].ready;
    return std::any_of(set.over.begin(), set.over.end(), [&](const Over& over) {
      return over.entry > read && over.name == submission.name && over.round >= submission.round;
    });
  }

  /// All members have joined: nobody will submit what only some of them have.
  void complete_rest(Set& set) {
    std::set<std::string> names;
    for (const auto& [rank, submissions] : set.absent.submissions()) {
      for (const auto& [name, submission] : submissions) names.insert(name);
    }
    for (const std::string& name : names) {
      const Round round = set.absent.round_of(name);  // as of now: making room for the last one may have evicted its id
      const TensorId id = tensors.find(set.number, name);
      const bool is_known = id != kNoTensor;
      if (round == 0 || (is_known ? tensors[id].round >= round : is_newcomer(set.number, name))) continue;
      on_complete(set, {set.number, name, round, id, is_known ? tensors[id].generation : std::uint16_t{0}, {}});
    }
  }

  bool is_newcomer(SetId set, const std::string& name) const {
    return std::any_of(newcomers.begin(), newcomers.end(),
                       [&](const Newcomer& one) { return one.set == set && one.name == name; });
  }

  /// What the absent say of this name's round; what seems to be said for them is older.
  static void hear_absent(const Set& set, const std::string& name, std::vector<Opinion>& opinions) {
    for (Opinion& opinion : opinions) {
      std::vector<std::int32_t>& ranks = opinion.ranks;
      ranks.erase(std::remove_if(ranks.begin(), ranks.end(), [&](std::int32_t rank) { return set.absent.has(rank); }),
                  ranks.end());
    }
    opinions.erase(std::remove_if(opinions.begin(), opinions.end(), [](const Opinion& o) { return o.ranks.empty(); }),
                   opinions.end());
    for (const auto& [rank, submissions] : set.absent.submissions()) {
      const auto found = submissions.find(name);
      if (found != submissions.end()) add_opinion(opinions, found->second.signature, {rank});
    }
    require(!opinions.empty(), "a tensor was submitted by nobody");
  }

  /// Why this cannot run while some are absent; empty: it can.
  std::string why_not(const Set& set, const Request& request, const Signature& signature,
                      const std::vector<std::int32_t>& absent) const {
    const core::CollectiveTraits& traits = core::traits_of(signature.kind);
    if (absent.empty()) return {};
    if (traits.needs_all) return needs_all(subject_of(request), signature.kind, absent);
    if (traits.reduces && signature.op == ReduceOp::product && signature.prescale != 1) {
      return scaled_product(subject_of(request), signature.kind, absent);
    }
    if (!traits.rooted || signature.root < 0 || static_cast<std::size_t>(signature.root) >= set.order.size()) return {};
    const std::int32_t root = set.order[static_cast<std::size_t>(signature.root)];
    const bool has_root = !std::binary_search(absent.begin(), absent.end(), root);
    return has_root ? std::string() : absent_root(subject_of(request), signature.kind, root);
  }

  /// All members have joined, and what they had submitted has run.
  void end_joins() {
    for (const SetId number : std::exchange(ending, {})) {
      Set& set = sets.at(number);
      if (!set.absent.are_done() || !set.sequence.is_done()) {
        ending.push_back(number);
        continue;
      }
      append(JoinEnded{number, set.last, std::max(set.most_steps, set.steps), ErrorCode::ok, {}, set.most_calls});
      forget_join(set);
    }
  }

  void forget_join(Set& set) {
    ++set.joins;
    set.absent.clear();
    set.sequence.joined.clear();
    set.most_steps = 0;
    set.most_calls = 0;
    forget(stalls, [&set](const auto& item) { return item.first == join_in(set).key(); });
    forget(questions, [&set](const auto& item) { return item.second.request.key() == join_in(set).key(); });
  }

  static Request join_in(const Set& set) { return {set.number, "", set.joins + 1, {}, true}; }

  /// A member has left. What has been said without the absent is on its way up, so nothing can be believed any more.
  void end_join_without(Set& set) {
    // What all had submitted before runs, also what waits for an id.
    for (std::uint64_t before = ~std::uint64_t{0}; before != counters.entries;) {
      before = counters.entries;
      flush(set, true);
      assign_ids();
    }
    forget_set(ending, set.number);
    std::vector<std::int32_t> absent;
    for (const std::int32_t member : set.members) {
      if (has_left(member)) absent.push_back(member);
    }
    for (const Newcomer& newcomer : std::exchange(newcomers, {})) {
      if (newcomer.set == set.number) {
        fail_without_members({newcomer.set, newcomer.name, newcomer.round});
      } else {
        newcomers.push_back(newcomer);
      }
    }
    desert(set);
    const std::vector<std::int32_t> culprits = first_of(absent);
    const std::string why = culprits.empty() ? nothing_more(first_to_leave) : endless(join_of(set.words), culprits);
    append(JoinEnded{set.number, -1, 0, ErrorCode::rank_lost, why});
    forget_join(set);
    fail_questions();
  }

  static void forget_set(std::vector<SetId>& list, SetId set) {
    list.erase(std::remove(list.begin(), list.end(), set), list.end());
  }

  // ---------------------------------------------------------------- process sets

  /// All its members have asked for it.
  void make_set(const Declared& message) {
    const Request request = request_of(message);
    forget(questions, [&request](const auto& item) { return item.second.request.key() == request.key(); });
    stalls.erase(request.key());
    if (is_hopeless(request)) return fail_hopeless(request);
    const std::vector<Opinion> opinions = opinions_of(message);
    if (opinions.size() > 1) return disagree(sets.at(message.set), message, opinions);
    for (const std::int32_t member : message.members) {
      if (memberships[static_cast<std::size_t>(member)] < options.sets_per_rank) continue;
      return fail(request, ErrorCode::invalid_argument,
                  too_many_sets(subject_of(request), member, options.sets_per_rank));
    }
    const TensorId base = tensors.reserve_row(next_set);
    if (base == kNoTensor) {
      return fail(request, ErrorCode::invalid_argument,
                  subject_of(request) + " cannot be made: there are " + std::to_string(core::kMostSets) +
                      " already; drop those that are not used any more");
    }
    Set& set = add_set(base, message.members);
    set.order = opinions.front().signature.ranks;
    set.words = group_of(message.name, set.members);
    append(SetAdded{set.number, base, tensors[base].generation, set.order, message.name});
    for (const std::int32_t member : set.members) {
      ++memberships[static_cast<std::size_t>(member)];
      note_left(set, member);
    }
  }

  Set& add_set(TensorId base, std::vector<std::int32_t> members) {
    const SetId number = next_set++;
    Set& set = sets.try_emplace(number, number, tensors, options.fusion_threshold).first->second;
    set.base = base;
    set.order = set.members = std::move(members);
    return set;
  }

  void note_left(Set& set, std::int32_t rank) {
    set.has_left = set.has_left || has_left(rank);
    if (has_left(rank)) cut_sequence(set, 0);
    set.has_gone = set.has_gone || has_gone(rank);
  }

  /// What all members have submitted still runs; the backends' room does not matter any more.
  void flush_out(Set& set) {
    set.ends = true;
    if (set.plan) void_plan(set, PlanEnd::left);
    flush(set, true);
  }

  /// Every member has done with it.
  void remove_set(Set& set) {
    const std::vector<TensorId> ids = tensors.of_set(set.number);
    const auto is_ready = [this](TensorId id) { return tensors[id].ready; };
    require(set.absent.empty(), "a process set was dropped by a rank that has joined");
    require(set.sequence.queue.empty(), "a process set was dropped with a call in flight");
    require(set.queue.empty() && !is_ready(set.base + core::kUnnamed) && std::none_of(ids.begin(), ids.end(), is_ready),
            "a process set was dropped with something in flight");
    if (set.plan) void_plan(set, PlanEnd::left);
    append(SetRemoved{set.number});
    forget(questions, [&set](const auto& item) { return item.second.request.set == set.number; });
    forget(stalls, [&set](const auto& item) { return std::get<SetId>(item.first) == set.number; });
    forget(hopeless_rounds, [&set](const auto& item) { return std::get<SetId>(item.first) == set.number; });
    for (const TensorId id : ids) tensors.release(id);
    tensors.release_row(set.base);
    for (const std::int32_t member : set.members) --memberships[static_cast<std::size_t>(member)];
    if (set.waits) waiting.erase(std::find(waiting.begin(), waiting.end(), set.number));
    sets.erase(sets.find(set.number));
  }

  template <class Map, class Predicate>
  static void forget(Map& map, Predicate is_over) {
    for (auto it = map.begin(); it != map.end();) it = is_over(*it) ? map.erase(it) : std::next(it);
  }

  // ---------------------------------------------------------------- flushing

  void flush(Set& set, bool without_limit = false) {
    while (!set.queue.empty() && (without_limit || set.appended - set.completed < options.open_batches)) {
      be_fair(set);
      const Queued first = set.queue.front();
      if (begins_step(set, first)) {
        end_step(set);  // may define a plan, and take the queue's front into it
      } else if (first.calls) {
        set.queue.pop_front();
        append_calls(set);
        if (!set.sequence.queue.empty()) enqueue(set, queued_calls(set));
      } else if (first.planned) {
        set.queue.pop_front();
        append_planned(set, first.which);
      } else {
        append_batch(set);
      }
    }
  }

  /// Whether this is a name's second entry in a step, in a set that does not end its steps by itself; also bounds what
  /// a step that never ends can hold.
  bool begins_step(const Set& set, const Queued& next) const {
    if (set.planner.step_size() > options.capacity) return true;
    if (set.steps > 0 || next.calls) return false;
    if (!next.planned) return set.planner.repeats(next.which);
    const std::vector<TensorId>& members = set.plan->batches[next.which];
    return std::any_of(members.begin(), members.end(), [&set](TensorId id) { return set.planner.repeats(id); });
  }

  void append_planned(Set& set, std::uint32_t number) {
    for (const TensorId id : set.plan->batches[number]) take(set, id);
    set.plan->ready[number] = 0;
    ++set.appended;
    append(PlannedBatch{set.plan->number, number});
  }

  void append_batch(Set& set) {
    BatchAppended batch{set.number, {}};
    BatchRoom room(options.fusion_threshold);
    std::vector<std::int32_t> absent;
    if (!set.absent.empty()) absent = set.absent.without(tensors[set.queue.front().which].name);
    while (!set.queue.empty()) {
      const Queued next = set.queue.front();
      if (!next.is_tensor() || !room.takes(tensors[next.which])) break;
      if (!batch.members.empty() && begins_step(set, next)) break;
      if (!set.absent.empty() && set.absent.without(tensors[next.which].name) != absent) break;
      room.add(tensors[next.which]);
      batch.members.push_back(next.which);
      take(set, next.which);
      set.queue.pop_front();
    }
    ++set.appended;
    append(std::move(batch));
  }

  void take(Set& set, TensorId id) {
    tensors[id].ready = false;
    tensors.touch(id);
    set.planner.note(id);
    if (!set.absent.empty()) set.absent.consume(tensors[id].name);
  }

  // ---------------------------------------------------------------- plans

  void end_step(Set& set) {
    const auto batches = set.planner.end_step();
    if (!batches || !options.plan || set.has_left || set.ends || !set.absent.empty()) return;
    if (set.plan) void_plan(set, PlanEnd::new_plan);
    define_plan(set, *batches);
  }

  void define_plan(Set& set, const Planner::Batches& batches) {
    Plan& plan = set.plan.emplace(next_plan++, batches);
    plan_owner[plan.number] = set.number;
    append(PlanDefined{plan.number, set.number, batches});
    for (std::uint32_t number = 0; number < batches.size(); ++number) {
      std::int32_t& highest = plan.priorities[number] = tensors[batches[number].front()].priority;
      for (const TensorId id : batches[number]) {
        tensors[id].planned = true;
        tensors[id].batch = number;
        highest = std::max(highest, tensors[id].priority);
      }
    }
    // What is ready already counts for the plan's first round.
    std::deque<Queued> before;
    before.swap(set.queue);
    for (const Queued& item : before) {
      if (item.calls || !tensors[item.which].planned) {
        enqueue(set, item);
      } else if (const std::uint32_t batch = tensors[item.which].batch;
                 ++plan.ready[batch] == plan.batches[batch].size()) {
        Queued whole = queued_batch(set, batch);
        whole.since = item.since;
        enqueue(set, whole);
      }
    }
  }

  /// The plan's ready members queue by themselves: those of complete batches in their batch's place, the others at the
  /// end.
  void void_plan(Set& set, PlanEnd why) {
    const Plan plan = std::move(*set.plan);
    set.plan.reset();
    plan_owner.erase(plan.number);
    append(PlanVoided{plan.number, why});
    for (const Queued& item : std::exchange(set.queue, {})) {
      if (!item.planned) {
        enqueue(set, item);
        continue;
      }
      for (const TensorId id : plan.batches[item.which]) {
        Queued member = queued(set, id);
        member.since = item.since;
        enqueue(set, member);
      }
    }
    for (std::size_t number = 0; number < plan.batches.size(); ++number) {
      const bool complete = plan.ready[number] == plan.batches[number].size();
      for (const TensorId id : plan.batches[number]) {
        tensors[id].planned = false;
        if (tensors[id].ready && !complete) enqueue(set, queued(set, id));
      }
    }
  }

  void break_plan(Set& set, std::uint32_t batch, const std::vector<TensorId>& lacking) {
    set.planner.learn_cut(set.plan->batches[batch], lacking);
    ++counters.plans_broken;
    void_plan(set, PlanEnd::waited_for);
  }

  void on(const Interest& message, Time) {
    const auto owner = plan_owner.find(message.plan);
    if (owner == plan_owner.end()) return;
    Set& set = sets.at(owner->second);
    require(message.batch < set.plan->batches.size(), "there is no such batch of the plan");
    for (const TensorId id : message.lacking) {
      require(tensors.is_planned(id, set.number, message.batch), "a planned batch lacks what is not in it");
    }
    // What it lacked may have come meanwhile: a count overtakes a message on its way.
    if (tensors[message.lacking.front()].round >= message.round) return;
    break_plan(set, message.batch, message.lacking);
  }

  // ---------------------------------------------------------------- waits that last

  void on(const Overdue& message, Time now) {
    const auto set = sets.find(message.set);
    if (set == sets.end()) return;
    // Who asks late is told what the first one was told, whoever has left since.
    if (message.join) return on_late_join(set->second, message, now);
    const Request request = request_of(message);
    if (is_hopeless(request)) return fail_hopeless(request);
    if (message.running) return ask(message, now);
    if (is_call(request)) return on_late_call(set->second, message, now);
    if (any_gone(request)) return fail_without_members(request);
    if (is_complete(request)) {
      unblock(set->second, tensors.find(message.set, message.name));
      if (message.deadline) ask(message, now);
      return;
    }
    if (!message.deadline && !any_left(request) && reported(request)) return;
    ask(message, now);
  }

  static bool is_call(const Request& request) { return request.members.empty() && request.name == kSequence; }

  void on_late_call(Set& set, const Overdue& message, Time now) {
    if (set.has_left) note_asked(set, message.round);
    if (message.round > set.sequence.last || message.waited_s == 0) return;
    const Request request = request_of(message);
    if (!message.deadline && (is_complete(request) || reported(request))) return;
    ask(message, now);
  }

  /// Who has not joined is known here. But for a deadline they are asked, for one may be stopped.
  void on_late_join(Set& set, const Overdue& message, Time now) {
    if (!set.absent.has(message.rank) || message.round != set.joins + 1) return;
    if (set.absent.size() == set.members.size()) return;
    if (message.deadline) return ask(message, now);
    const Request request = join_in(set);
    if (reported(request)) return;
    std::vector<std::int32_t> missing;
    for (const std::int32_t member : set.members) {
      if (!set.absent.has(member)) missing.push_back(member);
    }
    stalls[request.key()] = request.round;
    ++counters.stalls;
    append(Stalled{set.number, "", message.waited_s, missing, {}, true});
  }

  bool any_left(const Request& request) const {
    return request.members.empty() ? sets.at(request.set).has_left : any_of(request.members, left);
  }
  bool any_gone(const Request& request) const {
    return request.members.empty() ? sets.at(request.set).has_gone : any_of(request.members, gone);
  }
  static bool any_of(const std::vector<std::int32_t>& ranks, const std::vector<bool>& marked) {
    return std::any_of(ranks.begin(), ranks.end(), [&](std::int32_t r) { return marked[static_cast<std::size_t>(r)]; });
  }

  /// Whether every member has submitted it. (One that names its members is over then.)
  bool is_complete(const Request& request) const {
    if (request.join) return sets.at(request.set).joins >= request.round;
    if (is_call(request)) return sets.at(request.set).sequence.heard.calls() >= request.round;
    const TensorId id = request.members.empty() ? tensors.find(request.set, request.name) : kNoTensor;
    return id != kNoTensor && tensors[id].round >= request.round;
  }

  /// Whether the one who asked does not wait any more: then the question was about a request that is over, and the
  /// others' answers may be about the next one. Only of requests that name their members: all their rounds are 1.
  static bool is_over(const Question& question, const std::vector<std::int32_t>& missing) {
    return !question.request.members.empty() &&
           std::find(missing.begin(), missing.end(), question.asker) != missing.end();
  }

  /// Breaks the plan if a planned batch holds up this tensor, which every member has submitted.
  void unblock(Set& set, TensorId id) {
    const Tensor& tensor = tensors[id];
    if (!tensor.ready || !tensor.planned) return;
    const std::vector<TensorId>& batch = set.plan->batches[tensor.batch];
    std::vector<TensorId> lacking;
    for (const TensorId member : batch) {
      if (!tensors[member].ready) lacking.push_back(member);
    }
    if (!lacking.empty()) break_plan(set, tensor.batch, lacking);
  }

  bool reported(const Request& request) const {
    const auto found = stalls.find(request.key());
    return found != stalls.end() && found->second == request.round;
  }

  void ask(const Overdue& message, Time now) {
    const auto due =
        message.deadline
            ? now + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(options.latch_timeout_s))
            : Time::max();
    for (auto& [number, question] : questions) {
      const Request& request = question.request;
      if (request.set != message.set || request.name != message.name || request.round != message.round) continue;
      if (request.members != message.members || question.deadline != message.deadline) continue;
      if (request.join != message.join) continue;
      if (!request.members.empty() && question.asker != message.rank) continue;
      question.running = question.running || message.running;
      question.waited_s = std::max(question.waited_s, message.waited_s);
      question.due = std::min(question.due, due);
      return;
    }
    Question question;
    question.request = request_of(message);
    question.request.join = message.join;
    question.asker = message.rank;
    question.deadline = message.deadline;
    question.running = message.running;
    question.kind = message.kind;
    question.waited_s = message.waited_s;
    question.due = due;
    ask(std::move(question));
  }

  void ask(Question question) {
    const std::uint64_t number = next_question++;
    const Request& request = question.request;
    const Round round = question.running ? 0 : request.round;  // the name may have been evicted meanwhile
    append(Query{number, request.set, request.name, round, question.deadline, request.members, request.join});
    questions[number] = std::move(question);
  }

  void on(const Missing& message, Time) {
    const auto found = questions.find(message.query);
    if (found == questions.end()) return;
    Question& question = found->second;
    question.missing.insert(question.missing.end(), message.ranks.begin(), message.ranks.end());
    std::copy_if(message.ranks.begin(), message.ranks.end(), std::back_inserter(question.gone),
                 [this](std::int32_t rank) { return has_left(rank); });
    if (const Set& world = sets.at(core::kGlobalSet); !question.request.members.empty()) {
      if (question.absent.empty()) question.joins = world.joins;
      std::copy_if(message.ranks.begin(), message.ranks.end(), std::back_inserter(question.absent),
                   [&world](std::int32_t rank) { return world.absent.has(rank); });
    }
    if (++question.answers < options.nodes) return;
    Question answered = std::move(question);
    questions.erase(found);
    conclude_warning(std::move(answered));
  }

  void conclude_warning(Question question) {
    if (is_complete(question.request) || is_over(question, question.missing)) return;
    if (is_call(question.request)) {
      if (question.request.round > sets.at(question.request.set).sequence.last) return;  // it fails by itself
      question.gone.clear();
    }
    std::sort(question.missing.begin(), question.missing.end());
    std::sort(question.gone.begin(), question.gone.end());
    if (!question.gone.empty()) {
      give_up(question.request, question.gone);
    } else if (!question.absent.empty() && question.joins == sets.at(core::kGlobalSet).joins) {
      refuse_set(question.request, question.absent);
    } else if (!question.absent.empty() ||
               std::any_of(question.missing.begin(), question.missing.end(), [this](auto r) { return has_left(r); })) {
      question.answers = 0;  // it may have submitted after its node had answered
      question.missing.clear();
      question.absent.clear();
      ask(std::move(question));
    } else if (!question.missing.empty() && question.waited_s > 0) {
      const Request& request = question.request;
      stalls[request.key()] = request.round;
      ++counters.stalls;
      append(Stalled{request.set, request.name, question.waited_s, question.missing, request.members, false,
                     request.round, question.kind});
    }
  }

  /// Ranks that it names have joined the world, and had not asked for it.
  void refuse_set(const Request& request, std::vector<std::int32_t> absent) {
    std::sort(absent.begin(), absent.end());
    forget(questions, [&request](const auto& item) { return item.second.request.key() == request.key(); });
    stalls.erase(request.key());
    fail(request, ErrorCode::invalid_argument, absent_member(subject_of(request), absent));
  }

  bool has_left(std::int32_t rank) const { return left[static_cast<std::size_t>(rank)]; }
  bool has_gone(std::int32_t rank) const { return gone[static_cast<std::size_t>(rank)]; }

  // ---------------------------------------------------------------- deadlines

  void on(const Answer& message, Time) {
    const auto found = questions.find(message.query);
    if (found == questions.end()) return;
    Question& question = found->second;
    const auto same = [&message](const Answer& answer) { return answer.rank == message.rank; };
    if (std::any_of(question.heard.begin(), question.heard.end(), same)) return;
    question.heard.push_back(message);
    if (!silent_of(question).empty()) return;
    const Question answered = std::move(question);
    questions.erase(found);
    conclude_deadline(answered);
  }

  /// The members that have not answered, ascending. A rank that has left need not answer.
  std::vector<std::int32_t> silent_of(const Question& question) const {
    std::vector<std::int32_t> silent;
    for (const std::int32_t member : members_of(question.request)) {
      const auto same = [member](const Answer& answer) { return answer.rank == member; };
      const bool answered = std::any_of(question.heard.begin(), question.heard.end(), same);
      if (!answered && !has_left(member)) silent.push_back(member);
    }
    return silent;
  }

  /// Without those whose words would have had to pass through another silent rank.
  std::vector<std::int32_t> nearest(const std::vector<std::int32_t>& silent) const {
    std::vector<std::int32_t> ranks;
    const auto is_silent = [&silent](std::int32_t rank) {
      return std::binary_search(silent.begin(), silent.end(), rank);
    };
    for (const std::int32_t rank : silent) {
      std::int32_t on_the_way = speaker_of(rank);
      while (on_the_way >= 0 && !is_silent(on_the_way)) on_the_way = speaker_of(on_the_way);
      if (on_the_way < 0) ranks.push_back(rank);
    }
    return ranks;
  }

  std::int32_t speaker_of(std::int32_t rank) const {
    return options.speaks_through.empty() ? -1 : options.speaks_through[static_cast<std::size_t>(rank)];
  }

  void conclude_deadline(const Question& question) {
    std::vector<std::int32_t> absent;
    for (const Answer& answer : question.heard) {
      if (!answer.submitted) absent.push_back(answer.rank);
    }
    if (is_over(question, absent) || (question.request.join && is_complete(question.request))) return;
    Wait wait;
    wait.join = question.request.join;
    wait.group = !question.request.members.empty();
    wait.waited_s = question.waited_s;
    wait.silent = nearest(silent_of(question));
    wait.answers = question.heard;
    std::sort(wait.answers.begin(), wait.answers.end(),
              [](const Answer& a, const Answer& b) { return a.rank < b.rank; });
    if (!question.running && !is_complete(question.request)) {
      const std::vector<std::int32_t>& members = members_of(question.request);
      std::copy_if(members.begin(), members.end(), std::back_inserter(wait.left),
                   [this](std::int32_t rank) { return has_left(rank); });
    }
    const bool has_run =
        wait.silent.empty() && std::all_of(wait.answers.begin(), wait.answers.end(), [](const Answer& answer) {
          return answer.submitted && answer.doing == Doing::nothing;
        });
    if (has_run && wait.left.empty()) return;
    const Verdict verdict =
        deadline_passed(subject_of(question.request), wait, [this](SetId set) { return words_of(set); });
    fault(ErrorCode::timeout, verdict.rank, verdict.sentence);
  }

  bool is_hopeless(const Request& request) const {
    if (hopeless_rounds.empty()) return false;
    const auto found = hopeless_rounds.find(request.key());
    return found != hopeless_rounds.end() && request.round <= found->second.first;
  }

  /// Of these ranks, which have left, those whose leaving is not the consequence of another's.
  std::vector<std::int32_t> first_of(const std::vector<std::int32_t>& ranks) {
    if (first_to_leave.empty()) {
      for (std::int32_t rank = 0; rank < options.size; ++rank) {
        if (has_left(rank)) first_to_leave.push_back(rank);
      }
    }
    std::vector<std::int32_t> culprits;
    std::set_intersection(ranks.begin(), ranks.end(), first_to_leave.begin(), first_to_leave.end(),
                          std::back_inserter(culprits));
    return culprits;
  }

  /// A submission that these ranks will never make, because they have left.
  void give_up(const Request& request, const std::vector<std::int32_t>& absent) {
    const std::vector<std::int32_t> culprits = first_of(absent);
    const bool is_group = !request.members.empty();
    hopeless_rounds[request.key()] = {request.round, culprits.empty()
                                                         ? nothing_more(first_to_leave)
                                                         : hopeless(subject_of(request), is_group, culprits)};
    fail_hopeless(request);
  }

  void fail_hopeless(const Request& request) {
    fail(request, ErrorCode::rank_lost, hopeless_rounds.at(request.key()).second);
  }

  // ---------------------------------------------------------------- ranks that go

  void on(const Starved&, Time) { append(Push{}); }

  void on(const RankLost& message, Time) {
    if (message.code == ErrorCode::rank_lost && has_left(message.rank)) return depart(message.rank);
    fault(message.code, message.rank, rank_lost(message));
  }

  /// A rank that has left is gone, and the job goes on. But nothing that its sets have not run can run any more.
  void depart(std::int32_t rank) {
    gone[static_cast<std::size_t>(rank)] = true;
    for (auto& [number, set] : sets) {
      if (std::binary_search(set.members.begin(), set.members.end(), rank)) desert(set);
    }
    fail_questions();
  }

  /// Nothing that it has not run can run any more.
  void desert(Set& set) {
    set.has_gone = true;
    set.sequence.queue.clear();
    cut_sequence(set, set.sequence.run);
    for (const Queued& item : std::exchange(set.queue, {})) {  // no plan: one of its ranks has left
      if (item.calls) continue;
      tensors[item.which].ready = false;
      fail_without_members({set.number, tensors[item.which].name, tensors[item.which].round});
    }
  }

  void fail_questions() {
    for (auto it = questions.begin(); it != questions.end();) {
      const Question question = it->second;
      const Request& request = question.request;
      const bool has_failed = any_gone(request) && !question.running && !request.join && !is_call(request);
      it = has_failed ? questions.erase(it) : std::next(it);
      if (has_failed) fail_without_members(question.request);
    }
  }

  void fail_without_members(const Request& request) {
    const std::vector<std::int32_t>& members = members_of(request);
    std::vector<std::int32_t> absent;
    std::copy_if(members.begin(), members.end(), std::back_inserter(absent),
                 [this](std::int32_t rank) { return has_left(rank); });
    give_up(request, absent);
  }

  void on(const Left& message, Time) {
    const auto rank = static_cast<std::size_t>(message.rank);
    if (left[rank]) return;
    left[rank] = true;
    if (std::count(left.begin(), left.end(), true) == options.size) return close();
    append(RankLeft{message.rank});
    for (auto& [number, set] : sets) {
      if (!std::binary_search(set.members.begin(), set.members.end(), message.rank)) continue;
      set.has_left = true;
      if (set.plan) void_plan(set, PlanEnd::left);
      cut_sequence(set, calls_of(message, number));
      if (!set.absent.empty()) end_join_without(set);
    }
  }

  static Round calls_of(const Left& message, SetId set) {
    for (const Left::Sequence& sequence : message.sequences) {
      if (sequence.set == set) return sequence.calls;
    }
    return 0;
  }

  void close() {
    for (auto& [number, set] : sets) flush_out(set);
    append(Closed{});
    ended = true;
  }

  // ---------------------------------------------------------------- deciding

  void decide(Time now) {
    // A newcomer may wait for an id until something ready has been appended.
    for (std::uint64_t before = ~std::uint64_t{0}; before != counters.entries;) {
      before = counters.entries;
      flush_waiting();
      assign_ids();
      if (!ending.empty()) end_joins();
    }
    for (auto it = questions.begin(); it != questions.end();) {
      const Question question = it->second;
      it = question.due <= now ? questions.erase(it) : std::next(it);
      if (question.due <= now) conclude_deadline(question);
    }
  }

  /// In the order of their numbers.
  void flush_waiting() {
    flushed.clear();
    flushed.swap(waiting);
    std::sort(flushed.begin(), flushed.end());
    for (const SetId number : flushed) {
      Set& set = sets.at(number);
      flush(set);
      set.waits = !set.queue.empty();
      if (set.waits) waiting.push_back(number);
    }
  }

  Time next_deadline() const {
    Time next = Time::max();
    for (const auto& [number, question] : questions) next = std::min(next, question.due);
    return ended ? Time::max() : next;
  }

  const SequencerOptions options;
  TensorTable tensors;
  std::map<SetId, Set> sets;
  std::vector<std::uint32_t> memberships;  ///< by rank: in how many sets but the world
  std::vector<SetId> waiting;              ///< sets that may have something to append
  std::vector<SetId> flushed;              ///< the last ones, for the memory
  std::vector<SetId> ending;               ///< sets whose members have all joined
  SetId next_set = core::kGlobalSet;
  std::map<std::uint32_t, SetId> plan_owner;
  std::uint32_t next_plan = 0;
  std::deque<Newcomer> newcomers;
  std::map<std::uint64_t, Question> questions;
  std::uint64_t next_question = 1;
  std::map<Key, Round> stalls;  ///< reported
  /// Failed although not complete, because a rank has left: up to which round, and the sentence.
  std::map<Key, std::pair<Round, std::string>> hopeless_rounds;
  std::vector<bool> left;
  std::vector<bool> gone;  ///< of these, whose process has ended or cannot be reached
  /// Ranks that had left when the first submission failed because of that, ascending. Who leaves later has, as a rule,
  /// been told of them, and is not to be named.
  std::vector<std::int32_t> first_to_leave;
  std::uint64_t readied = 0;  ///< how often something has become ready
  bool ended = false;
  std::vector<LogEntry> out;
  SequencerCounters counters;
};

Sequencer::Sequencer(const SequencerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Sequencer::~Sequencer() = default;

void Sequencer::on_message(const UpMessage& message, Time now) {
  if (impl_->ended) return;
  ++impl_->counters.messages;
  if (const auto* counted = std::get_if<Counted>(&message)) return impl_->on(*counted, now);  // by far the most
  check_ranges(message, impl_->options.size);
  std::visit([this, now](const auto& value) { impl_->on(value, now); }, message);
}

void Sequencer::decide(Time now) {
  if (!impl_->ended) impl_->decide(now);
}

bool Sequencer::waits_for_room() const noexcept {
  return std::any_of(impl_->waiting.begin(), impl_->waiting.end(),
                     [this](core::SetId set) { return !impl_->sets.at(set).queue.empty(); });
}

Sequencer::Time Sequencer::next_deadline() const noexcept { return impl_->next_deadline(); }
std::vector<LogEntry>& Sequencer::outbox() noexcept { return impl_->out; }
const SequencerCounters& Sequencer::counters() const noexcept { return impl_->counters; }

}  // namespace kolo::control
