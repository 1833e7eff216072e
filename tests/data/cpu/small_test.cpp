// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/small.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <vector>

namespace kolo::data::cpu {
namespace {

using core::CollectiveKind;
using core::ShortcutMemory;

constexpr int kRanks = 3;
constexpr std::size_t kCapacity = 600;
constexpr int kRoot = 1;

struct Free {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
};

/// Three ranks that do everything one after another: nobody waits for anybody.
class SmallTest : public ::testing::TestWithParam<CollectiveKind> {
 protected:
  struct End {
    End(const base::Columns& columns, int rank)
        : calls(ShortcutMemory(columns, kCapacity, rank), Routes(RouteTable(), kRanks), kernels::PeerCopy()) {}
    CpuSmallCalls calls;
    std::vector<std::int32_t> input, output;
    SmallCall call;
  };

  SmallTest() {
    const auto columns = base::Columns::in_a_row(memory_.get(), kColumn, kRanks);
    for (int rank = 0; rank < kRanks; ++rank) ends_.push_back(std::make_unique<End>(columns, rank));
  }
  static std::int32_t value(int rank, std::size_t at) { return static_cast<std::int32_t>(at * 10) + rank; }

  /// A call in which a rank gives so many elements.
  void prepare(const std::vector<std::int64_t>& elements, const std::vector<std::int64_t>& splits = {}) {
    splits_ = splits;
    for (int rank = 0; rank < kRanks; ++rank) {
      End& end = *ends_[static_cast<std::size_t>(rank)];
      const std::int64_t count = elements[static_cast<std::size_t>(rank)];
      end.input.resize(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < end.input.size(); ++i) end.input[i] = value(rank, i);
      end.output.assign(1000, -1);
      end.call = {};
      end.call.kind = GetParam();
      end.call.dtype = DType::int32;
      end.call.root = kRoot;
      const bool has_rows = core::traits_of(GetParam()).rows_differ;
      end.call.shape = has_rows ? Shape{} : Shape{count};
      if (rank == kRoot) end.call.splits = splits_;
      auto* const out = reinterpret_cast<std::byte*>(end.output.data());
      end.call.tensor = {reinterpret_cast<const std::byte*>(end.input.data()), out, count};
      end.call.make_room = [out](const std::vector<std::int64_t>&) { return out; };
    }
  }
  /// Whether all ranks find the call short enough.
  [[nodiscard]] bool lay_out() {
    bool fits = true;
    ++call_;
    for (const auto& end : ends_) fits = end->calls.lay_out(call_, end->call) && fits;
    return fits;
  }
  /// The inputs may change as soon as they have been laid out, but for what a rank takes of its own.
  void expect(int rank, const std::vector<std::int32_t>& wanted) {
    End& end = *ends_[static_cast<std::size_t>(rank)];
    end.calls.take(end.call);
    end.input.assign(end.input.size(), -2);
    const std::vector<std::int32_t> got(end.output.begin(),
                                        end.output.begin() + static_cast<std::ptrdiff_t>(wanted.size()));
    EXPECT_EQ(got, wanted) << "rank " << rank;
    EXPECT_EQ(end.output[wanted.size()], -1) << "rank " << rank;
  }
  /// The elements [begin, end) of a rank's input, or the sum of all ranks' where `rank` is kSum.
  static constexpr int kSum = -1;
  static std::vector<std::int32_t> part(int rank, std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> elements;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      elements.push_back(rank == kSum ? value(0, i) + value(1, i) + value(2, i) : value(rank, i));
    return elements;
  }
  static std::vector<std::int32_t> wanted(int rank, const std::vector<std::int64_t>& elements,
                                          const std::vector<std::int64_t>& splits) {
    const std::int64_t own = elements[static_cast<std::size_t>(rank)];
    std::vector<std::int32_t> all;
    const auto add = [&all](const std::vector<std::int32_t>& more) { all.insert(all.end(), more.begin(), more.end()); };
    switch (GetParam()) {
    case CollectiveKind::allreduce:
      return part(kSum, 0, own);
    case CollectiveKind::reduce:
      return rank == kRoot ? part(kSum, 0, own) : all;
    case CollectiveKind::reduce_scatter: {
      const std::int64_t begin = own / kRanks * rank + std::min<std::int64_t>(rank, own % kRanks);
      return part(kSum, begin, begin + own / kRanks + (rank < own % kRanks ? 1 : 0));
    }
    case CollectiveKind::broadcast:
      return part(kRoot, 0, own);
    case CollectiveKind::alltoall:
      for (int from = 0; from < kRanks; ++from) add(part(from, rank * (own / kRanks), (rank + 1) * (own / kRanks)));
      return all;
    case CollectiveKind::gather:
      if (rank != kRoot) return all;
      [[fallthrough]];
    case CollectiveKind::allgather:
      for (int from = 0; from < kRanks; ++from) add(part(from, 0, elements[static_cast<std::size_t>(from)]));
      return all;
    default: {  // scatter
      const std::int64_t begin = std::accumulate(splits.begin(), splits.begin() + rank, std::int64_t{0});
      return part(kRoot, begin, begin + splits[static_cast<std::size_t>(rank)]);
    }
    }
  }

