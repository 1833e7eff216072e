// SPDX-License-Identifier: Apache-2.0
//
// From the members of a batch to what a backend executes: which tensors run together, in which order, where each lies
// in the stream of elements. Pure, and the same on every rank because it depends on the log alone.
//
// Members are taken in log order; each tensor joins the first run that it can share - a kind that fuses
// (core/collectives.hpp), the same dtype, op, scales and root - else opens a run of its own. What moves no data, a
// barrier, needs no run: that it is in the log says that all have come.
#pragma once

#include <cstdint>
#include <vector>

#include "core/signature.hpp"
#include "data/backend.hpp"

namespace kolo::data {

/// Where a tensor of the batch went.
struct Placed {
  std::uint32_t member = 0;  ///< index in the batch
  std::uint32_t tensor = 0;  ///< index in the member's signature
  std::int64_t elements = 0;
};

struct RunLayout {
  Run prototype;  ///< everything but the pieces
  std::vector<Placed> pieces;
};

struct Layout {
  std::vector<RunLayout> runs;
};

/// `members`: the signatures of the batch, in its order; `divisor`: of an average, the ranks that it is over.
Layout make_layout(const std::vector<const core::Signature*>& members, std::int64_t divisor);

}  // namespace kolo::data
