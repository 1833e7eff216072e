// SPDX-License-Identifier: Apache-2.0
#include "plan.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "tests/support/exact_values.hpp"

namespace kolo::soak {
namespace {

constexpr int kNames = 40;
constexpr int kPrepared = 8;
constexpr std::uint64_t kOptions = 1, kList = 2, kUsual = 3, kStep = 4, kPrepare = 5;  // streams of random numbers

template <class T>
T pick(Random& random, std::initializer_list<T> among) {
  return *(among.begin() + draw(random, static_cast<std::int64_t>(among.size())));
}

/// Mostly small; empty, and at the edges of what fits a slot, now and then; rarely large.
std::int64_t draw_length(Random& random, std::int64_t most) {
  const std::int64_t dice = draw(random, 1000);
  if (dice < 50) return 0;
  if (dice < 600) return 1 + draw(random, 100);
  if (dice < 750) return pick(random, {7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257});
  if (dice < 960) return std::min<std::int64_t>(most, 1 + draw(random, 4000));
  if (dice < 996) return std::min<std::int64_t>(most, 1 + draw(random, 60'000));
  return 1 + draw(random, most);
}

ReduceOp draw_op(Random& random, DType dtype) {
  const auto op = static_cast<ReduceOp>(draw(random, std::size(testing::kReduceOps)));
  return testing::is_defined(dtype, op) ? op : ReduceOp::sum;
}

Operation draw_operation(Random& random, std::string name, const Limits& limits) {
  Operation operation;
  operation.name = std::move(name);
  operation.kind = chance(random, 50) ? Kind::allreduce : static_cast<Kind>(draw(random, testing::kKinds));
  operation.dtype = chance(random, 40) ? DType::float32 : static_cast<DType>(draw(random, kDTypeCount));
  operation.op = draw_op(random, operation.dtype);
  operation.root = static_cast<int>(draw(random, limits.ranks));
  operation.scaled = is_floating_point(operation.dtype) && operation.op != ReduceOp::product && chance(random, 20);
  const bool converts = operation.kind == Kind::allreduce || operation.kind == Kind::allreduce_into ||
                        operation.kind == Kind::grouped || operation.kind == Kind::reduce ||
                        operation.kind == Kind::reduce_into || operation.kind == Kind::reduce_scatter ||
                        operation.kind == Kind::reduce_scatter_into;
  if (is_floating_point(operation.dtype) && converts && chance(random, 20)) {
    operation.send_as = chance(random, 50) ? DType::float16 : DType::bfloat16;
  }
  const std::int64_t ranks = limits.ranks;
  std::int64_t members = 1;
  std::int64_t most = limits.most_elements;
  if (operation.kind == Kind::grouped) members = 1 + draw(random, 6);
  if (differs_by_rank(operation.kind)) members = ranks;
  if (differs_by_pair(operation.kind)) members = ranks * ranks;
  if (differs_by_pair(operation.kind) || operation.kind == Kind::alltoall_into) most = 1 + most / ranks;
  for (std::int64_t i = 0; i < members; ++i) operation.lengths.push_back(draw_length(random, most));
  return operation;
}

std::string name_of(std::int64_t number) { return "tensor " + std::to_string(number); }

/// What this name usually means in this world.
Operation usual(std::uint64_t seed, std::uint64_t world, std::int64_t name, const Limits& limits) {
  Random random = random_of(seed, kUsual, world, static_cast<std::uint64_t>(name));
  return draw_operation(random, name_of(name), limits);
}

}  // namespace

Options options_of(std::uint64_t seed, std::uint64_t world, int ranks) {
  Random random = random_of(seed, kOptions, world);
  Options options;
  options.with_setting("KOLO_TIMEOUT_S", "300").with_setting("KOLO_STALL_WARNING_S", "100");
  const auto sometimes = [&](const char* name, std::initializer_list<const char*> values) {
    const char* value = pick(random, values);
    if (chance(random, 50)) options.with_setting(name, value);
  };
  sometimes("KOLO_SLOT_BYTES", {"256", "320", "1K", "4K", "64K", "1M"});
  sometimes("KOLO_SLOTS", {"2", "3", "8", "64"});
  sometimes("KOLO_STEP_BYTES", {"0", "500", "1M"});
  sometimes("KOLO_FUSION_THRESHOLD", {"0", "100", "10K", "1M", "1G"});
  sometimes("KOLO_OPEN_BATCHES", {"1", "2", "16"});
  sometimes("KOLO_CACHE_CAPACITY", {"8", "16", "100"});
  sometimes("KOLO_PLAN", {"0", "1"});
  sometimes("KOLO_MESSAGE_RING", {"4K", "16K"});
  sometimes("KOLO_LOG_RING", {"4K", "16K"});
  sometimes("KOLO_MAILBOX", {"1", "4", "100"});
  sometimes("KOLO_SPIN_US", {"0", "20"});
  sometimes("KOLO_TREE_FANOUT", {"1", "2"});
  sometimes("KOLO_ROUTES", {"*:none=small", "*:0-1=small;message:0-=peers", "*:0-100=small;message:none=peers",
                            "*:0-4K=small,0-=flat;message:1K-=peers"});
  options.with_setting("KOLO_RANKS_PER_NODE", std::to_string(chance(random, 50) ? 0 : 1 + draw(random, ranks)));
  return options;
}

std::vector<Operation> prepared_of(std::uint64_t seed, std::uint64_t world, const Limits& limits) {
  Random random = random_of(seed, kPrepare, world);
  std::vector<Operation> operations;
  for (int i = 0; i < kPrepared; ++i) {
    Operation operation = draw_operation(random, "prepared " + std::to_string(i), limits);
    operation.kind =
        pick(random, {Kind::allreduce, Kind::allreduce, Kind::grouped, Kind::broadcast, Kind::reduce_into,
                      Kind::allgather_into, Kind::gather_into, Kind::scatter_into, Kind::reduce_scatter_into});
    operation.form = testing::Form::prepared;
    operation.lengths.resize(static_cast<std::size_t>(operation.kind == Kind::grouped   ? 3
                                                      : differs_by_rank(operation.kind) ? limits.ranks
                                                                                        : 1),
                             100);
    operations.push_back(std::move(operation));
  }
  return operations;
}

Step step_of(std::uint64_t seed, std::uint64_t world, std::uint64_t number, const Limits& limits) {
  Random list = random_of(seed, kList, world);
  const std::int64_t model = 1 + draw(list, 24);
  Random random = random_of(seed, kStep, world, number);
  Step step;
  std::vector<std::int64_t> names(kNames);
  std::iota(names.begin(), names.end(), 0);
  std::int64_t count = model;
  if (chance(random, 40)) {
    std::shuffle(names.begin(), names.end(), random);
    count = draw(random, kNames / 2);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t name = names[static_cast<std::size_t>(i)];
    step.operations.push_back(chance(random, 95) ? usual(seed, world, name, limits)
                                                 : draw_operation(random, name_of(name), limits));
  }
  for (Operation& operation : prepared_of(seed, world, limits)) {
    if (chance(random, 40)) step.operations.push_back(std::move(operation));
  }
  for (Operation& operation : step.operations) operation.salt = draw(random, 1000);
  step.ends = chance(random, 80);
  step.unnamed = chance(random, 30) ? static_cast<int>(draw(random, 4)) : 0;
  step.new_arena = chance(random, 2);
  return step;
}

}  // namespace kolo::soak
