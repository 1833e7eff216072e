// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/scatter.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"

namespace kolo::data::cpu {

void Scatter::open_lengths() {
  lengths_.open(runs().size());
  const int size = site_.topology.size;
  for (std::size_t i = 0; i < runs().size(); ++i) {
    const data::Run& run = runs()[i];
    KOLO_CHECK(run.splits.size() == static_cast<std::size_t>(size))
        << run.splits.size() << " splits for " << size << " ranks";
    if (run.root != site_.topology.rank) continue;
    for (int rank = 0; rank < size; ++rank) lengths_.at(i, rank) = run.splits[static_cast<std::size_t>(rank)];
  }
}

void Scatter::open_rows(std::size_t index, Alltoall& rows) {
  data::Run& run = runs()[index];
  std::vector<std::int64_t> bytes = lengths_.of(index);
  std::vector<std::int64_t> received(bytes.size(), 0);
  received[static_cast<std::size_t>(run.root)] = bytes[static_cast<std::size_t>(site_.topology.rank)];
  std::byte* const output = allocate_output(run, received);
  const std::int64_t row_bytes = run.row_elements * static_cast<std::int64_t>(size_of(run.dtype));
  for (std::int64_t& count : bytes) count *= row_bytes;
  open_rooted(rows, run, output, bytes, /*to_root=*/false);
}

// ---------------------------------------------------------------- small calls

namespace {

/// Of what each rank gets.
std::size_t bytes_of(const SmallCall& call, std::int64_t rows) noexcept {
  return static_cast<std::size_t>(rows * call.shape.elements()) * size_of(call.dtype);
}

/// In front of the root's input stand the rows for each rank. The others do not know them: they guess by what they get.
/// Where ranks get different numbers of rows, the root gives the call to the log.
bool lay_out_rows(CpuSmallCalls& calls, const SmallCall& call) {
  constexpr std::size_t kHead = sizeof(CpuSmallCalls::Head);
  const auto ranks = static_cast<std::size_t>(calls.ranks());
  if (!calls.is_root(call))
    return calls.fits(ranks * static_cast<std::size_t>(call.output_elements) * size_of(call.dtype), kHead);
  const auto differs = [&](std::int64_t rows) { return rows != call.splits[0]; };
  if (std::any_of(call.splits.begin(), call.splits.end(), differs) || !calls.fits(call.bytes(), kHead)) return false;
  calls.write_head(call.splits[0]);
  const std::size_t part = bytes_of(call, call.splits[0]);
  const std::size_t own = static_cast<std::size_t>(calls.own()) * part;
  calls.copy_in(call, calls.input_of(calls.own(), call.bytes(), kHead), {own, own + part});
  return true;
}

void take_rows(CpuSmallCalls& calls, const SmallCall& call) {
  const CpuSmallCalls::Head rows = calls.head_of(call.root);
  const std::size_t part = bytes_of(call, rows);
  std::fill(calls.lengths.begin(), calls.lengths.end(), 0);
  calls.lengths[static_cast<std::size_t>(call.root)] = rows;
  std::byte* const output = call.make_room(calls.lengths);
  const std::byte* const input =
      calls.is_root(call)
          ? call.tensor.input
          : calls.input_of(call.root, static_cast<std::size_t>(calls.ranks()) * part, sizeof(CpuSmallCalls::Head));
  copy_out(output, input + static_cast<std::size_t>(calls.own()) * part, part);
}

}  // namespace

/// Each rank copies its rows of the root's input.
constexpr SmallPart Scatter::kSmall = {lay_out_rows, take_rows};

}  // namespace kolo::data::cpu
