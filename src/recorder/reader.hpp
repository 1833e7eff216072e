// SPDX-License-Identifier: Apache-2.0
//
// Reads a recorder's file (format.hpp), of a rank that runs or is dead. What stands in it is checked before it is used.
//
// Nothing is read through a mapping: whoever may write the file could change it between a check and a use, or cut it
// off (SIGBUS). Two copies are taken by read(2), one after the other, from the file's beginning to its end; each is
// this process's own. Both copies are of pages that the rank has mapped, which the system copies word by word, in
// order. They keep what format.hpp promises of a file that is written meanwhile:
//
//   constant words   are equal in both, or it is not one file.
//   driver's events  Those below the first copy's `head` were whole before the ring was copied: the header comes first.
//                    What has overwritten them since is below the `head` of the second copy, whose header is copied
//                    when the first copy is complete.
//   callers' events  and rows of groups are whole if they are the same in both copies. The kind of an event, and the
//                    set of a row, are written last, so half of one is not there twice.
//   texts            are only added. Those of the second copy have all that an event of the first one refers to.
//
// Where that fails (a file that anybody forged) an event may be wrong. Nothing outside of the copies is ever touched.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "recorder/format.hpp"
#include "recorder/process.hpp"
#include "recorder/recorder.hpp"

namespace kolo::recorder {

/// A group of which the rank was a member when the file was read.
struct RecordedSet {
  std::string words;
  std::vector<int> members;
};

struct Recording {
  std::string job;
  std::string host;
  std::string boot;
  int rank = 0;
  int size = 1;
  Process process;
  std::int64_t wall_ns = 0;       ///< CLOCK_REALTIME when CLOCK_MONOTONIC was
  std::int64_t monotonic_ns = 0;  ///< this
  State state = State::starting;
  std::uint64_t fast_calls = 0;
  std::map<std::uint32_t, std::uint64_t> last_fast;  ///< by set: the last call that avoided the log
  std::map<std::uint32_t, RecordedSet> sets;
  std::unordered_map<std::uint64_t, std::string> texts;
  std::vector<Record> events;  ///< in the order of their times; those of one thread in its order
  bool is_whole = true;        ///< no event has been overwritten

  [[nodiscard]] std::string text(std::uint64_t id) const;
};

/// A recorder of which nobody can say whether its process is alive goes when nothing has happened for so long.
inline constexpr std::chrono::hours kForgottenAfter{24};

/// A whole file in memory of this process, aligned as `operator new` aligns.
using Bytes = const std::vector<std::byte>&;
struct Copies {
  Bytes first;
  Bytes second;  ///< begun when the first was complete
};

/// What the copies say. Nothing: it is no recorder of this version, or broken.
[[nodiscard]] std::optional<Recording> parse(const Copies& copies);
/// The same of a file, which must be a regular one of this user (base::read_found).
[[nodiscard]] std::optional<Recording> read_file(const std::string& path, uid_t owner);

/// Whether it is a recorder of this user that no rank writes any more: it has ended, or its process is gone. If that
/// process is out of sight (another machine, boot or container; another version): nothing has happened for
/// `kForgottenAfter`.
[[nodiscard]] bool is_over(const std::string& path);

}  // namespace kolo::recorder
