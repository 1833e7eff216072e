// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/failures.hpp"

#include "control/sentences.hpp"

namespace kolo::control::sequencer {

void Failures::fail(const Request& request, ErrorCode code, const std::string& sentence) {
  if (request.members.empty()) sets_.at(request.set).absent.consume(request.name);
  log_.append(Failed{request.set, request.name, request.round, code, sentence, request.members});
}

bool Failures::is_hopeless(const Request& request) const {
  if (hopeless_rounds_.empty()) return false;
  const auto found = hopeless_rounds_.find(request.key());
  return found != hopeless_rounds_.end() && request.round <= found->second.first;
}

void Failures::give_up(const Request& request, const std::vector<std::int32_t>& absent) {
  const std::vector<std::int32_t> culprits = departures_.first_of(absent);
  const bool is_group = !request.members.empty();
  hopeless_rounds_[request.key()] = {request.round, culprits.empty()
                                                        ? nothing_more(departures_.first())
                                                        : hopeless(sets_.subject_of(request), is_group, culprits)};
  fail_hopeless(request);
}

void Failures::fail_hopeless(const Request& request) {
  fail(request, ErrorCode::rank_lost, hopeless_rounds_.at(request.key()).second);
}

void Failures::fail_without_members(const Request& request) {
  give_up(request, departures_.left_of(sets_.members_of(request)));
}

void Failures::forget(core::SetId set) {
  std::erase_if(hopeless_rounds_, [set](const auto& item) { return std::get<core::SetId>(item.first) == set; });
}

}  // namespace kolo::control::sequencer
