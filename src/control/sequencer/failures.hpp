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

#include "control/sequencer/departures.hpp"
#include "control/sequencer/log.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

class Failures {
 public:
  Failures(Log& log, SetTable& sets, Departures& departures) : log_(log), sets_(sets), departures_(departures) {}

  /// The request fails on every member.
  void fail(const Request& request, ErrorCode code, const std::string& sentence);

  [[nodiscard]] bool is_any_hopeless() const noexcept { return !hopeless_rounds_.empty(); }
  [[nodiscard]] bool is_hopeless(const Request& request) const;
  /// Fails a request that `is_hopeless`.
  void fail_hopeless(const Request& request);
  /// Fails a submission that these ranks will never make, because they have left.
  void give_up(const Request& request, const std::vector<std::int32_t>& absent);
  /// Fails a request that its members that have left will never make.
  void fail_without_members(const Request& request);
  /// The set is removed.
  void forget(core::SetId set);

 private:
  Log& log_;
  SetTable& sets_;
  Departures& departures_;
  /// Requests that failed although not complete: up to which round, and the sentence.
  std::map<Key, std::pair<core::Round, std::string>> hopeless_rounds_;
};

}  // namespace kolo::control::sequencer
