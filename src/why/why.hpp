// SPDX-License-Identifier: Apache-2.0
//
// Why a job failed, hangs or was killed: judges the recorders of its ranks, and says so in sentences. Pure.
// (explain.hpp finds and reads the recorders.)
//
// What is believed, in this order:
//
//   1. A process that has ended without shutdown and without an error was killed; one that is stopped is stopped.
//   2. A rank that said itself that it cannot go on, and a rank that left while others had work to do with it.
//   3. The rank that rank 0 named when it ended the job, ends of processes that others saw before their own error, and
//      the rank that the sentence of the first fatal error names.
//   4. Of requests that some ranks wait for: the ranks that have not submitted them, unless they wait themselves for a
//      request of others. Ranks that wait for each other's requests make their calls in different orders.
//   5. Of batches that some ranks run: the ranks that have not begun them.
//   6. A request that failed because ranks disagree about it.
//
// Ranks of the first kind that is found are the suspects. A rank that has only been told of an error never is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recorder/reader.hpp"
#include "why/facts.hpp"

namespace kolo::why {

/// What has become of a job, in a word that programs may compare.
enum class Verdict : std::uint8_t {
  healthy,   ///< nothing waits for long
  killed,    ///< suspects' processes ended without a word
  stopped,   ///< suspects' processes are stopped
  gave_up,   ///< suspects said that they cannot go on: an exception of the program, or an error of Kolo's
  left,      ///< suspects called shutdown, or ended their program, while others needed them
  lost,      ///< suspects were lost, as others say
  late,      ///< suspects have not submitted what others wait for
  order,     ///< suspects wait for each other's requests
  slow,      ///< suspects have not come to a batch that others run
  mismatch,  ///< ranks disagree about a request
  failed,    ///< the job failed, and nobody is known to have caused it
  unclear,   ///< something waits, and the recorders do not say for whom
};
/// "healthy", "killed", ...
[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

struct RankLine {
  int rank = 0;
  std::string host;           ///< empty: there is no file
  std::uint64_t pid = 0;      ///< 0: there is no file
  std::string state;          ///< of its process and its engine: "runs", "is stopped", "has ended after an error", ...
  std::string last;           ///< what it did last
  double last_at = 0;         ///< when, in seconds since the job's first event
  std::uint64_t batches = 0;  ///< in its file, for which it is known which rank was the last to submit
  std::uint64_t awaited = 0;  ///< of these: for which it was this one
};

struct Judgement {
  Verdict verdict = Verdict::unclear;
  std::vector<int> suspects;         ///< ascending
  std::vector<std::string> tensors;  ///< what was in flight and waits for them; names
  std::vector<std::string> sentences;
  std::vector<RankLine> ranks;
};

/// `now_ns`: CLOCK_MONOTONIC of the boot of the first observed rank; what waits is compared with it unless all ranks
/// are known to have ended. Sentences, and what lines say, are each one line, whatever stands in the recorders;
/// `tensors` are names as they are.
[[nodiscard]] Judgement judge(const std::vector<Observed>& observed, std::int64_t now_ns);

}  // namespace kolo::why
