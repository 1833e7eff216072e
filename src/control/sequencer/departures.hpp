// SPDX-License-Identifier: Apache-2.0
//
// Which ranks have left, and which of these an error names. A rank that has left submits nothing more; a rank that has
// *gone* has left, and its process has ended or cannot be reached. A rank never comes back. Of a rank whose end is the
// consequence of another one's, that one is named (control/messages.hpp, "First causes").
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/messages.hpp"
#include "control/sentences.hpp"
#include "control/sequencer/log_writer.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

class Departures {
 public:
  explicit Departures(int size)
      : departed_(static_cast<std::size_t>(size), false), gone_(static_cast<std::size_t>(size), false),
        causes_(static_cast<std::size_t>(size), -1) {}

  [[nodiscard]] bool has_departed(std::int32_t rank) const { return departed_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool has_gone(std::int32_t rank) const { return gone_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool any_departed(const std::vector<std::int32_t>& ranks) const { return any_of(ranks, departed_); }
  [[nodiscard]] bool any_gone(const std::vector<std::int32_t>& ranks) const { return any_of(ranks, gone_); }
  [[nodiscard]] bool have_all_departed() const {
    return std::find(departed_.begin(), departed_.end(), false) == departed_.end();
  }

  /// Those of these ranks that have left, or have gone, in the same order.
  [[nodiscard]] std::vector<std::int32_t> departed_of(const std::vector<std::int32_t>& ranks) const {
    return those_of(ranks, [this](std::int32_t rank) { return has_departed(rank); });
  }
  [[nodiscard]] std::vector<std::int32_t> gone_of(const std::vector<std::int32_t>& ranks) const {
    return those_of(ranks, [this](std::int32_t rank) { return has_gone(rank); });
  }
  /// Those of these ranks without which this call of the set's sequence cannot run: they have left without making it,
  /// or have gone.
  [[nodiscard]] std::vector<std::int32_t> lacking(core::SetId set, core::Round call,
                                                  const std::vector<std::int32_t>& ranks) const {
    return those_of(ranks, [&](std::int32_t rank) {
      const auto made = calls_.find({rank, set});
      return has_gone(rank) || (has_departed(rank) && (made == calls_.end() || made->second < call));
    });
  }

  void leave(const Departed& message) {
    departed_[static_cast<std::size_t>(message.rank)] = true;
    for (const Departed::Sequence& sequence : message.sequences) calls_[{message.rank, sequence.set}] = sequence.calls;
  }
  void go(std::int32_t rank) { gone_[static_cast<std::size_t>(rank)] = true; }

  /// An operation of `rank` has failed because `by` has left; -1: that is over.
  void desert(std::int32_t rank, std::int32_t by) {
    if (has_departed(rank) || (by >= 0 && !has_departed(by))) return;
    const std::int32_t cause = by < 0 ? -1 : root_of(by);
    causes_[static_cast<std::size_t>(rank)] = cause == rank ? -1 : cause;
  }
  /// The first cause of a rank's end; -1: the rank itself.
  [[nodiscard]] std::int32_t cause_of(std::int32_t rank) const { return causes_[static_cast<std::size_t>(rank)]; }

  /// Those of these ranks that an error names: the ranks that left first. Ranks ascend; all have left, and the request
  /// that fails needs each of them.
  [[nodiscard]] Leavers first_of(const std::vector<std::int32_t>& ranks) {
    if (first_to_leave_.empty()) {
      for (std::size_t rank = 0; rank < departed_.size(); ++rank) {
        if (departed_[rank]) first_to_leave_.push_back(static_cast<std::int32_t>(rank));
      }
    }
    std::vector<std::int32_t> culprits;
    std::set_intersection(ranks.begin(), ranks.end(), first_to_leave_.begin(), first_to_leave_.end(),
                          std::back_inserter(culprits));
    return leavers_of(culprits, ranks);
  }
  /// The ranks that had left when the first submission failed because of it, ascending. A rank that leaves later
  /// usually does so because of them, and is not named.
  [[nodiscard]] Leavers first() const { return leavers_of(first_to_leave_, first_to_leave_); }

 private:
  [[nodiscard]] std::int32_t root_of(std::int32_t rank) const {
    const std::int32_t cause = cause_of(rank);
    return cause < 0 ? rank : cause;
  }
  /// The first causes of these, of which `needed` are awaited.
  [[nodiscard]] Leavers leavers_of(const std::vector<std::int32_t>& ranks,
                                   const std::vector<std::int32_t>& needed) const {
    Leavers leavers;
    for (const std::int32_t rank : ranks) {
      const std::int32_t root = root_of(rank);
      leavers.first.push_back(root);
      if (!std::binary_search(needed.begin(), needed.end(), root)) leavers.followers.push_back(rank);
    }
    std::sort(leavers.first.begin(), leavers.first.end());
    leavers.first.erase(std::unique(leavers.first.begin(), leavers.first.end()), leavers.first.end());
    return leavers;
  }
  template <class Is>
  static std::vector<std::int32_t> those_of(const std::vector<std::int32_t>& ranks, const Is& is) {
    std::vector<std::int32_t> those;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(those), is);
    return those;
  }
  static bool any_of(const std::vector<std::int32_t>& ranks, const std::vector<bool>& marked) {
    return std::any_of(ranks.begin(), ranks.end(), [&](std::int32_t r) { return marked[static_cast<std::size_t>(r)]; });
  }

  std::vector<bool> departed_;
  std::vector<bool> gone_;
  std::vector<std::int32_t> causes_;          ///< of each rank's end; -1: itself
  std::vector<std::int32_t> first_to_leave_;  ///< empty: no submission has failed yet
  /// By rank that has left, and set: how many calls of the set's sequence it had made.
  std::map<std::pair<std::int32_t, core::SetId>, core::Round> calls_;
};

/// Requests that fail while the job goes on, above all *hopeless* ones: they can never be complete, because a rank has
/// left that had not made them. All ranks that ask about a hopeless request get the same answer, also if other ranks
/// have left since. A request that a deadline has given up (messages.hpp, "Members") fails once.
class Failures {
 public:
  Failures(Log& log, SetTable& sets, Departures& departures) : log_(log), sets_(sets), departures_(departures) {}

