// SPDX-License-Identifier: Apache-2.0

/// @file
/// Starts jobs whose ranks may come and go while they run (docs/elastic.md). The calls by which a trainer takes part in
/// one are not there yet.
#ifndef KOLO_ELASTIC_HPP
#define KOLO_ELASTIC_HPP

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include <kolo/export.hpp>

#include <kolo/detail/setters.hpp>  // behind all others

namespace kolo::elastic {

/// How a job may lose and get ranks.
struct JobOptions {
  /// It goes on with so many ranks, not with fewer; 0: with as many as it is started with.
  int least = 0;
  /// It never has more; 0: than it is started with.
  int most = 0;
  /// It begins with so many; 0: with as many as it is started with.
  int first = 0;
  /// How many processes that have ended badly are started again, of all together.
  int respawns = 0;
  /// How long it waits for processes when it has fewer ranks than `least`.
  std::chrono::nanoseconds wait = std::chrono::seconds(300);

  /// For `respawns`.
  static constexpr int kNoLimit = std::numeric_limits<int>::max();

  KOLO_SETTER(JobOptions, int, least)
  KOLO_SETTER(JobOptions, int, most)
  KOLO_SETTER(JobOptions, int, first)
  KOLO_SETTER(JobOptions, int, respawns)
  KOLO_SETTER(JobOptions, std::chrono::nanoseconds, wait)
};

/// Runs a program as `processes` processes of this machine, which a keeper in this process makes ranks. The death of
/// one is not the end of the others while `least` are there. The tool kolo-run does this. In all else as
/// `kolo::run_program`. Returns 0 when the work is done; when too few processes are left, the exit status of the one
/// that ended badly last. Throws `Error` (invalid_argument, invalid_setting, transport).
[[nodiscard]] KOLO_API int run_program(int processes, const std::vector<std::string>& command,
                                       const JobOptions& options = {});

}  // namespace kolo::elastic

#undef KOLO_SETTER
#undef KOLO_SETTER_TIMEOUT

#endif  // KOLO_ELASTIC_HPP
