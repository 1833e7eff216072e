// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/alone.hpp"

#include "core/collectives.hpp"
#include "data/cpu/lengths.hpp"
#include "data/kernels/copy.hpp"
#include "data/kernels/reduction.hpp"

namespace kolo::data::cpu {

namespace {

/// Whether reducing one input changes nothing: scales are one, and a number is its own sum.
bool is_identity(const data::Run& run) noexcept {
  return run.prescale == 1.0 && run.postscale == 1.0 && run.divisor == 1 && run.dtype != DType::boolean;
}

void reduce(const data::Run& run) {
  const kernels::Reduction reduction{run.dtype, run.op, {run.prescale, run.postscale, run.divisor}};
  for (const data::Piece& piece : run.pieces) {
    if (piece.input == piece.output && is_identity(run)) continue;
    const void* input = piece.input;
    kernels::reduce(reduction, &input, 1, piece.output, piece.elements);
  }
}

void copy(const data::Run& run) {
  const auto width = static_cast<std::int64_t>(size_of(run.dtype));
  for (const data::Piece& piece : run.pieces)
    if (piece.input != piece.output) kernels::copy(piece.output, piece.input, piece.elements * width);
}

/// To where the caller has room for what all ranks, which is this one, have given.
void copy_to_room(data::Run& run) {
  const auto width = static_cast<std::int64_t>(size_of(run.dtype));
  std::vector<std::int64_t> parts(run.splits.begin(), run.splits.end());
  if (parts.empty()) parts = {run.elements * width};
  std::byte* output = allocate_output(run, parts);
  if (output == nullptr) return;
  for (const data::Piece& piece : run.pieces) {
    if (piece.input != output) kernels::copy(output, piece.input, piece.elements * width);
    output += piece.elements * width;
  }
}

}  // namespace

void run_alone(data::Job& job) {
  for (data::Run& run : job.runs) {
    const core::CollectiveTraits& traits = core::traits_of(run.kind);
    if (traits.rows_differ) {
      copy_to_room(run);
    } else if (traits.reduces) {
      reduce(run);
    } else {
      copy(run);
    }
  }
}

}  // namespace kolo::data::cpu
