// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/scatter.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
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
  const int size = site_.topology.size;
  const int root = run.root;
  const std::vector<std::int64_t> nothing(static_cast<std::size_t>(size), 0);
  std::vector<std::int64_t> receive = nothing;
  std::int64_t& own = receive[static_cast<std::size_t>(root)];
  own = lengths_.at(index, site_.topology.rank);
  std::byte* const output = allocate_output(run, receive);
  const std::int64_t row_bytes = run.row_elements * static_cast<std::int64_t>(size_of(run.dtype));
  own *= row_bytes;
  std::vector<std::int64_t> bytes = lengths_.of(index);
  for (std::int64_t& count : bytes) count *= row_bytes;
  std::vector<std::int64_t> over_distance;  // over each, the root sends to one rank
  over_distance.reserve(bytes.size());
  for (int distance = 0; distance < size; ++distance)
    over_distance.push_back(bytes[static_cast<std::size_t>((root + distance) % size)]);
  rows.open(run.pieces.front().input, output, root == site_.topology.rank ? bytes : nothing, receive, over_distance);
}

// ---------------------------------------------------------------- small calls

namespace {

/// In front of the root's input: the rows for each rank, or this. Then the number for each rank stands at the beginning
/// of the payload.
constexpr CpuSmallCalls::Head kUneven = -1;

std::int64_t sum_of(const std::int64_t* first, const std::int64_t* last) {
  return std::accumulate(first, last, std::int64_t{0});
}

std::size_t row_bytes(const SmallCall& call) noexcept {
  return static_cast<std::size_t>(call.shape.elements()) * size_of(call.dtype);
}

/// The other ranks do not know how much the root gives: they guess by what they get.
bool guess_fits(const CpuSmallCalls& calls, const SmallCall& call) {
  const auto elements = static_cast<std::size_t>(calls.ranks()) * static_cast<std::size_t>(call.output_elements);
  return calls.fits(elements * size_of(call.dtype), sizeof(CpuSmallCalls::Head));
}

bool lay_out_rows(CpuSmallCalls& calls, const SmallCall& call) {
  if (!calls.is_root(call)) return guess_fits(calls, call);
  const Span<const std::int64_t> splits = call.splits;
  const bool even = std::all_of(splits.begin(), splits.end(), [&](std::int64_t rows) { return rows == splits[0]; });
  const std::size_t bytes = call.bytes();
  const std::size_t table = even ? 0 : splits.size() * sizeof(std::int64_t);
  if (even ? !calls.fits(bytes, sizeof(CpuSmallCalls::Head)) : table + bytes > calls.capacity()) return false;
  calls.write_head(even ? splits[0] : kUneven);
  if (!even) std::memcpy(calls.payload_of(calls.own()), splits.data(), table);
  const std::size_t row = row_bytes(call);
  const auto before = static_cast<std::size_t>(sum_of(splits.begin(), splits.begin() + calls.own()));
  const auto rows = static_cast<std::size_t>(splits[static_cast<std::size_t>(calls.own())]);
  std::byte* const to =
      even ? calls.input_of(calls.own(), bytes, sizeof(CpuSmallCalls::Head)) : calls.payload_of(calls.own()) + table;
  calls.copy_in(call, to, {before * row, (before + rows) * row});
  return true;
}

void take_rows(CpuSmallCalls& calls, const SmallCall& call) {
  std::vector<std::int64_t>& lengths = calls.lengths;
  const auto own = static_cast<std::size_t>(calls.own());
  const CpuSmallCalls::Head each = calls.head_of(call.root);
  std::size_t table = 0;
  if (each == kUneven) {
    table = lengths.size() * sizeof(std::int64_t);
    std::memcpy(lengths.data(), calls.payload_of(call.root), table);
  } else {
    std::fill(lengths.begin(), lengths.end(), each);
  }
  const std::size_t row = row_bytes(call);
  const std::size_t begin = static_cast<std::size_t>(sum_of(lengths.data(), lengths.data() + own)) * row;
  const std::size_t all = static_cast<std::size_t>(sum_of(lengths.data(), lengths.data() + lengths.size())) * row;
  const std::int64_t rows = lengths[own];
  std::fill(lengths.begin(), lengths.end(), 0);
  lengths[static_cast<std::size_t>(call.root)] = rows;
  std::byte* const output = call.make_room(lengths);
  const std::byte* from = call.tensor.input;
  if (!calls.is_root(call)) {
    from = each == kUneven ? calls.payload_of(call.root) + table
                           : calls.input_of(call.root, all, sizeof(CpuSmallCalls::Head));
  }
  copy_out(output, from + begin, static_cast<std::size_t>(rows) * row);
}

}  // namespace

/// Each rank copies its rows of the root's input.
constexpr SmallPart Scatter::kSmall = {lay_out_rows, take_rows};

}  // namespace kolo::data::cpu
