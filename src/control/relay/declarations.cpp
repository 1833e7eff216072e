// SPDX-License-Identifier: Apache-2.0
#include "control/relay/declarations.hpp"

#include <utility>

namespace kolo::control::relay {

using core::Round;
using core::SetId;

void NewNames::on_declared_new(std::size_t child, const Voice& voice, const std::vector<std::size_t>& speakers,
                               Declared&& declared) {
  const Key key(declared.set, declared.members, declared.name);
  Gathered& gathered = fresh_[key];
  const Round round = declared.round;
  if (round < gathered.round) return;
  if (round > gathered.round) {
    gathered = Gathered{};
    gathered.round = round;
  }
  gathered.gather(child, children_, std::move(declared));
  gathered.last.hear(voice);
  send_new(key, gathered, speakers);
}

void NewNames::send_new(const Key& key, Gathered& gathered, const std::vector<std::size_t>& speakers) {
  if (gathered.sent || !gathered.holds(speakers)) return;
  gathered.sent = true;
  const auto& [set, members, name] = key;
  up_.emplace_back(Declared{set, name, gathered.round, core::kNoTensor, 0, std::exchange(gathered.variants, {}),
                            members, gathered.last.rank});
}

void NewNames::hear_speakers(SetId set, const std::vector<std::size_t>& speakers) {
  for (auto request = first_of(set); is_name_of(request, set); ++request) {
    request->second.last.rank = -1;
    send_new(request->first, request->second, speakers);
  }
}

Round NewNames::remove(SetId set, const std::string& name) {
  const auto found = fresh_.find(Key(set, {}, name));
  if (found == fresh_.end()) return 0;
  const Round round = found->second.round;
  fresh_.erase(found);
  return round;
}

void NewNames::fail(const Request& request) {
  const auto waiting = fresh_.find(Key(request.set, request.members, request.name));
  if (waiting != fresh_.end() && waiting->second.round <= request.round) fresh_.erase(waiting);
}

void NewNames::forget(SetId set, const std::vector<std::int32_t>& members, const std::string& name) {
  fresh_.erase(Key(set, members, name));
}

bool NewNames::has_declared(const Request& request, std::size_t child) const {
  const auto waiting = fresh_.find(Key(request.set, request.members, request.name));
  if (waiting == fresh_.end() || waiting->second.round < request.round) return false;
  return waiting->second.round > request.round || waiting->second.declared[child];
}

void NewNames::forget_names(SetId set) {
  for (auto request = first_of(set); is_name_of(request, set);) request = fresh_.erase(request);
}

void NewNames::forget_set(SetId set) {
  auto request = first_of(set);
  while (request != fresh_.end() && std::get<SetId>(request->first) == set) request = fresh_.erase(request);
}

}  // namespace kolo::control::relay
