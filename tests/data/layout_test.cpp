// SPDX-License-Identifier: Apache-2.0
#include "data/layout.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace {

using kolo::DType;
using kolo::ReduceOp;
using kolo::Shape;
using kolo::core::CollectiveKind;
using kolo::core::Signature;
using kolo::core::Wire;
using kolo::data::Layout;
using kolo::data::make_layout;

Signature reduction(DType dtype, std::int64_t elements, ReduceOp op = ReduceOp::sum) {
  Signature signature;
  signature.kind = CollectiveKind::allreduce;
  signature.op = op;
  signature.tensors.push_back({dtype, Shape{elements}});
  return signature;
}

Signature of_kind(CollectiveKind kind, std::int64_t elements, int root = 0) {
  Signature signature;
  signature.kind = kind;
  signature.root = root;
  if (kind != CollectiveKind::barrier) signature.tensors.push_back({DType::float32, Shape{elements}});
  return signature;
}

Layout layout_of(const std::vector<Signature>& signatures, std::int64_t set_size = 4) {
  std::vector<const Signature*> members;
  for (const Signature& signature : signatures) members.push_back(&signature);
  return make_layout(members, set_size);
}

/// (member, tensor, elements) of each piece.
using Places = std::vector<std::vector<std::int64_t>>;
Places places(const kolo::data::RunLayout& run) {
  Places result;
  for (const kolo::data::Placed& piece : run.pieces) result.push_back({piece.member, piece.tensor, piece.elements});
  return result;
}

TEST(Layout, NothingIsNoRun) { EXPECT_TRUE(layout_of({}).runs.empty()); }

TEST(Layout, EqualReductionsShareARunInTheirOrder) {
  const Layout layout =
      layout_of({reduction(DType::float32, 3), reduction(DType::float32, 0), reduction(DType::float32, 5)});
  ASSERT_EQ(layout.runs.size(), 1U);
  EXPECT_EQ(places(layout.runs[0]), (Places{{0, 0, 3}, {1, 0, 0}, {2, 0, 5}}));
  EXPECT_EQ(layout.runs[0].prototype.elements, 8);
  EXPECT_EQ(layout.runs[0].prototype.dtype, DType::float32);
  EXPECT_EQ(layout.runs[0].prototype.divisor, 1);
  EXPECT_TRUE(layout.runs[0].prototype.pieces.empty());
}

/// Requests that share one signature are laid out as those with equal ones.
TEST(Layout, OneObjectManyTimes) {
  const Signature one = reduction(DType::float32, 3);
  const Signature other = reduction(DType::int64, 2);
  const Layout layout = make_layout({&one, &one, &other, &other, &one, &one}, 4);
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(places(layout.runs[0]), (Places{{0, 0, 3}, {1, 0, 3}, {4, 0, 3}, {5, 0, 3}}));
  EXPECT_EQ(places(layout.runs[1]), (Places{{2, 0, 2}, {3, 0, 2}}));
  EXPECT_EQ(layout.runs[0].prototype.elements, 12);
  EXPECT_EQ(layout.runs[1].prototype.elements, 4);
  const Signature barrier = of_kind(CollectiveKind::barrier, 0);
  EXPECT_TRUE(make_layout({&barrier, &barrier}, 4).runs.empty());
}

/// A tensor joins the first run it can share, also when others lie between.
TEST(Layout, DtypesHaveRunsOfTheirOwn) {
  const Layout layout =
      layout_of({reduction(DType::float32, 1), reduction(DType::float64, 2), reduction(DType::float32, 4)});
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(places(layout.runs[0]), (Places{{0, 0, 1}, {2, 0, 4}}));
  EXPECT_EQ(places(layout.runs[1]), (Places{{1, 0, 2}}));
}

TEST(Layout, AnAverageIsASumAndADivisor) {
  const Layout layout = layout_of({reduction(DType::float32, 2, ReduceOp::average), reduction(DType::float32, 2)}, 7);
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(layout.runs[0].prototype.op, ReduceOp::sum);
  EXPECT_EQ(layout.runs[0].prototype.divisor, 7);
  EXPECT_EQ(layout.runs[1].prototype.divisor, 1);
  // Of one rank, a sum and an average are the same.
  EXPECT_EQ(layout_of({reduction(DType::float32, 2, ReduceOp::average), reduction(DType::float32, 2)}, 1).runs.size(),
            1U);
}