 private:
  core::Round call_ = 0;
  const std::size_t kColumn = ShortcutMemory::column_bytes(kCapacity);
  const std::unique_ptr<std::byte, Free> memory_{
      static_cast<std::byte*>(::operator new (kRanks* kColumn, std::align_val_t{4096}))};

 protected:
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<std::int64_t> splits_;  // the calls refer to them
};

/// In lines, at their limit, and in payloads.
TEST_P(SmallTest, EachKindBringsItsResult) {
  for (const std::int64_t size : {0, 3, 27, 28, 30, 33, 150}) {
    std::vector<std::int64_t> elements(kRanks, size);
    std::vector<std::int64_t> splits;
    if (GetParam() == CollectiveKind::alltoall) elements.assign(kRanks, size / kRanks * kRanks);
    if (GetParam() == CollectiveKind::gather || GetParam() == CollectiveKind::allgather) elements[2] = size / 2;
    if (GetParam() == CollectiveKind::scatter) {
      elements = {0, size / kRanks * kRanks, 0};
      splits.assign(kRanks, size / kRanks);
    }
    prepare(elements, splits);
    ASSERT_TRUE(lay_out()) << size << " elements";
    for (int rank = 0; rank < kRanks; ++rank) expect(rank, wanted(rank, elements, splits));
  }
}

TEST_P(SmallTest, WhatDoesNotFitGoesByTheLog) {
  const std::int64_t size = 153;  // 612 bytes
  prepare({size, size, size}, {51, 51, 51});
  EXPECT_FALSE(lay_out());
}

INSTANTIATE_TEST_SUITE_P(Kinds, SmallTest,
                         ::testing::Values(CollectiveKind::allreduce, CollectiveKind::reduce,
                                           CollectiveKind::reduce_scatter, CollectiveKind::broadcast,
                                           CollectiveKind::alltoall, CollectiveKind::allgather, CollectiveKind::gather,
                                           CollectiveKind::scatter),
                         [](const auto& info) { return std::string(core::to_string(info.param)); });

/// A scatter's other ranks do not know how much its root gives: they guess by their outputs. The root knows.
TEST(Small, AScatterThatIsLongOrUnevenGoesByTheLog) {
  const std::unique_ptr<std::byte, Free> memory(
      static_cast<std::byte*>(::operator new (2 * ShortcutMemory::column_bytes(kCapacity), std::align_val_t{4096})));
  const auto columns = base::Columns::in_a_row(memory.get(), ShortcutMemory::column_bytes(kCapacity), 2);
  CpuSmallCalls calls(ShortcutMemory(columns, kCapacity, 0), Routes(RouteTable(), 2), kernels::PeerCopy());
  SmallCall call;
  call.kind = CollectiveKind::scatter;
  call.root = 1;
  for (const std::int64_t elements : {75, 76}) {  // of 4 bytes, for each of two ranks
    call.output_elements = elements;
    EXPECT_EQ(calls.lay_out(static_cast<core::Round>(elements), call), elements == 75) << elements;
  }
  const std::vector<float> input(3);
  const std::vector<std::int64_t> splits = {2, 1};
  call.root = 0;
  call.tensor = {reinterpret_cast<const std::byte*>(input.data()), nullptr, 3};
  call.splits = splits;
  EXPECT_FALSE(calls.lay_out(100, call));
}

}  // namespace
}  // namespace kolo::data::cpu
