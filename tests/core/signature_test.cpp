// SPDX-License-Identifier: Apache-2.0
#include "core/signature.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace kolo::core {
namespace {

Signature allreduce_of(DType dtype, Shape shape) {
  Signature signature;
  signature.tensors.push_back({dtype, shape});
  return signature;
}

std::string describe_difference(const Signature& a, const Signature& b) {
  const auto difference = first_difference(a, b);
  if (!difference) return "";
  return describe(*difference) + " " + describe_value(a, *difference) + " against " + describe_value(b, *difference);
}

TEST(Signature, DescribesItself) {
  EXPECT_EQ(describe(allreduce_of(DType::float32, Shape{3, 4})), "allreduce of float32 [3, 4], op sum");
  Signature broadcast = allreduce_of(DType::int8, Shape{2});
  broadcast.kind = CollectiveKind::broadcast;
  broadcast.root = 3;
  EXPECT_EQ(describe(broadcast), "broadcast of int8 [2], root 3");
  Signature group = allreduce_of(DType::float32, Shape{3});
  group.tensors.push_back({DType::float64, Shape{1}});
  EXPECT_EQ(describe(group), "allreduce of 2 tensors, the first float32 [3], op sum");
  Signature barrier;
  barrier.kind = CollectiveKind::barrier;
  EXPECT_EQ(describe(barrier), "barrier");
  Signature exchange = allreduce_of(DType::float32, Shape{3});
  exchange.kind = CollectiveKind::alltoall;
  EXPECT_EQ(describe(exchange), "alltoall of float32 [3]");
  exchange.kind = CollectiveKind::alltoall_splits;
  EXPECT_EQ(describe(exchange), "alltoall with splits of float32 [3]");
  exchange.kind = CollectiveKind::reduce_scatter;
  EXPECT_EQ(describe(exchange), "reduce_scatter of float32 [3], op sum");
  exchange.kind = CollectiveKind::reduce;
  exchange.root = 2;
  EXPECT_EQ(describe(exchange), "reduce of float32 [3], op sum, root 2");
  Signature add;
  add.kind = CollectiveKind::add_process_set;
  add.ranks = {0, 2};
  EXPECT_EQ(describe(add), "add_process_set [0, 2]");
}

TEST(Signature, CountsItsBytesAndSaturates) {
  Signature signature = allreduce_of(DType::float16, Shape{3, 5});
  EXPECT_EQ(signature.bytes(), 30);
  signature.tensors.push_back({DType::float64, Shape{}});
  EXPECT_EQ(signature.bytes(), 38);
  for (int i = 0; i < 2; ++i) signature.tensors.push_back({DType::float64, Shape{std::int64_t{1} << 59}});
  EXPECT_EQ(signature.bytes(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(Signature{}.bytes(), 0);
}

TEST(Signature, NamesTheFirstDifference) {
  const Signature base = allreduce_of(DType::float32, Shape{3, 4});
  const auto differs = [&base](void (*change)(Signature&)) {
    Signature other = base;
    change(other);
    EXPECT_NE(base, other);
    return describe_difference(base, other);
  };
  EXPECT_EQ(describe_difference(base, base), "");
  EXPECT_EQ(differs([](Signature& s) { s.kind = CollectiveKind::broadcast; }),
            "the kind of collective allreduce against broadcast");
  EXPECT_EQ(differs([](Signature& s) { s.op = ReduceOp::average; }), "op sum against average");
  EXPECT_EQ(differs([](Signature& s) { s.root = 2; }), "root 0 against 2");
  EXPECT_EQ(differs([](Signature& s) { s.prescale = 0.1; }), "prescale 1 against 0.1");
  EXPECT_EQ(differs([](Signature& s) { s.postscale = 1.0 / 3; }), "postscale 1 against 0.33333333333333331");
  EXPECT_EQ(differs([](Signature& s) { s.wire = Wire::float16; }),
            "the type that is sent the tensor's own against float16");
  EXPECT_EQ(differs([](Signature& s) { s.device = DeviceKind::cuda; }), "device cpu against cuda");
  EXPECT_EQ(differs([](Signature& s) { s.tensors.push_back(s.tensors[0]); }), "the number of tensors 1 against 2");
  EXPECT_EQ(differs([](Signature& s) { s.tensors[0].dtype = DType::float64; }), "dtype float32 against float64");
  EXPECT_EQ(differs([](Signature& s) { s.tensors[0].shape = Shape{4, 3}; }), "shape [3, 4] against [4, 3]");
  EXPECT_EQ(differs([](Signature& s) { s.ranks = {1}; }), "ranks [] against [1]");
  EXPECT_EQ(differs([](Signature& s) { s.priority = -3; }), "priority 0 against -3");
  EXPECT_EQ(differs([](Signature& s) {
              s.tensors[0].shape = Shape{4, 3};
              s.op = ReduceOp::max;
            }),
            "op sum against max");
}

TEST(Signature, NumbersTheTensorOfAGroup) {
  Signature a = allreduce_of(DType::float32, Shape{1});
  a.tensors.push_back({DType::float32, Shape{2}});
  Signature b = a;
  b.tensors[1].shape = Shape{3};
  EXPECT_EQ(describe_difference(a, b), "shape of tensor 1 [2] against [3]");
}

TEST(Signature, NamesTheFirstMemberThatDiffers) {
  Signature a = allreduce_of(DType::float32, Shape{1});
  a.tensors.push_back({DType::float32, Shape{2}});
  a.members = 1;
  a.names = {"one", "two"};
  Signature b = a;
  b.names = {"one", "other"};
  EXPECT_EQ(a, b) << "the hash alone is compared";
  b.members = 2;
  EXPECT_EQ(describe_difference(a, b), "the name of tensor 1 \"two\" against \"other\"");
  b.tensors[1].shape = Shape{3};
  EXPECT_EQ(describe_difference(a, b), "the name of tensor 1 \"two\" against \"other\"") << "rather than the shape";
  Signature no_group = a;
  no_group.members = 0;
  no_group.names.clear();
  EXPECT_EQ(describe_difference(a, no_group), "the name of tensor 0 \"one\" against none (no grouped call)");
}

TEST(Signature, ComparesScalesByTheirBits) {
  Signature a = allreduce_of(DType::float32, Shape{1});
  a.prescale = std::nan("");
  EXPECT_EQ(a, Signature(a));
  Signature zero = a;
  Signature negative = a;
  zero.prescale = 0.0;
  negative.prescale = -0.0;
  EXPECT_EQ(describe_difference(zero, negative), "prescale 0 against -0");
}

TEST(Signature, SaysRanksShortly) {
  EXPECT_EQ(describe_ranks({}), "no rank");
  EXPECT_EQ(describe_ranks({3}), "rank 3");
  EXPECT_EQ(describe_ranks({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(describe_ranks({0, 2, 3, 4, 5, 9, 10}), "ranks 0, 2-5, 9 and 10");
}

}  // namespace
}  // namespace kolo::core
