// SPDX-License-Identifier: Apache-2.0
//
// Reads a recorder's file (format.hpp), of a rank that runs or is dead. What stands in it is checked before it is used.
#pragma once

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
  std::uint64_t serial = 0;
  std::string words;
  std::vector<int> members;
};

struct Recording {
  std::string path;
  std::string job;
  std::string host;
  std::string boot;
  std::string release;
  int rank = 0;
  int size = 1;
  int node = 0;
  std::vector<std::int32_t> nodes;
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

/// Reads what `bytes` say. Nothing: it is no recorder of this version, or broken.
[[nodiscard]] std::optional<Recording> parse(const std::byte* bytes, std::size_t size);
/// The same of a file.
[[nodiscard]] std::optional<Recording> read_file(const std::string& path);

/// Whether it is a recorder that no rank writes any more: it has ended, or its process is gone. `boot`: this system's.
[[nodiscard]] bool is_over(const std::string& path, const std::string& boot);

}  // namespace kolo::recorder
