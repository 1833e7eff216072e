// SPDX-License-Identifier: Apache-2.0
//
// Groups of some ranks of a context: how they are made, and how a rank's part in one ends; what a rank says to all of a
// group beside its collectives: join and end_step.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/context.hpp>
#include <kolo/error.hpp>
#include <kolo/join.hpp>

#include "api/access.hpp"
#include "api/checks.hpp"
#include "api/context_impl.hpp"
#include "api/forks.hpp"
#include "api/submit.hpp"
#include "engine/engine.hpp"

namespace kolo {

detail::Membership::~Membership() {
  if (state_ == nullptr || !origin_.is_here()) return;
  const std::shared_ptr<engine::Engine> engine = engine_.lock();
  if (engine == nullptr) return;
  try {
    engine->submitter().drop_set(state_->number);
  } catch (const std::exception& error) {
    engine->logger().write(LogLevel::error, std::string("a group was not given back: ") + error.what());
  }
}

namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, "Group::of: " + reason);
}

/// Checks the members. Returns them as ranks of the world.
std::vector<std::int32_t> checked_members(const engine::SetState& parent, const std::vector<int>& ranks) {
  if (ranks.empty()) refuse("the list of ranks is empty; give those that shall be in the group, this one among them");
  std::vector<bool> is_in(static_cast<std::size_t>(parent.topology.size));
  std::vector<std::int32_t> members;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= parent.topology.size) {
      refuse("there is no rank " + std::to_string(rank) + " among " + std::to_string(parent.topology.size) + " ranks");
    }
    const auto place = static_cast<std::size_t>(rank);
    if (is_in[place]) refuse("rank " + std::to_string(rank) + " stands twice in the list");
    is_in[place] = true;
    members.push_back(parent.members[place]);
  }
  if (!is_in[static_cast<std::size_t>(parent.topology.rank)]) {
    refuse("this rank, " + std::to_string(parent.topology.rank) +
           ", does not stand in the list; only those call it that shall be in the group");
  }
  return members;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// For the group of those that split another one.
GroupOptions as_meeting(GroupOptions options) {
  options.name = options.name.empty() ? "kolo.split" : "kolo.split " + options.name;
  return options;
}

Tensor gather_words(const Group& group, const ConstTensorView& own, const GroupOptions& options) {
  const base::MutexLock lock(api::lock_of_own_calls(group));
  AllgatherOptions gather;
  gather.timeout = options.timeout;
  return api::run_own(group, "kolo.split", Call::allgather(own, gather));
}

}  // namespace

Group Group::of(const Group& parent, const std::vector<int>& ranks, const GroupOptions& options) {
  api::check_timeout("Group::of", options.timeout);
  const std::shared_ptr<engine::Engine>& engine = api::impl_of(parent).shared_engine();
  engine::SetStatePtr state = engine->submitter().make_set(checked_members(api::set_of(parent), ranks), options);
  return Group(parent.context_, std::make_shared<detail::Membership>(engine, std::move(state)));
}

Group Group::of(const std::vector<int>& ranks, const GroupOptions& options) {
  return of(current_context(), ranks, options);
}

Group Group::split(int color, int key, const GroupOptions& options) const {
  api::check_timeout("Group::split", options.timeout);
  if (color < 0 && color != kNoGroup) {
    throw Error(ErrorCode::invalid_argument, "Group::split: the colour is " + std::to_string(color) +
                                                 "; give one that is not negative, or kNoGroup");
  }
  struct Word {
    int color;
    int key;
    int rank;  // ranks that have joined send none, so the rank is sent, too
  };
  const int own[] = {color, key, rank(*this)};
  // A gather that a rank does not make would end the job. A group that a rank does not make does not.
  const Group present = options.fails_alone ? of(*this, all_ranks(size(*this)), as_meeting(options)) : *this;
  const Tensor all = gather_words(present, const_view(own, Shape{1, 3}), options);
  if (color == kNoGroup) return Group(context_, std::make_shared<detail::Membership>());
  const Span<const int> said = all.as<int>();
  std::vector<Word> words;
  for (std::size_t at = 0; at < said.size(); at += 3) {
    if (said[at] == color) words.push_back({said[at], said[at + 1], said[at + 2]});
  }
  std::stable_sort(words.begin(), words.end(), [](const Word& a, const Word& b) { return a.key < b.key; });
  std::vector<int> ranks;
  ranks.reserve(words.size());
  for (const Word& word : words) ranks.push_back(word.rank);
  return of(*this, ranks, options);
}

bool Group::is_member() const noexcept { return membership_ == nullptr || membership_->state() != nullptr; }

std::vector<int> Group::members() const { return api::set_of(*this).members; }

namespace {

Future<int> start_join(const Group& group, const JoinOptions& options, bool waits) {
  api::check_timeout("join", options.timeout);
  const auto [engine, set] = api::parts_of(group);
  return Future<int>(engine.submitter().join(set, options.counts_in_averages, options.timeout, waits));
}

}  // namespace

template <>
int Future<int>::get() {
  wait();
  return detail::HandleAccess::state(*this).outputs.first.last;
}

int join(const Group& group, const JoinOptions& options) { return start_join(group, options, true).get(); }
Future<int> join_async(const Group& group, const JoinOptions& options) { return start_join(group, options, false); }

}  // namespace kolo
