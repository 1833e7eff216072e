// SPDX-License-Identifier: Apache-2.0
//
// The collectives in a job's recorders as PyTorch's flight recorder dumps them: a pickle for each rank, which
// `torchfrtrace` (torch.distributed.flight_recorder) compares with the others'. Pure.
//
// A request has one number on all ranks (`collective_seq_id`), by which they are matched: its place among all requests
// of the job, by when the first rank submitted it. Recorders have no shapes: a tensor is so many bytes, where all ranks
// give as many, and nothing where they may differ. Calls that avoided the log, and messages, are left out; so is what
// was submitted before the first event that every rank still has.
#pragma once

#include <string>
#include <vector>

#include "why/why.hpp"

namespace kolo::why {

struct FlightRecord {
  int rank = 0;
  std::string pickle;
};

[[nodiscard]] std::vector<FlightRecord> flight_records(const std::vector<Observed>& observed);

}  // namespace kolo::why
