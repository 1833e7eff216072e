// SPDX-License-Identifier: Apache-2.0
//
// The declarations that a relay merges: of one round of a name, and of requests that have no id.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control::relay {

/// A submission as a relay hears it from a child.
struct Voice {
  std::int32_t rank = -1;  ///< the last rank of those below the child; -1: the child does not know
  std::uint64_t pass = 0;  ///< in which it is heard, from 1
  bool is_own = false;     ///< of the leader's own rank, which has published it in this pass
};

/// Which rank a relay has heard last, of those that it waits for (messages.hpp, "Waiting").
struct LastHeard {
  std::int32_t rank = -1;
  std::uint64_t pass = 0;

  void hear(const Voice& voice) {
    rank = voice.pass == pass && !voice.is_own ? -1 : voice.rank;
    pass = voice.pass;
  }
};

/// Merges the variant with an equal one, or adds it. Ranks ascend.
inline void merge(std::vector<Declared::Variant>& into, Declared::Variant&& variant) {
  for (Declared::Variant& known : into) {
    if (known.signature != variant.signature) continue;
    const auto middle = static_cast<std::ptrdiff_t>(known.ranks.size());
    known.ranks.insert(known.ranks.end(), variant.ranks.begin(), variant.ranks.end());
    std::inplace_merge(known.ranks.begin(), known.ranks.begin() + middle, known.ranks.end());
    return;
  }
  into.push_back(std::move(variant));
}

/// The declarations of one round of a name by a relay's children. Equal signatures are merged, each with its ranks.
struct Gathered {
  core::Round round = 0;
  std::vector<bool> declared;  ///< by child
  std::vector<Declared::Variant> variants;
  LastHeard last;  ///< of a request without an id
  bool sent = false;

  /// This child (of `children`) has declared it.
  void gather(std::size_t child, std::size_t children, Declared&& message) {
    if (declared.empty()) declared.resize(children, false);
    if (declared[child]) return;
    declared[child] = true;
    for (Declared::Variant& variant : message.variants) merge(variants, std::move(variant));
  }
  /// Whether these children, at least one, have declared it.
  [[nodiscard]] bool holds(const std::vector<std::size_t>& speakers) const {
    return !speakers.empty() && std::all_of(speakers.begin(), speakers.end(), [this](auto c) { return declared[c]; });
  }
};

/// How a relay merges requests without an id: names that have no id yet, and requests that name their members, which
/// never have one.
///
/// Declarations are kept under (set, members, name) until all children that must declare the request have done so. That
/// it was complete is kept until the log has answered, so that questions in between get a right answer. A name must be
/// declared by the children that speak for its set; a request that names its members, by the children that have one of
/// these. The newest round wins.
class NewNames {
 public:
  /// Complete requests go to `up`.
  NewNames(std::size_t children, std::vector<UpMessage>& up) : children_(children), up_(up) {}

  /// `speakers`: the children that must declare it.
  void on_declared_new(std::size_t child, const Voice& voice, const std::vector<std::size_t>& speakers,
                       Declared&& declared);
  /// The children that speak for the set have changed. Sends up requests of its names that are complete now.
  void hear_speakers(core::SetId set, const std::vector<std::size_t>& speakers);
  /// The name has an id now, and is no new one any more. Returns its round; 0: no child has declared it.
  core::Round remove(core::SetId set, const std::string& name);
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
