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
constexpr SmallSite::Head kUneven = -1;

std::int64_t sum_of(const std::int64_t* first, const std::int64_t* last) {
  return std::accumulate(first, last, std::int64_t{0});
}

std::size_t row_bytes(const SmallCall& call) noexcept {
  return static_cast<std::size_t>(call.shape.elements()) * size_of(call.dtype);
}

/// The other ranks do not know how much the root gives: they guess by what they get.
bool guess_fits(const SmallSite& site, const SmallCall& call) {
  const auto elements = static_cast<std::size_t>(site.ranks()) * static_cast<std::size_t>(call.output_elements);
  return site.fits(elements * size_of(call.dtype), sizeof(SmallSite::Head));
}

bool lay_out_rows(SmallSite& site, const SmallCall& call) {
  if (!site.is_root(call)) return guess_fits(site, call);
  const Span<const std::int64_t> splits = call.splits;
  const bool even = std::all_of(splits.begin(), splits.end(), [&](std::int64_t rows) { return rows == splits[0]; });
  const std::size_t bytes = call.bytes();
  const std::size_t table = even ? 0 : splits.size() * sizeof(std::int64_t);
  if (even ? !site.fits(bytes, sizeof(SmallSite::Head)) : table + bytes > site.capacity()) return false;
  site.write_head(even ? splits[0] : kUneven);
  if (!even) std::memcpy(site.payload_of(site.own()), splits.data(), table);
  const std::size_t row = row_bytes(call);
  const auto before = static_cast<std::size_t>(sum_of(splits.begin(), splits.begin() + site.own()));
  const auto rows = static_cast<std::size_t>(splits[static_cast<std::size_t>(site.own())]);
  std::byte* const to =
      even ? site.input_of(site.own(), bytes, sizeof(SmallSite::Head)) : site.payload_of(site.own()) + table;
  site.copy_in(call, to, {before * row, (before + rows) * row});
  return true;
}

void take_rows(SmallSite& site, const SmallCall& call) {
  std::vector<std::int64_t>& lengths = site.lengths;
  const auto own = static_cast<std::size_t>(site.own());
  const SmallSite::Head each = site.head_of(call.root);
  std::size_t table = 0;
  if (each == kUneven) {
    table = lengths.size() * sizeof(std::int64_t);
    std::memcpy(lengths.data(), site.payload_of(call.root), table);
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
  if (!site.is_root(call)) {
    from =
        each == kUneven ? site.payload_of(call.root) + table : site.input_of(call.root, all, sizeof(SmallSite::Head));
  }
  copy_out(output, from + begin, static_cast<std::size_t>(rows) * row);
}

}  // namespace

/// Each rank copies its rows of the root's input.
constexpr SmallPart Scatter::kSmall = {lay_out_rows, take_rows};

}  // namespace kolo::data::cpu