TEST(Layout, OpsAndScalesSeparate) {
  Signature before = reduction(DType::float32, 2);
  before.prescale = 0.5;
  Signature after = reduction(DType::float32, 2);
  after.postscale = 0.5;
  const Layout layout =
      layout_of({reduction(DType::float32, 2), before, after, reduction(DType::float32, 2, ReduceOp::max), before});
  ASSERT_EQ(layout.runs.size(), 4U);
  EXPECT_EQ(places(layout.runs[1]), (Places{{1, 0, 2}, {4, 0, 2}}));
  EXPECT_EQ(layout.runs[1].prototype.prescale, 0.5);
  EXPECT_EQ(layout.runs[2].prototype.postscale, 0.5);
}

TEST(Layout, WhatIsSentAsAnotherTypeGoesApart) {
  Signature narrow = reduction(DType::float32, 2);
  narrow.wire = Wire::bfloat16;
  narrow.tensors.push_back({DType::float16, Shape{3}});  // goes as it is
  const Layout layout = layout_of({reduction(DType::float32, 2), narrow, reduction(DType::float16, 5)});
  ASSERT_EQ(layout.runs.size(), 3U);
  EXPECT_EQ(layout.runs[0].prototype.wire, Wire::own);
  EXPECT_EQ(layout.runs[1].prototype.wire, Wire::bfloat16);
  EXPECT_EQ(places(layout.runs[2]), (Places{{1, 1, 3}, {2, 0, 5}}));
  EXPECT_EQ(layout.runs[2].prototype.wire, Wire::own);
}

TEST(Layout, MembersOfAGroupGoWhereTheyFit) {
  Signature group = reduction(DType::float32, 2);
  group.tensors.push_back({DType::int32, Shape{3, 5}});
  group.tensors.push_back({DType::float32, Shape{}});
  const Layout layout = layout_of({group, reduction(DType::int32, 1)});
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(places(layout.runs[0]), (Places{{0, 0, 2}, {0, 2, 1}}));
  EXPECT_EQ(places(layout.runs[1]), (Places{{0, 1, 15}, {1, 0, 1}}));
}

TEST(Layout, BroadcastsAndReducesShareByRoot) {
  for (const auto kind : {CollectiveKind::broadcast, CollectiveKind::reduce}) {
    const Layout layout = layout_of({of_kind(kind, 2, 1), of_kind(kind, 3, 2), of_kind(kind, 5, 1)});
    ASSERT_EQ(layout.runs.size(), 2U);
    EXPECT_EQ(layout.runs[0].prototype.root, 1);
    EXPECT_EQ(places(layout.runs[0]), (Places{{0, 0, 2}, {2, 0, 5}}));
  }
}

TEST(Layout, AllgathersStandAloneAndBarriersNeedNoRun) {
  const Layout layout = layout_of({of_kind(CollectiveKind::allgather, 2), of_kind(CollectiveKind::barrier, 0),
                                   of_kind(CollectiveKind::allgather, 2)});
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(places(layout.runs[0]), (Places{{0, 0, 0}}));
  EXPECT_EQ(places(layout.runs[1]), (Places{{2, 0, 0}}));
  EXPECT_TRUE(layout_of({of_kind(CollectiveKind::barrier, 0)}).runs.empty());
}

TEST(Layout, ExchangesAndScattersStandAloneAndKnowTheirRows) {
  Signature rows;
  rows.kind = CollectiveKind::reduce_scatter;
  rows.tensors.push_back({DType::float32, Shape{5, 3}});
  Signature splits;
  splits.kind = CollectiveKind::alltoall_splits;
  splits.tensors.push_back({DType::float32, Shape{2, 3}});
  const Layout layout = layout_of(
      {of_kind(CollectiveKind::alltoall, 6), rows, of_kind(CollectiveKind::alltoall, 6), splits, rows, splits});
  ASSERT_EQ(layout.runs.size(), 6U);
  EXPECT_EQ(layout.runs[0].prototype.elements, 6);
  EXPECT_EQ(layout.runs[1].prototype.elements, 15);
  EXPECT_EQ(layout.runs[1].prototype.rows, 5);
  EXPECT_EQ(places(layout.runs[2]), (Places{{2, 0, 6}}));
  EXPECT_EQ(layout.runs[3].prototype.elements, 0);
  EXPECT_EQ(layout.runs[3].prototype.row_elements, 6);
}

TEST(Layout, LongerThanThirtyTwoBits) {
  const std::int64_t long_one = std::int64_t{5} << 32;
  const Layout layout = layout_of({reduction(DType::int8, long_one), reduction(DType::int8, long_one)});
  EXPECT_EQ(layout.runs.at(0).prototype.elements, 2 * long_one);
}

}  // namespace
