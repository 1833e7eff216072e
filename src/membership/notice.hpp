// SPDX-License-Identifier: Apache-2.0
//
// What a process of an elastic job and its keeper say to each other. keeper.hpp has the protocol.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace kolo::membership {

enum class Topic : std::uint8_t {
  // A process says:
  ready = 1,  ///< it takes part in nothing of `generation` any more, and waits for the next one; 0: it wants in
  entry,    ///< as rank 0, where the others find it (`text`, of a Store); the keeper passes it on under the same topic
  started,  ///< its start of `generation` has succeeded
  done,     ///< it has finished the work in `generation`
  leaving,  ///< it wants out
  alive,    ///< it answers `ask`
  // The keeper says:
  change,    ///< `generation` is to end: leave it with the others, in order; a `text` says why it cannot go on
  next,      ///< begin `generation` as `rank` of `size`
  ask,       ///< say `alive`
  farewell,  ///< no generation follows for this process: `text` says why
};

/// Members that a topic does not name are 0 and empty.
struct Notice {
  Topic topic = Topic::alive;
  std::uint64_t generation = 0;
  int rank = 0;
  int size = 0;
  std::string text;

  auto operator<=>(const Notice&) const = default;  // NOLINT(modernize-use-nullptr): it has none
};

[[nodiscard]] std::string encode(const Notice& notice);
/// Throws Error (transport) for a text that is no notice.
[[nodiscard]] Notice decode(const std::string& text);

}  // namespace kolo::membership
