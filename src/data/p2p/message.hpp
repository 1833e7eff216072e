// SPDX-License-Identifier: Apache-2.0
//
// One rank's part in one message: a send or a receive, from the call to its end. And which ranks have left.
#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <kolo/error.hpp>
#include <kolo/types.hpp>

#include "base/clock.hpp"
#include "data/p2p/frame.hpp"

namespace kolo::p2p {

inline constexpr int kAny = -1;

/// The caller fills in what is constant, and keeps the object where it is until it is done.
struct Message {
  enum class Role : std::uint8_t { send, receive };
  /// How far it has come. Of a send: `waiting` until its frame is in the channel, then `announced` until the receiver
  /// wants its data, then `moving`. Of a receive: `waiting` until it has a message, then `moving`.
  enum class State : std::uint8_t { fresh, waiting, announced, moving, done };

  // -- constant
  Role role = Role::send;
  DType dtype = DType::uint8;
  std::int32_t tag = 0;                       ///< of a receive also kAny
  int peer = 0;                               ///< rank of the world; of a receive also kAny
  std::uint64_t set = 0;                      ///< serial number of the process set; 0: the world
  std::byte* data = nullptr;                  ///< of a send only read
  const std::byte* tensor = nullptr;          ///< the caller's memory: `data`, unless that is on its way elsewhere
  std::uint64_t bytes = 0;                    ///< of a receive: its room
  bool is_late = false;                       ///< of a send: its data comes after the call (`Protocol::provide`)
  bool on_device = false;                     ///< its tensor lies on a device that can pass data to others
  const std::vector<int>* members = nullptr;  ///< the set's ranks; null: the world's. For sentences.
  const std::string* group = nullptr;         ///< likewise: the set, as people call it
  base::Time begun{};
  base::Time deadline = base::Time::max();
  std::chrono::nanoseconds patience{};     ///< from the one to the other, for sentences
  base::Time warn_at = base::Time::max();  ///< when a warning says that it waits; max: never, or that was said

  // -- the outcome, once it is done. Of a receive:
  int source = kAny;  ///< rank of the world
  std::int32_t received_tag = 0;
  std::uint64_t received_bytes = 0;
  // Of both:
  Status status;
  Way way = Way::host;   ///< `device`: it is for the two devices now (frame.hpp, "By the devices")
  int deserted_by = -1;  ///< the rank whose leaving had it given up, here or there; -1: none

  // -- the protocol's
  State state = State::fresh;
  bool is_awaited = false;     ///< a thread waits for its end (`Protocol::await`)
  std::uint64_t id = 0;        ///< the sender's number for it
  std::uint64_t moved = 0;     ///< bytes
  std::uint64_t there = 0;     ///< of a send: bytes of the data that may be read
  Message* partner = nullptr;  ///< of a late send of a rank to itself, and its receive: the other one
  std::uint32_t permit = 0;    ///< to read the sender's memory; 0: none
  std::uint64_t address = 0;   ///< of the data there
  bool is_withdrawn = false;   ///< of a receive: the permit has gone, and nobody has said why
  std::size_t open_index = 0;  ///< among those that are open

  /// The engine's: who is told. Null: nobody need be, the thread that made the call looks.
  void* owner = nullptr;

  [[nodiscard]] bool done() const noexcept { return state == State::done; }
};

/// From whom to whom messages go: ranks of the world.
struct Direction {
  int source = 0;
  int destination = 0;
  auto operator<=>(const Direction&) const = default;  // NOLINT(modernize-use-nullptr): it has none
};

/// The ranks that have left the job, as far as messages must know.
struct Departures {
  std::map<int, base::Time> until;  ///< until when something may come from ranks that have left
  std::map<int, int> because;       ///< the first cause of those that have left because of another rank's end
  std::vector<int> order;           ///< the ranks that have left, the earliest first

  [[nodiscard]] bool has(int rank) const { return until.count(rank) > 0; }
  /// The rank itself, unless it has left because of another one.
  [[nodiscard]] int cause_of(int rank) const {
    const auto found = because.find(rank);
    return found == because.end() ? rank : found->second;
  }
  /// The one of these ranks that left before the others; null: of all. -1: none has left.
  [[nodiscard]] int first_of(const std::vector<int>* members) const {
    const auto found = std::find_if(order.begin(), order.end(), [members](int rank) {
      return members == nullptr || std::find(members->begin(), members->end(), rank) != members->end();
    });
    return found == order.end() ? -1 : *found;
  }
};

}  // namespace kolo::p2p
