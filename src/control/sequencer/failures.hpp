// SPDX-License-Identifier: Apache-2.0
//
// Requests that fail while the job goes on, above all *hopeless* ones: they can never be complete, because a rank has
// left that had not made them. All ranks that ask about a hopeless request get the same answer, also if other ranks
// have left since.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/sentences.hpp"
#include "control/sequencer/departures.hpp"
#include "control/sequencer/log.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

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
};

}  // namespace kolo::control::sequencer