  /// The request fails on every member.
  void fail(const Request& request, ErrorCode code, const std::string& sentence) {
    if (request.members.empty()) sets_.at(request.set).absent.consume(request.name);
    log_.append(Failed{{request.set, request.name, request.round, request.members}, code, sentence});
  }

  [[nodiscard]] bool is_any_hopeless() const noexcept { return !hopeless_rounds_.empty(); }
  [[nodiscard]] bool is_hopeless(const Request& request) const {
    if (hopeless_rounds_.empty()) return false;
    const auto found = hopeless_rounds_.find(key_of(request));
    return found != hopeless_rounds_.end() && request.round <= found->second.first;
  }
  /// Fails a request that `is_hopeless`.
  void fail_hopeless(const Request& request) {
    fail(request, ErrorCode::rank_lost, hopeless_rounds_.at(key_of(request)).second);
  }
  /// Fails a submission that these ranks will never make, because they have left.
  void give_up(const Request& request, const std::vector<std::int32_t>& absent) {
    const Leavers culprits = departures_.first_of(absent);
    const bool is_group = !request.members.empty();
    hopeless_rounds_[key_of(request)] = {request.round, culprits.first.empty()
                                                            ? nothing_more(departures_.first())
                                                            : hopeless(sets_.subject_of(request), is_group, culprits)};
    fail_hopeless(request);
  }
  /// Fails a request that cannot run without members that have gone; where none has, that have left.
  void fail_without_members(const Request& request) {
    const std::vector<std::int32_t>& members = sets_.members_of(request);
    const std::vector<std::int32_t> gone = departures_.gone_of(members);
    give_up(request, gone.empty() ? departures_.departed_of(members) : gone);
  }
  /// The deadline of a request that names its members has given it up.
  void expire(const Request& request, const std::string& sentence) {
    expired_rounds_[key_of(request)] = request.round;
    fail(request, ErrorCode::expired, sentence);
  }
  [[nodiscard]] bool has_expired(const Request& request) const {
    const auto found = expired_rounds_.find(key_of(request));
    return found != expired_rounds_.end() && request.round <= found->second;
  }
  /// The set that the request was for has been made.
  void forget(const Request& request) { expired_rounds_.erase(key_of(request)); }
  /// The set is removed.
  void forget(core::SetId set) {
    std::erase_if(hopeless_rounds_, [set](const auto& item) { return std::get<core::SetId>(item.first) == set; });
  }

 private:
  Log& log_;
  SetTable& sets_;
  Departures& departures_;
  /// Requests that failed although not complete: up to which round, and the sentence.
  std::map<Key, std::pair<core::Round, std::string>> hopeless_rounds_;
  std::map<Key, core::Round> expired_rounds_;  ///< the last of each request that names its members
};

}  // namespace kolo::control::sequencer
