// SPDX-License-Identifier: Apache-2.0
//
// Every collective, dtype and operation, in place and into another buffer, at odd sizes and alignments, in worlds of
// one node and of even and uneven virtual nodes, through slots so small that every wrap-around happens: every byte.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>

#include "tests/support/exact_values.hpp"
#include "tests/support/operation.hpp"
#include "tests/support/random.hpp"
#include "tests/support/sanitized.hpp"

namespace {

using kolo::DType;
using kolo::ReduceOp;
using kolo::testing::InFlight;
using kolo::testing::Kind;
using kolo::testing::Operation;

struct World {
  int ranks;
  int per_node;
};

/// Lengths around the edges of SIMD registers and of slots of 256 bytes.
constexpr std::int64_t kLengths[] = {0, 1, 3, 17, 64, 255, 1001};

bool reduces(Kind kind) {
  return kind == Kind::allreduce || kind == Kind::allreduce_into || kind == Kind::grouped ||
         kind == Kind::reduce_scatter || kind == Kind::reduce_scatter_into || kind == Kind::reduce ||
         kind == Kind::reduce_into;
}

/// As kolo::testing::Operation wants them; parts differ by rank.
std::vector<std::int64_t> lengths_of(Kind kind, std::int64_t length, int ranks) {
  std::vector<std::int64_t> parts;
  if (differs_by_rank(kind)) {
    for (int rank = 0; rank < ranks; ++rank) parts.push_back((length + 13 * rank) % (length + 1));
    return parts;
  }
  switch (kind) {
  case Kind::grouped:
    return {length, 5, length / 2};
  case Kind::alltoall:
  case Kind::alltoall_splits_into:
    for (int pair = 0; pair < ranks * ranks; ++pair) parts.push_back((length + 7 * pair) % (length / 2 + 1));
    return parts;
  default:
    return {length};
  }
}

/// All that a world of this size runs, one dtype after another.
std::vector<Operation> operations_of(DType dtype, int ranks) {
  std::vector<Operation> operations;
  auto cell = static_cast<std::size_t>(dtype) * 1000;
  for (int number = 0; number < kolo::testing::kKinds; ++number) {
    const auto kind = static_cast<Kind>(number);
    for (const ReduceOp op : kolo::testing::kReduceOps) {
      if (!kolo::testing::is_defined(dtype, op) || (op != ReduceOp::sum && !reduces(kind))) continue;
      for (const std::int64_t length : kLengths) {
        if (!kolo::testing::is_taken(cell++)) continue;
        Operation operation;
        operation.kind = kind;
        operation.name = std::to_string(operations.size());
        operation.dtype = dtype;
        operation.op = op;
        operation.root = static_cast<int>(length) % ranks;
        operation.scaled = kolo::is_floating_point(dtype) && op != ReduceOp::product && length % 2 == 1;
        operation.lengths = lengths_of(kind, length, ranks);
        operations.push_back(operation);
        if (!kolo::is_floating_point(dtype) || !reduces(kind)) continue;
        operation.name += ", narrow";
        operation.send_as = length % 4 < 2 ? DType::float16 : DType::bfloat16;
        operations.push_back(operation);
      }
    }
  }
  return operations;
}

class Matrix : public testing::TestWithParam<World> {};

TEST_P(Matrix, EveryByteOfEveryCollective) {
  const auto options = kolo::Options{}
                           .with_setting("KOLO_RANKS_PER_NODE", std::to_string(GetParam().per_node))
                           .with_setting("KOLO_SLOT_BYTES", "256")
                           .with_setting("KOLO_SLOTS", "2")
                           .with_setting("KOLO_TIMEOUT_S", "100");
  kolo::run_local(
      GetParam().ranks,
      [] {
        kolo::Context& context = kolo::current_context();
        kolo::testing::Random own = kolo::testing::random_of(1, static_cast<std::uint64_t>(context.rank()));
        for (int dtype = 0; dtype < kolo::kDTypeCount; ++dtype) {
          std::vector<std::unique_ptr<InFlight>> members;
          for (Operation& operation : operations_of(static_cast<DType>(dtype), context.size())) {
            members.push_back(std::make_unique<InFlight>(context, std::move(operation), own));
            members.back()->submit(dtype);
          }
          for (const auto& one : members) {
            one->handle().wait();
            EXPECT_NO_THROW(one->check()) << describe(one->operation()) << " on rank " << context.rank();
          }
        }
      },
      options);
}

std::vector<World> worlds() {
  std::vector<World> all{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {4, 2}, {3, 2}, {5, 2}};
  if (!kolo::testing::kSanitized) all.insert(all.end(), {{7, 0}, {7, 3}, {8, 0}, {8, 4}, {8, 3}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Worlds, Matrix, testing::ValuesIn(worlds()), [](const testing::TestParamInfo<World>& info) {
  return std::to_string(info.param.ranks) + "ranks" + std::to_string(info.param.per_node) + "pernode";
});

}  // namespace
