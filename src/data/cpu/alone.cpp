// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/alone.hpp"

#include "base/check.hpp"
#include "data/cpu/open_job.hpp"
#include "data/kernels/reduce.hpp"

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

void gather(const data::Run& run, Status& status) {
  const auto width = static_cast<std::int64_t>(size_of(run.dtype));
  const std::int64_t bytes = run.elements * width;
  std::byte* output = allocate_output(run, {bytes}, status);
  if (output == nullptr) return;
  for (const data::Piece& piece : run.pieces) {
    kernels::copy(output, piece.input, piece.elements * width);
    output += piece.elements * width;
  }
}

void exchange(const data::Run& run, Status& status) {
  std::byte* output = allocate_output(run, {run.splits.begin(), run.splits.end()}, status);
  if (output == nullptr) return;
  kernels::copy(output, run.pieces.front().input, run.elements * static_cast<std::int64_t>(size_of(run.dtype)));
}

}  // namespace

void run_alone(data::Job& job) {
  for (const data::Run& run : job.runs) {
    switch (run.kind) {
    case core::CollectiveKind::allreduce:
    case core::CollectiveKind::reduce_scatter:
      reduce(run);
      break;
    case core::CollectiveKind::broadcast:
    case core::CollectiveKind::alltoall:
      copy(run);
      break;
    case core::CollectiveKind::allgather:
      gather(run, job.status);
      break;
    case core::CollectiveKind::alltoall_splits:
      exchange(run, job.status);
      break;
    default:
      KOLO_UNREACHABLE(core::to_string(run.kind));
    }
  }
}

}  // namespace kolo::data::cpu
