// SPDX-License-Identifier: Apache-2.0
//
// How a relay merges requests without an id: names that have no id yet, and requests that name their members, which
// never have one.
//
// Declarations are kept under (set, members, name) until all children that must declare the request have done so. That
// it was complete is kept until the log has answered, so that questions in between get a right answer. A name must be
// declared by the children that speak for its set; a request that names its members, by the children that have one of
// these. The newest round wins.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "control/relay/gathered.hpp"

namespace kolo::control::relay {

class NewNames {
 public:
  /// Complete requests go to `up`.
  NewNames(std::size_t children, std::vector<UpMessage>& up) : children_(children), up_(up) {}

  /// `speakers`: the children that must declare it.
  void on_declared_new(std::size_t child, const Voice& voice, const std::vector<std::size_t>& speakers,
                       Declared&& declared);
  /// The children that speak for the set have changed. Sends up requests of its names that are complete now.
  void hear_speakers(core::SetId set, const std::vector<std::size_t>& speakers);
  /// The name has an id now. Returns its round; 0: no child has declared it.
  core::Round take(core::SetId set, const std::string& name);
  /// The log has answered: this round of it is over.
  void fail(const Request& request);
  void forget(core::SetId set, const std::vector<std::int32_t>& members, const std::string& name);
  /// Whether the child has declared this round, or a later round has begun.
  [[nodiscard]] bool has_declared(const Request& request, std::size_t child) const;
  /// Forgets the set's names, but not requests that name their members.
  void forget_names(core::SetId set);
  /// The set is removed.
  void forget_set(core::SetId set);

 private:
  using Key = std::tuple<core::SetId, std::vector<std::int32_t>, std::string>;
  using Requests = std::map<Key, Gathered>;

  void send_new(const Key& key, Gathered& gathered, const std::vector<std::size_t>& speakers);
  /// The beginning of the set's requests. Names come before requests that name their members.
  [[nodiscard]] Requests::iterator first_of(core::SetId set) { return fresh_.lower_bound(Key(set, {}, "")); }
  [[nodiscard]] bool is_name_of(Requests::const_iterator request, core::SetId set) const {
    return request != fresh_.end() && std::get<core::SetId>(request->first) == set &&
           std::get<1>(request->first).empty();
  }

  const std::size_t children_;
  std::vector<UpMessage>& up_;
  Requests fresh_;
};

}  // namespace kolo::control::relay
