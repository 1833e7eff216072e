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
#include <vector>

#include <kolo/looking.hpp>

#include "why/facts.hpp"

namespace kolo::why {

/// `now_ns`: CLOCK_MONOTONIC of the boot of the first observed rank; what waits is compared with it unless all ranks
/// are known to have ended. Sentences, and what is said of ranks, are each one line, whatever stands in the recorders;
/// `tensors` are names as they are.
[[nodiscard]] JobReport judge(const std::vector<Observed>& observed, std::int64_t now_ns);

}  // namespace kolo::why
