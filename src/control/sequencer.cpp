// SPDX-License-Identifier: Apache-2.0
//
// Which part gets which message, in which order the parts decide, and what concerns all of them: which process sets
// there are, and what follows when a rank leaves.
#include "control/sequencer.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.hpp"
#include "control/ranges.hpp"
#include "control/sentences.hpp"
#include "control/sequencer/batches.hpp"
#include "control/sequencer/call_order.hpp"
#include "control/sequencer/departures.hpp"
#include "control/sequencer/joined_ranks.hpp"
#include "control/sequencer/log_writer.hpp"
#include "control/sequencer/naming.hpp"
#include "control/sequencer/opinions.hpp"
#include "control/sequencer/plans.hpp"
#include "control/sequencer/questions.hpp"
#include "control/sequencer/set_table.hpp"
#include "control/sequencer/tensor_table.hpp"

namespace kolo::control {

using core::kNoTensor;
using core::SetId;
using core::TensorId;

struct Sequencer::Impl {
  explicit Impl(const SequencerOptions& chosen) : options(chosen) {
    KOLO_CHECK(options.capacity > core::kReservedIds && options.open_batches > 0 && options.size > 0);
    std::vector<std::int32_t> all(static_cast<std::size_t>(options.size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    tensors.reserve_for_the_world();
    sets.add(0, std::move(all));
  }

  // ---------------------------------------------------------------- submissions

  void on(const Counted& message, Time) {
    check_last(message.last, options.size);
    if (!tensors.is_current(message.id, message.word.generation)) return;
    const Tensor& tensor = tensors[message.id];
    sequencer::Set& set = tensor.set == core::kGlobalSet ? sets.world() : sets.at(tensor.set);
    if (message.id == set.base + core::kCompleted) {
      require(message.word.count <= set.appended, "more batches are complete than there were");
      set.completed = message.word.count;
    } else if (message.id == set.base + core::kSteps) {
      set.steps = message.word.count;
      plans.end_step(set);
    } else if (tensor.reserved) {
      require(set.number != core::kGlobalSet, "a rank drops the world");
      remove_set(set);
    } else if (message.word.count > tensor.round) {
      if (set.absent.empty()) return batches.become_ready(set, message.id, message.word.count, message.last);
      const std::vector<Declared::Variant> counted{{std::nullopt, set.members}};
      naming.on_complete(
          set, {set.number, tensor.name, message.word.count, message.id, tensor.generation, counted, {}, message.last});
    }
  }

  void on(const Declared& message, Time) {
    sequencer::Set* const set = sets.find(message.set);
    if (set == nullptr) return;
    if (!message.members.empty()) return make_set(message);
    naming.on(*set, message);
  }

  void on(const SequenceGrown& message, Time) { calls.on(message); }
  void on(const PartAwaited& message, Time) { plans.on(message); }
  void on(const Joined& message, Time) { joins.on(message); }
  void on(const Starved&, Time) { log.append(Push{}); }

  // ---------------------------------------------------------------- process sets

  /// All members have asked for a set (messages.hpp, "Members"). It is refused if they give different orders of ranks,
  /// if one of them is in `sets_per_rank` sets already, or if there is no row of reserved ids for it. It fails if it
  /// was given up, because a member had left without asking for it, and is not heard if its deadline has given it up
  /// (`Failures`).
  void make_set(const Declared& message) {
    const Request request = sequencer::request_of(message);
    if (failures.has_expired(request)) return;
    questions.forget(sequencer::key_of(request));
    if (failures.is_hopeless(request)) return failures.fail_hopeless(request);
    const std::vector<Opinion> opinions = sequencer::opinions_of(message, tensors);
    if (opinions.size() > 1) {
      return failures.fail(request, ErrorCode::mismatch, sequencer::disagreement_about(sets, request, opinions));
    }
    for (const std::int32_t member : message.members) {
      if (memberships[static_cast<std::size_t>(member)] < options.sets_per_rank) continue;
      return failures.fail(request, ErrorCode::invalid_argument,
                           too_many_sets(sets.subject_of(request), member, options.sets_per_rank));
    }
    const TensorId base = tensors.reserve_row(sets.next_number());
    if (base == kNoTensor) {
      return failures.fail(request, ErrorCode::invalid_argument,
                           sets.subject_of(request) + " cannot be made: there are " + std::to_string(core::kMostSets) +
                               " already; drop those that are not used any more");
    }
    sequencer::Set& set = sets.add(base, message.members);
    set.order = opinions.front().signature.ranks;
    set.words = group_of(message.name, set.members);
    failures.forget(request);
    log.append(SetAdded{set.number, base, tensors[base].generation, set.order, message.name});
    set.has_departed = departures.any_departed(set.members);
    set.has_gone = departures.any_gone(set.members);
    if (set.has_departed) calls.cut_sequence(set, 0, 0);
    for (const std::int32_t member : set.members) ++memberships[static_cast<std::size_t>(member)];
  }

  /// Every member has dropped it, so nothing of it is in flight anywhere; a message that says otherwise is refused.
  void remove_set(sequencer::Set& set) {
    const std::vector<TensorId> ids = tensors.of_set(set.number);
    const auto is_ready = [this](TensorId id) { return tensors[id].ready; };
    require(set.absent.empty(), "a process set was dropped by a rank that has joined");
    require(set.sequence.empty(), "a process set was dropped with a call in flight");
    require(set.queue.empty() && std::none_of(ids.begin(), ids.end(), is_ready),
            "a process set was dropped with something in flight");
    if (set.plan) plans.void_plan(set, PlanEnd::departed);
    log.append(SetRemoved{set.number});
    questions.forget(set.number);
    failures.forget(set.number);
    for (const TensorId id : ids) tensors.release(id);
    tensors.release_row(set.base);
    for (const std::int32_t member : set.members) --memberships[static_cast<std::size_t>(member)];
    ready.forget(set);
    sets.erase(set.number);
  }

  // ---------------------------------------------------------------- questions

  void on(const Overdue& message, Time now) { questions.on(message, now); }
  void on(const Answer& message, Time now) { questions.on(message, now); }

  // ---------------------------------------------------------------- ranks that go

  void on(const RankLost& message, Time) {
    if (message.code == ErrorCode::rank_lost && departures.has_departed(message.rank)) return depart(message.rank);
    // The sentence of a wait names the ranks for which it waited.
    const std::int32_t because = message.code == ErrorCode::timeout ? -1 : departures.cause_of(message.rank);
    log.fault(message.code, because >= 0 ? because : message.rank, rank_lost(message, because));
  }

  void on(const Deserted& message, Time) { departures.desert(message.rank, message.by); }

  /// A rank that had left is gone, and the job goes on without it and without the ranks that it cuts off (messages.hpp,
  /// "Leaving"). Requests of their sets that are not in the log cannot run any more.
  void depart(std::int32_t rank) {
    if (departures.has_gone(rank)) return;
    std::vector<std::int32_t> gone;
    for (std::int32_t other = 0; other < options.size; ++other) {
      if (other == rank || (!departures.has_gone(other) && speaks_through(other, rank))) gone.push_back(other);
    }
    std::vector<std::int32_t> cut_off;
    for (const std::int32_t one : gone) {
      departures.go(one);
      if (departures.has_departed(one)) continue;
      departures.desert(one, rank);
      departures.leave({one});
      cut_off.push_back(one);
    }
    if (departures.have_all_departed()) return close();
    log.append(RankDeparted{rank, departures.cause_of(rank), true});
    for (const std::int32_t one : cut_off) log.append(RankDeparted{one, departures.cause_of(one), true});
    const auto has_any = [](const sequencer::Set& set, const std::vector<std::int32_t>& ranks) {
      return std::any_of(ranks.begin(), ranks.end(), [&set](std::int32_t one) {
        return std::binary_search(set.members.begin(), set.members.end(), one);
      });
    };
    for (auto& [number, set] : sets.all()) {
      if (has_any(set, cut_off)) mark_departed(set);
      if (!has_any(set, gone)) continue;
      batches.give_up(set);
      if (!set.absent.empty()) joins.end_join_without(set);
    }
    questions.fail_questions();
  }

  /// Whether the messages of a rank pass through `speaker`, which is another one.
  bool speaks_through(std::int32_t rank, std::int32_t speaker) const {
    if (options.speaks_through.empty()) return false;
    do {
      rank = options.speaks_through[static_cast<std::size_t>(rank)];
    } while (rank >= 0 && rank != speaker);
    return rank == speaker;
  }

  /// A member has left.
  void mark_departed(sequencer::Set& set) {
    set.has_departed = true;
    if (set.plan) plans.void_plan(set, PlanEnd::departed);
  }

  void on(const Departed& message, Time) {
    if (departures.has_departed(message.rank)) return;
    departures.leave(message);
    if (departures.have_all_departed()) return close();
    log.append(RankDeparted{message.rank, departures.cause_of(message.rank)});
    for (auto& [number, set] : sets.all()) {
      if (!std::binary_search(set.members.begin(), set.members.end(), message.rank)) continue;
      mark_departed(set);
      const Departed::Sequence made = sequence_of(message, number);
      calls.cut_sequence(set, made.calls, made.passed);
      if (!set.absent.empty()) joins.end_join_without(set);
    }
  }

  static Departed::Sequence sequence_of(const Departed& message, SetId set) {
    for (const Departed::Sequence& sequence : message.sequences) {
      if (sequence.set == set) return sequence;
    }
    return {};
  }

  void close() {
    for (auto& [number, set] : sets.all()) batches.flush_out(set);
    log.close();
  }

  // ---------------------------------------------------------------- deciding

  void decide(Time now) {
    // A newcomer may have to wait for an id until a ready request has been appended.
    for (std::uint64_t before = ~std::uint64_t{0}; before != log.size();) {
      before = log.size();
      batches.flush_waiting();
      if (naming.has_newcomers()) naming.assign_ids();
      if (joins.are_ending()) joins.end_joins();
    }
    if (questions.next_deadline() <= now) questions.conclude_due(now);
  }

  // Each part uses those before it.
  const SequencerOptions options;
  sequencer::Log log;
  TensorTable tensors{options.capacity};
  sequencer::SetTable sets{tensors, options.fusion_threshold};
  sequencer::Departures departures{options.size};
  sequencer::Failures failures{log, sets, departures};
  sequencer::ReadySets ready{tensors};
  sequencer::Plans plans{options, log, tensors, sets, ready};
  sequencer::CallOrder calls{options, log, sets, departures, ready};
  sequencer::Batches batches{options, log, tensors, sets, failures, ready, plans, calls};
  sequencer::Naming naming{log, tensors, sets, failures, plans, batches};
  sequencer::Questions questions{options, log, tensors, sets, departures, failures, plans, calls};
  sequencer::JoinedRanks joins{log, tensors, sets, departures, plans, batches, naming, questions};
  /// By rank: in how many sets, besides the world, it is a member.
  std::vector<std::uint32_t> memberships = std::vector<std::uint32_t>(static_cast<std::size_t>(options.size), 0);
};

std::vector<std::int32_t> speakers(const core::Topology& topology, int fanout) {
  std::vector<std::int32_t> speakers(static_cast<std::size_t>(topology.size), -1);
  for (int node = 0; node < topology.node_count(); ++node) {
    const int leader = topology.leader_of(node);
    for (const int rank : topology.nodes[static_cast<std::size_t>(node)]) {
      if (rank != leader) speakers[static_cast<std::size_t>(rank)] = leader;
    }
    if (node > 0) {
      speakers[static_cast<std::size_t>(leader)] = topology.leader_of(core::Topology::tree_parent(node, fanout));
    }
  }
  return speakers;
}

Sequencer::Sequencer(const SequencerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Sequencer::~Sequencer() = default;

void Sequencer::on_message(const UpMessage& message, Time now) {
  if (impl_->log.has_ended()) return;
  ++impl_->log.counters().messages;
  if (const auto* counted = std::get_if<Counted>(&message)) return impl_->on(*counted, now);  // the most frequent
  check_ranges(message, impl_->options.size);
  std::visit([this, now](const auto& value) { impl_->on(value, now); }, message);
}

void Sequencer::decide(Time now) {
  if (!impl_->log.has_ended()) impl_->decide(now);
}

bool Sequencer::waits_for_completion() const noexcept { return impl_->batches.waits_for_completion(); }

Sequencer::Time Sequencer::next_deadline() const noexcept {
  return impl_->log.has_ended() ? Time::max() : impl_->questions.next_deadline();
}

std::vector<LogEntry>& Sequencer::outbox() noexcept { return impl_->log.outbox(); }
const SequencerCounters& Sequencer::counters() const noexcept { return impl_->log.counters(); }

}  // namespace kolo::control
