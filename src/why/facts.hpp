// SPDX-License-Identifier: Apache-2.0
//
// The facts in one rank's recorder: operations that were open when the rank ended (or when the file was read), and news
// of other ranks. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "recorder/reader.hpp"

namespace kolo::why {

/// What has become of a process.
enum class Life : std::uint8_t {
  runs,
  stopped,  ///< by a signal, or a debugger
  gone,
  unknown,  ///< it is on another machine, in another container or of another boot, or there is no file
};

/// A rank's recorder, and what has become of its process.
struct Observed {
  recorder::Recording recording;
  Life life = Life::unknown;
};

/// A request, as all ranks know it: by its name, or by its number in the sequence of a set (`id` is 0 then).
struct Request {
  std::uint32_t set = 0;
  std::uint64_t id = 0;
  std::uint32_t round = 0;
  friend bool operator<(const Request& a, const Request& b) noexcept {
    return std::tie(a.set, a.id, a.round) < std::tie(b.set, b.id, b.round);
  }
};

/// A request that is open on a rank.
struct Open {
  std::uint64_t since = 0;
  std::uint64_t bytes = 0;
  std::uint8_t kind = 0;  ///< core::CollectiveKind
};

/// A batch that has begun and not ended on a rank.
struct Running {
  std::uint64_t since = 0;
  std::vector<std::uint64_t> names;
  std::uint32_t members = 0;
};

struct OpenMessage {
  std::uint64_t since = 0;
  std::uint32_t peer = 0;
  std::uint32_t tag = 0;
  bool sends = false;
};

/// What was open at a moment.
struct Work {
  std::map<Request, Open> requests;                                    ///< not agreed yet
  std::map<std::pair<std::uint32_t, std::uint32_t>, Running> batches;  ///< by set and number
  std::map<std::uint64_t, OpenMessage> messages;
};

struct Heard {
  std::uint64_t time = 0;
  int rank = -1;  ///< of which; -1: of none
  std::uint8_t code = 0;
  std::string sentence;
};

struct Facts {
  const recorder::Recording* recording = nullptr;  ///< null: there is no file
  Life life = Life::unknown;
  std::uint64_t first = 0;  ///< times of the first and the last event
  std::uint64_t last = 0;
  Work work;                                             ///< when the first fatal error was recorded, else at the end
  std::map<std::uint32_t, std::uint32_t> batches_begun;  ///< by set: the last one
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> rounds;  ///< by set and name: the last one
  std::map<std::uint32_t, std::uint64_t> calls;                             ///< by set: the last one
  std::vector<Heard> deaths;                                                ///< of others, before its own fatal error
  std::vector<Heard> late;                                                  ///< ranks that the log has called late
  std::vector<Heard> mismatches;
  std::vector<Heard> failures;        ///< of operations, but for those of a fatal error
  std::map<int, std::uint64_t> left;  ///< ranks that have left in order, and when this one heard of it
  std::optional<Heard> reported;      ///< that it, or another one, cannot go on
  std::optional<Heard> fault;
  int blamed = -1;                   ///< the rank that the log's fatal error is because of
  std::uint64_t leaving = 0;         ///< when it called shutdown; 0: it did not
  std::uint64_t failed_last = 0;     ///< when an operation failed, without a fatal error; 0: none did
  std::uint64_t succeeded_last = 0;  ///< when a batch ended
  std::uint64_t sleeping = 0;        ///< since when a thread of the program waits; 0: none does
  std::uint64_t steps = 0;
  std::uint64_t batches = 0;   ///< for which it is known which rank was the last to submit
  std::uint64_t awaited = 0;   ///< of these: for which it was this one
  std::string start_step;      ///< the last one that it began; empty once it has started
  recorder::Record last_deed;  ///< the last request, batch or step

  /// `may_be_forgotten`: its first event is later than the request of others.
  [[nodiscard]] bool has_submitted(const Request& request, bool may_be_forgotten) const;
  /// An operation of it failed, and none succeeded later: where its process has ended, an error ended it.
  [[nodiscard]] bool ends_with_failure() const noexcept { return failed_last != 0 && failed_last >= succeeded_last; }
  /// It has called shutdown, and got to its end.
  [[nodiscard]] bool has_closed() const noexcept { return leaving != 0 && recording->state == recorder::State::closed; }
  /// Its process has ended, without shutdown and without an error of which it knew.
  [[nodiscard]] bool vanished() const noexcept;
};

[[nodiscard]] Facts facts_of(const recorder::Recording& recording, Life life);

}  // namespace kolo::why
