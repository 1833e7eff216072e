// SPDX-License-Identifier: Apache-2.0

/// @file
/// Looking: timelines, and what a job that failed, hangs or was killed was doing.
#ifndef KOLO_LOOKING_HPP
#define KOLO_LOOKING_HPP

#include <cstdint>
#include <string>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>

namespace kolo {

/// Starts a timeline of this context: one file for the ranks of a machine, in Chrome's format for trace events, which
/// Perfetto (ui.perfetto.dev) shows. Ranks of other machines than rank 0's write to `path` with "." and their host's
/// name behind it. An older file is emptied; no link, device or FIFO is taken. All ranks of the context call it, with
/// the same path, from any thread, while no other rank's `start_timeline` or `stop_timeline` is under way. It ends with
/// `stop_timeline`, with the context, or with another start. Throws Error on all ranks: io (the file cannot be made),
/// and what collectives throw. A write that fails later, or hangs for 10 s at the end, ends the timeline with a
/// warning.
KOLO_API void start_timeline(Context& context, const std::string& path);
inline void start_timeline(const std::string& path) { start_timeline(current_context(), path); }

/// Ends this rank's timeline, and writes what is there. No other rank waits. Nothing happens if there is none.
KOLO_API void stop_timeline(Context& context);
inline void stop_timeline() { stop_timeline(current_context()); }

/// The state of one rank, by its recorder.
struct RankReport {
  int rank = 0;
  std::string host;       ///< empty: there is no file of it here
  std::uint64_t pid = 0;  ///< 0: likewise
  std::string state;      ///< "runs", "is stopped", "was killed", "has ended after an error", "no file", ...
  std::string last;       ///< what it did last, as a sentence
  double last_s = 0;      ///< when that was, in seconds since the job's first event
  /// Batches in its recorder for which it is known which rank was the last to submit, and those for which it was this
  /// rank.
  std::uint64_t batches = 0;
  std::uint64_t awaited_batches = 0;
};

/// Why a job is as it is.
struct JobReport {
  std::string directory;  ///< of the job's recorders
  /// "healthy", "killed", "stopped", "gave up", "left", "lost", "late", "order", "slow", "mismatch", "failed" or
  /// "unclear"; docs/looking.md says what they mean.
  std::string verdict;
  std::vector<int> suspects;           ///< ranks that caused it, ascending; empty: none, or nobody knows
  std::vector<std::string> tensors;    ///< names of what was in flight, as the program gave them
  std::vector<std::string> sentences;  ///< the same for a person
  std::vector<RankReport> ranks;
};

/// Reads the recorders of a job (`KOLO_RECORDER`), also while it runs. `directory` is the job's, or one of jobs, whose
/// newest that can be read is taken; empty: where jobs of this user record. Only regular files are read, and only those
/// of this user, or of the owner of the directory that was given. Any thread, and any process: no context is needed.
/// Throws Error (invalid_argument): there is no recorder, or the default directory belongs to another user.
[[nodiscard]] KOLO_API JobReport explain_job(const std::string& directory = {});

/// As an object of JSON: the members' names. What `kolo-why --json` prints.
[[nodiscard]] KOLO_API std::string to_json(const JobReport& report);

/// For a person, as lines: what `kolo-why` prints, and with a line for each rank, as `kolo-why --ranks` does. Whatever
/// stands in the recorders, no line holds control characters.
[[nodiscard]] KOLO_API std::string to_text(const JobReport& report, bool with_ranks = false);

/// Writes the collectives in a job's recorders as PyTorch's flight recorder does, for `torchfrtrace`: a file
/// `kolo_rank_<r>` for each rank into the folder `to`, which is made if need be. `directory` as of `explain_job`; it
/// throws the same, and transport (a file cannot be written).
KOLO_API void write_flight_records(const std::string& to, const std::string& directory = {});

}  // namespace kolo

#endif  // KOLO_LOOKING_HPP
