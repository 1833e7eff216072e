// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/cpu_backend.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <numeric>
#include <optional>

#include "backend_world.hpp"
#include "exact_data.hpp"
#include "tests/support/meeting.hpp"
#include "tests/support/sanitized.hpp"
#include "transport/shm/segment.hpp"

namespace kolo::data::cpu::test {
namespace {

/// A job over tensors of its own, what should come out of it, and the comparison.
struct Case {
  data::Job job;
  std::deque<Tensor> tensors;
  std::deque<std::vector<std::int64_t>> numbers;
  struct Expectation {
    Tensor* output;
    std::vector<std::byte> bytes;
    std::string what;
  };
  std::vector<Expectation> expected;

  Tensor& tensor(DType dtype, std::int64_t elements, std::size_t misalignment, std::byte* memory = nullptr) {
    return tensors.emplace_back(dtype, elements, misalignment, memory);
  }
  void check(int rank) {
    EXPECT_TRUE(job.status.ok()) << job.status.message();
    for (const data::Run& run : job.runs) EXPECT_TRUE(run.status.ok()) << run.status.message();
    for (Tensor& tensor : tensors) tensor.expect_borders_untouched();
    for (Expectation& expectation : expected)
      EXPECT_EQ(expectation.output->contents(), expectation.bytes) << expectation.what << " on rank " << rank;
  }
};

std::vector<ReduceOp> ops_of(DType dtype) {
  std::vector<ReduceOp> ops;
  for (const ReduceOp op : kReduceOps)
    if (is_defined(dtype, op)) ops.push_back(op);
  return ops;
}

/// `common` draws what all ranks must agree on, `own` what they need not.
struct Dice {
  std::mt19937 common;
  std::mt19937 own;
  explicit Dice(const Rank& rank, std::uint32_t seed)
      : common(seed), own(seed * 1000 + static_cast<std::uint32_t>(rank.rank())) {}
  std::int64_t length() { return static_cast<std::int64_t>(common() % 4 == 0 ? common() % 3 : common() % 170); }
  std::size_t misalignment() { return own() % 2 == 0 ? 0 : own() % 64; }
  bool in_place() { return own() % 2 == 0; }
  bool in_region() { return own() % 2 == 0; }
};

/// One tensor of a run: input, output (perhaps the same memory), and what is expected.
void add_piece(Case& test, data::Run& run, Rank& rank, Dice& dice, std::int64_t elements,
               const std::function<std::int64_t(std::int64_t)>& mine,
               const std::function<std::int64_t(std::int64_t)>& result) {
  const std::size_t misalignment = dice.misalignment();
  std::byte* memory = dice.in_region() ? rank.take(Tensor::whole_size(run.dtype, elements, misalignment)) : nullptr;
  Tensor& input = test.tensor(run.dtype, elements, misalignment, memory);
  store_repeating(run.dtype, input.data(), elements, mine);
  Tensor& output = dice.in_place() ? input : test.tensor(run.dtype, elements, dice.misalignment());
  Tensor wanted(run.dtype, elements, 0);
  store_repeating(run.dtype, wanted.data(), elements, result);
  test.expected.push_back({&output, wanted.contents(),
                           std::string(to_string(run.dtype)) + " " + std::string(to_string(run.op)) + " of " +
                               std::to_string(elements) + " in a world of " + std::to_string(rank.size())});
  run.pieces.push_back({input.data(), output.data(), elements});
  run.elements += elements;
}

/// One tensor of a rank that gives and gets nothing: what there is of an output is left alone.
void add_piece_without_result(Case& test, data::Run& run, Rank& rank, Dice& dice, std::int64_t elements,
                              const std::function<std::int64_t(std::int64_t)>& mine) {
  Tensor& input = test.tensor(run.dtype, elements, dice.misalignment());
  store_repeating(run.dtype, input.data(), elements, mine);
  const std::string what = "of a rank that is not the root of " + std::to_string(rank.size());
  test.expected.push_back({&input, input.contents(), "the input " + what});
  std::byte* output = dice.in_place() ? input.data() : nullptr;
  if (output == nullptr && dice.in_place()) {
    Tensor& apart = test.tensor(run.dtype, elements, dice.misalignment());
    test.expected.push_back({&apart, apart.contents(), "the output " + what});
    output = apart.data();
  }
  run.pieces.push_back({input.data(), output, elements});
  run.elements += elements;
}

/// An all-reduce, or with a root a reduce.
void add_reduction(Case& test, Rank& rank, Dice& dice, DType dtype, ReduceOp op, core::Wire wire = core::Wire::own,
                   std::optional<int> root = {}) {
  data::Run& run = test.job.runs.emplace_back();
  run.kind = root ? core::CollectiveKind::reduce : core::CollectiveKind::allreduce;
  run.root = root.value_or(0);
  run.dtype = dtype;
  run.wire = wire;
  run.op = op;
  const int ranks = rank.size();
  const bool scaled = is_float(dtype) && op != ReduceOp::product && dice.common() % 2 == 0;
  if (scaled) {
    run.prescale = 2;
    run.postscale = 1.5;
  }
  if (op == ReduceOp::average) run.divisor = ranks;
  const std::int64_t factor = scaled ? 3 : 1;
  const std::size_t pieces = dice.common() % 4;
  const auto mine = [&](std::int64_t i) { return value_of(dtype, op, i, rank.rank(), ranks); };
  const auto result = [&](std::int64_t i) { return factor * reduced_value(dtype, op, i, ranks); };
  for (std::size_t k = 0; k <= pieces; ++k) {
    if (root && *root != rank.rank()) {
      add_piece_without_result(test, run, rank, dice, dice.length(), mine);
    } else {
      add_piece(test, run, rank, dice, dice.length(), mine, result);
    }
  }
}

void add_broadcast(Case& test, Rank& rank, Dice& dice, DType dtype, int root) {
  data::Run& run = test.job.runs.emplace_back();
  run.kind = core::CollectiveKind::broadcast;
  run.dtype = dtype;
  run.root = root;
  for (int k = 0; k < 2; ++k) {
    add_piece(
        test, run, rank, dice, dice.length(),
        [&](std::int64_t i) { return value_of(dtype, ReduceOp::sum, i, rank.rank(), rank.size()); },
        [&](std::int64_t i) { return value_of(dtype, ReduceOp::sum, i, root, rank.size()); });
  }
}

/// To all, or to a root.
void add_gather(Case& test, const Rank& rank, Dice& dice, DType dtype, std::optional<int> root = {}) {
  data::Run& run = test.job.runs.emplace_back();
  run.kind = root ? core::CollectiveKind::gather : core::CollectiveKind::allgather;
  run.root = root.value_or(0);
  run.dtype = dtype;
  const auto width = static_cast<std::int64_t>(size_of(dtype));
  std::vector<std::int64_t> bytes, lengths;
  std::int64_t total = 0;
  for (int r = 0; r < rank.size(); ++r) {
    lengths.push_back(dice.length());
    bytes.push_back(lengths.back() * width);
    total += lengths.back();
  }
  Tensor wanted(dtype, total, 0);
  std::int64_t at = 0;
  for (int r = 0; r < rank.size(); ++r) {
    const std::int64_t length = lengths[static_cast<std::size_t>(r)];
    store_repeating(dtype, wanted.element(at), length,
                    [&](std::int64_t i) { return value_of(dtype, ReduceOp::sum, i, r, rank.size()); });
    at += length;
  }
  Tensor& output = test.tensor(dtype, total, dice.misalignment());
  const bool gets = !root || *root == rank.rank();
  test.expected.push_back({&output, gets ? wanted.contents() : output.contents(),
                           std::string(core::to_string(run.kind)) + " of " + std::string(to_string(dtype))});
  run.allocate = [&output, bytes, gets](const std::vector<std::int64_t>& known) {
    EXPECT_EQ(known, bytes);
    return gets ? output.data() : nullptr;
  };
  const std::int64_t mine = lengths[static_cast<std::size_t>(rank.rank())];
  Tensor& input = test.tensor(dtype, mine, dice.misalignment());
  store_repeating(dtype, input.data(), mine,
                  [&](std::int64_t i) { return value_of(dtype, ReduceOp::sum, i, rank.rank(), rank.size()); });
  run.elements = mine;
  run.pieces.push_back({input.data(), nullptr, mine});
}

/// Without an input on ranks that are not the root.
void add_scatter(Case& test, const Rank& rank, Dice& dice, DType dtype, int root) {
  data::Run& run = test.job.runs.emplace_back();
  run.kind = core::CollectiveKind::scatter;
  run.root = root;
  run.dtype = dtype;
  run.row_elements = 3;
  const bool is_root = rank.rank() == root;
  std::vector<std::int64_t> rows;
  for (int to = 0; to < rank.size(); ++to) rows.push_back(dice.length() / 3);
  const auto before = std::accumulate(rows.begin(), rows.begin() + rank.rank(), std::int64_t{0});
  const std::int64_t mine = rows[static_cast<std::size_t>(rank.rank())];
  run.elements = is_root ? std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) * 3 : 0;
  const auto given = [=, size = rank.size()](std::int64_t i) { return value_of(dtype, ReduceOp::sum, i, root, size); };
  Tensor& input = test.tensor(dtype, run.elements, dice.misalignment());
  store_repeating(dtype, input.data(), run.elements, given);
  Tensor& output = test.tensor(dtype, mine * 3, dice.misalignment());
  Tensor wanted(dtype, mine * 3, 0);
  store_repeating(dtype, wanted.data(), mine * 3, [&](std::int64_t i) { return given(before * 3 + i); });
  test.expected.push_back({&output, wanted.contents(), "scatter of " + std::string(to_string(dtype))});
  std::vector<std::int64_t> received(rows.size(), 0);
  received[static_cast<std::size_t>(root)] = mine;
  run.allocate = [&output, received](const std::vector<std::int64_t>& known) {
    EXPECT_EQ(known, received);
    return output.data();
  };
  if (!is_root) rows.assign(rows.size(), 0);
  run.splits = test.numbers.emplace_back(rows);
  run.pieces.push_back({is_root ? input.data() : nullptr, output.data(), run.elements});
}

/// What `from` sends to `to` at place i of `count`.
std::int64_t sent_value(DType dtype, std::int64_t i, int from, int to) {
  return value_of(dtype, ReduceOp::sum, i * 3 + to, from, 1);
}

/// All-to-all of `rows[from][to]` rows of `row_elements` elements; `even`: the same number everywhere.
void add_alltoall(Case& test, const Rank& rank, Dice& dice, DType dtype, bool even) {
  data::Run& run = test.job.runs.emplace_back();
  run.kind = even ? core::CollectiveKind::alltoall : core::CollectiveKind::alltoall_splits;
  run.dtype = dtype;
  run.row_elements = 1 + static_cast<std::int64_t>(dice.common() % 3);
  const auto size = static_cast<std::size_t>(rank.size());
  const std::int64_t same = dice.length();
  std::vector<std::vector<std::int64_t>> rows(size, std::vector<std::int64_t>(size, same));
  if (!even)
    for (auto& list : rows)
      for (std::int64_t& count : list) count = dice.length();
  const auto me = static_cast<std::size_t>(rank.rank());
  auto& splits = test.numbers.emplace_back(rows[me]);
  auto& received = test.numbers.emplace_back();
  for (std::size_t from = 0; from < size; ++from) received.push_back(rows[from][me]);
  const auto total = [&](const std::vector<std::int64_t>& list) {
    return std::accumulate(list.begin(), list.end(), std::int64_t{0}) * run.row_elements;
  };
  Tensor& input = test.tensor(dtype, total(splits), dice.misalignment());
  Tensor& output = test.tensor(dtype, total(received), dice.misalignment());
  Tensor wanted(dtype, total(received), 0);
  std::int64_t at = 0;
  for (int to = 0; to < rank.size(); ++to) {
    const std::int64_t count = splits[static_cast<std::size_t>(to)] * run.row_elements;
    store_repeating(dtype, input.element(at), count,
                    [&](std::int64_t i) { return sent_value(dtype, i, rank.rank(), to); });
    at += count;
  }
  at = 0;
  for (int from = 0; from < rank.size(); ++from) {
    const std::int64_t count = received[static_cast<std::size_t>(from)] * run.row_elements;
    store_repeating(dtype, wanted.element(at), count,
                    [&](std::int64_t i) { return sent_value(dtype, i, from, rank.rank()); });
    at += count;
  }
  test.expected.push_back({&output, wanted.contents(),
                           (even ? "alltoall of " : "alltoall with splits of ") + std::string(to_string(dtype))});
  run.elements = total(splits);
  run.pieces.push_back({input.data(), even ? output.data() : nullptr, run.elements});
  if (even) return;
  run.splits = splits;
  run.allocate = [&output, &received](const std::vector<std::int64_t>& known) {
    EXPECT_EQ(known, received);
    return output.data();
  };
}

void add_reduce_scatter(Case& test, const Rank& rank, Dice& dice, DType dtype, ReduceOp op,
                        core::Wire wire = core::Wire::own) {
  data::Run& run = test.job.runs.emplace_back();
  run.kind = core::CollectiveKind::reduce_scatter;
  run.dtype = dtype;
  run.wire = wire;
  run.op = op;
  const int ranks = rank.size();
  const bool scaled = is_float(dtype) && op != ReduceOp::product && dice.common() % 2 == 0;
  if (scaled) {
    run.prescale = 2;
    run.postscale = 1.5;
  }
  if (op == ReduceOp::average) run.divisor = ranks;
  const std::int64_t factor = scaled ? 3 : 1;
  const std::int64_t row = 1 + static_cast<std::int64_t>(dice.common() % 3);
  run.rows = dice.length();
  run.elements = run.rows * row;
  const data::RowsOf mine(run.rows, rank.rank(), ranks);
  Tensor& input = test.tensor(dtype, run.elements, dice.misalignment());
  store_repeating(dtype, input.data(), run.elements,
                  [&](std::int64_t i) { return value_of(dtype, op, i, rank.rank(), ranks); });
  Tensor wanted(dtype, mine.count * row, 0);
  store_repeating(dtype, wanted.data(), mine.count * row,
                  [&](std::int64_t i) { return factor * reduced_value(dtype, op, mine.begin * row + i, ranks); });
  const std::string what = "reduce_scatter of " + std::string(to_string(dtype)) + " " + std::string(to_string(op));
  if (dice.in_place()) {  // the own rows of the input; the rest of it is left alone
    std::vector<std::byte> whole = input.contents();
    const std::vector<std::byte> part = wanted.contents();
    std::copy(part.begin(), part.end(), whole.begin() + mine.begin * row * static_cast<std::int64_t>(size_of(dtype)));
    test.expected.push_back({&input, whole, what + " in place"});
    run.pieces.push_back({input.data(), input.element(mine.begin * row), run.elements});
  } else {
    Tensor& output = test.tensor(dtype, mine.count * row, dice.misalignment());
    test.expected.push_back({&output, wanted.contents(), what});
    run.pieces.push_back({input.data(), output.data(), run.elements});
  }
}

/// Every kind, type and operation, as jobs of one or more runs that are all in flight at once.
void everything_once(Rank& rank, std::uint32_t seed) {
  Dice dice(rank, seed);
  std::deque<Case> cases;
  const auto next_case = [&]() -> Case& {
    return !cases.empty() && dice.common() % 3 == 0 ? cases.back() : cases.emplace_back();
  };
  const auto any_root = [&] { return static_cast<int>(dice.common() % static_cast<unsigned>(rank.size())); };
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    for (const ReduceOp op : ops_of(dtype)) {
      add_reduction(next_case(), rank, dice, dtype, op);
      add_reduction(next_case(), rank, dice, dtype, op, core::Wire::own, any_root());
      add_reduce_scatter(next_case(), rank, dice, dtype, op);
      if (dtype != DType::float32 && dtype != DType::float64) continue;
      for (const core::Wire wire : {core::Wire::float16, core::Wire::bfloat16}) {
        add_reduction(next_case(), rank, dice, dtype, op, wire);
        add_reduction(next_case(), rank, dice, dtype, op, wire, any_root());
        add_reduce_scatter(next_case(), rank, dice, dtype, op, wire);
      }
    }
    add_alltoall(next_case(), rank, dice, dtype, true);
    add_alltoall(next_case(), rank, dice, dtype, false);
    add_broadcast(next_case(), rank, dice, dtype, any_root());
    if (type % 3 == 0) add_gather(next_case(), rank, dice, dtype);
    add_gather(next_case(), rank, dice, dtype, any_root());
    add_scatter(next_case(), rank, dice, dtype, any_root());
  }
  std::vector<data::Job*> jobs;
  jobs.reserve(cases.size());
  for (Case& test : cases) jobs.push_back(&test.job);
  run(rank.backend, jobs);
  for (Case& test : cases) test.check(rank.rank());
}

class CpuBackendWorlds : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(CpuBackendWorlds, EveryKindTypeAndOperationInTinySlots) {
  WorldShape shape;
  std::tie(shape.ranks, shape.ranks_per_node) = GetParam();
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    if (kolo::testing::kSanitized && seed != 1 + static_cast<std::uint32_t>(shape.ranks) % 3) continue;
    shape.seed = seed;
    shape.slots = seed;  // one slot only: nothing overlaps
    shape.flat_bytes = seed == 2 ? 1 << 20 : 128;
    shape.step_bytes = std::vector<std::size_t>{0, 100, 1 << 20}[seed - 1];
    run_world(shape, [&](Rank& rank) { everything_once(rank, seed); });
  }
}

TEST_P(CpuBackendWorlds, EveryKindTypeAndOperationInSlotsOfUsualSize) {
  WorldShape shape;
  std::tie(shape.ranks, shape.ranks_per_node) = GetParam();
  shape.slot_bytes = 64 << 10;
  shape.flat_bytes = 1 << 10;
  run_world(shape, [&](Rank& rank) { everything_once(rank, 4); });
}

INSTANTIATE_TEST_SUITE_P(OneNode, CpuBackendWorlds,
                         ::testing::Values(std::pair(1, 0), std::pair(2, 0), std::pair(3, 0), std::pair(4, 0),
                                           std::pair(7, 0), std::pair(8, 0)));
INSTANTIATE_TEST_SUITE_P(EvenNodes, CpuBackendWorlds,
                         ::testing::Values(std::pair(2, 1), std::pair(4, 2), std::pair(3, 1), std::pair(8, 2)));
INSTANTIATE_TEST_SUITE_P(UnevenNodes, CpuBackendWorlds,
                         ::testing::Values(std::pair(3, 2), std::pair(4, 3), std::pair(7, 3), std::pair(8, 3)));

// ---------------------------------------------------------------- bits

/// Sums that rounding makes depend on the order, so that equal bits mean the same order.
std::vector<float> rough(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = values(random) * static_cast<float>(1 << random() % 20);
  return numbers;
}

data::Run sum_of(std::vector<float>& data, const std::vector<std::size_t>& cuts) {
  data::Run run;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::size_t end = i < cuts.size() ? cuts[i] : data.size();
    auto* bytes = reinterpret_cast<std::byte*>(data.data() + begin);
    run.pieces.push_back({bytes, bytes, static_cast<std::int64_t>(end - begin)});
    begin = end;
  }
  run.elements = static_cast<std::int64_t>(data.size());
  return run;
}

/// The ranks' `rough` numbers, as one tensor and cut into several.
void expect_sum_however_cut(const WorldShape& shape, const std::vector<float>& wanted) {
  run_world(shape, [&](Rank& rank) {
    for (const std::vector<std::size_t>& cuts : {std::vector<std::size_t>{}, {1, 2, 500}, {333, 333, 999}}) {
      std::vector<float> data = rough(wanted.size(), static_cast<std::uint32_t>(rank.rank()));
      data::Job job;
      job.runs.push_back(sum_of(data, cuts));
      run(rank.backend, {&job});
      EXPECT_EQ(data, wanted);
    }
  });
}

TEST(CpuBackend, InsideANodeElementsAreAddedInRankOrderWhateverTheBatching) {
  constexpr std::size_t kCount = 1000;
  WorldShape shape;
  shape.ranks = 4;
  std::vector<float> wanted = rough(kCount, 0);
  for (std::uint32_t r = 1; r < 4; ++r) {
    const std::vector<float> theirs = rough(kCount, r);
    for (std::size_t i = 0; i < kCount; ++i) wanted[i] += theirs[i];
  }
  for (const std::size_t flat_bytes : {0, 64, 100000}) {
    for (const std::size_t slot_bytes : {256, 4096}) {
      shape.flat_bytes = flat_bytes;
      shape.slot_bytes = slot_bytes;
      expect_sum_however_cut(shape, wanted);
    }
  }
}

TEST(CpuBackend, BetweenNodesElementsAreAddedInTheOrderOfTheNodesWhateverTheBatching) {
  constexpr std::size_t kCount = 1000;
  for (const auto& [ranks, ranks_per_node] : {std::pair(4, 2), std::pair(5, 2), std::pair(7, 2), std::pair(4, 1)}) {
    WorldShape shape;
    shape.ranks = ranks;
    shape.ranks_per_node = ranks_per_node;
    std::vector<float> wanted(kCount);
    for (int begin = 0; begin < ranks; begin += ranks_per_node) {
      std::vector<float> node = rough(kCount, static_cast<std::uint32_t>(begin));
      for (int r = begin + 1; r < std::min(begin + ranks_per_node, ranks); ++r) {
        const std::vector<float> theirs = rough(kCount, static_cast<std::uint32_t>(r));
        for (std::size_t i = 0; i < kCount; ++i) node[i] += theirs[i];
      }
      for (std::size_t i = 0; i < kCount; ++i) wanted[i] = begin == 0 ? node[i] : wanted[i] + node[i];
    }
    for (const std::size_t step_bytes : {0, 100, 1000000}) {
      for (const std::size_t slot_bytes : {256, 4096}) {
        shape.step_bytes = step_bytes;
        shape.slot_bytes = slot_bytes;
        expect_sum_however_cut(shape, wanted);
      }
    }
  }
}

/// On all routes, as all ranks take them: in slots of every size, and from an input apart.
TEST(CpuBackend, ARootGetsTheBitsOfAnAllreduce) {
  constexpr std::size_t kCount = 3000;
  for (const auto& [ranks, ranks_per_node] :
       {std::pair(2, 0), std::pair(3, 0), std::pair(5, 0), std::pair(4, 2), std::pair(5, 2), std::pair(3, 1)}) {
    for (const std::size_t slot_bytes : {256, 4096}) {
      for (const std::size_t step_bytes : {0, 1000000}) {
        WorldShape shape;
        shape.ranks = ranks;
        shape.ranks_per_node = ranks_per_node;
        shape.slot_bytes = slot_bytes;
        shape.step_bytes = step_bytes;
        shape.flat_bytes = step_bytes;  // on one node, where steps are none
        run_world(shape, [](Rank& rank) {
          for (const core::Wire wire : {core::Wire::own, core::Wire::bfloat16}) {
            for (int root = 0; root < rank.size(); ++root) {
              const std::vector<float> mine = rough(kCount, static_cast<std::uint32_t>(rank.rank()));
              std::vector<float> all = mine, given = mine, out(kCount, -1);
              data::Job job;
              job.runs.push_back(sum_of(all, {}));
              job.runs.push_back(sum_of(given, {7, 1500}));
              for (data::Run& run : job.runs) run.wire = wire;
              job.runs.back().kind = core::CollectiveKind::reduce;
              job.runs.back().root = root;
              std::byte* to = reinterpret_cast<std::byte*>(out.data());
              for (data::Piece& piece : job.runs.back().pieces) {
                piece.output = to;
                to += piece.elements * std::int64_t{sizeof(float)};
              }
              run(rank.backend, {&job});
              EXPECT_EQ(out, rank.rank() == root ? all : std::vector<float>(kCount, -1));
              EXPECT_EQ(given, mine);
            }
          }
        });
      }
    }
  }
}

TEST(CpuBackend, PartialSumsOf16BitFloatsAreNotRoundedBetweenNodes) {
  WorldShape shape;
  shape.ranks = 4;
  shape.ranks_per_node = 2;
  run_world(shape, [&](Rank& rank) {
    // 256 + 1 + 1 + 1 in bfloat16: each step alone would round to 256; in float32 it is 259, rounded once to 260.
    std::vector<BFloat16> data(100, base::to_bfloat16(rank.rank() == 0 ? 256.0F : 1.0F));
    data::Job job;
    data::Run& run_of = job.runs.emplace_back();
    run_of.dtype = DType::bfloat16;
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    run_of.pieces.push_back({bytes, bytes, 100});
    run_of.elements = 100;
    run(rank.backend, {&job});
    for (const BFloat16 sum : data) EXPECT_EQ(base::to_float(sum), 260.0F);
  });
}

// ---------------------------------------------------------------- edges

TEST(CpuBackend, AJobOfNothingFinishesInItsTurn) {
  WorldShape shape;
  run_world(shape, [&](Rank& rank) {
    std::vector<float> data(500, 1.0F);
    data::Job first, empty, nothing;
    first.runs.push_back(sum_of(data, {}));
    nothing.runs.emplace_back();
    run(rank.backend, {&first, &empty, &nothing});
    EXPECT_EQ(data, std::vector<float>(500, 2.0F));
  });
}

TEST(CpuBackend, AJobMemoryCanBeUsedAgainAtOnce) {
  WorldShape shape;
  shape.ranks = 3;
  run_world(shape, [&](Rank& rank) {
    data::Job job;
    std::vector<float> data(100);
    for (int round = 0; round < 300; ++round) {
      std::iota(data.begin(), data.end(), static_cast<float>(round + rank.rank()));
      job.runs.assign(1, sum_of(data, {50}));
      run(rank.backend, {&job});
      for (std::size_t i = 0; i < data.size(); ++i)
        ASSERT_EQ(data[i], static_cast<float>(3 * (round + static_cast<int>(i)) + 3));
      std::fill(data.begin(), data.end(), -1.0F);  // a peer that still read it would notice
    }
  });
}

TEST(CpuBackend, AGatherWithoutMemoryFailsThereAndNowhereElse) {
  for (const int ranks_per_node : {0, 2}) {
    WorldShape shape;
    shape.ranks = 3;
    shape.ranks_per_node = ranks_per_node;
    run_world(shape, [&](Rank& rank) {
      data::Job gather, after;
      data::Run& run_of = gather.runs.emplace_back();
      run_of.kind = core::CollectiveKind::allgather;
      run_of.dtype = DType::int32;
      std::vector<std::int32_t> mine(200, rank.rank()), all(600, -1), sum{1};
      run_of.pieces.push_back({reinterpret_cast<std::byte*>(mine.data()), nullptr, 200});
      run_of.elements = 200;
      run_of.allocate = [&](const std::vector<std::int64_t>&) -> std::byte* {
        if (rank.rank() == 1) throw std::bad_alloc();
        return reinterpret_cast<std::byte*>(all.data());
      };
      data::Run& next = after.runs.emplace_back();
      next.dtype = DType::int32;
      next.pieces.push_back({reinterpret_cast<std::byte*>(sum.data()), reinterpret_cast<std::byte*>(sum.data()), 1});
      next.elements = 1;
      run(rank.backend, {&gather, &after});
      EXPECT_EQ(sum[0], 3);
      if (rank.rank() == 1) {
        EXPECT_EQ(run_of.status.code(), ErrorCode::out_of_memory);
        EXPECT_EQ(run_of.status.message(), "no memory for the result of allgather, 2400 bytes: std::bad_alloc");
        EXPECT_EQ(all, std::vector<std::int32_t>(600, -1));
      } else {
        EXPECT_TRUE(run_of.status.ok());
        for (std::size_t i = 0; i < 600; ++i) ASSERT_EQ(all[i], static_cast<std::int32_t>(i / 200));
      }
    });
  }
}

// ---------------------------------------------------------------- neighbours whose rows differ by rank

/// One more run of such a kind, which is the `kind`th of four.
void add_uneven(Case& test, Rank& rank, Dice& dice, std::size_t kind) {
  const auto dtype = static_cast<DType>(dice.common() % static_cast<unsigned>(kDTypeCount));
  const auto root = static_cast<int>(dice.common() % static_cast<unsigned>(rank.size()));
  if (kind == 0) add_gather(test, rank, dice, dtype);
  if (kind == 1) add_gather(test, rank, dice, dtype, root);
  if (kind == 2) add_scatter(test, rank, dice, dtype, root);
  if (kind == 3) add_alltoall(test, rank, dice, dtype, false);
}

/// Of each kind a job of so many runs; their lengths may take several slots. On rank 1 some have no room.
TEST_P(CpuBackendWorlds, NeighboursShareTheirLengthsAndHaveOutcomesAndEndsOfTheirOwn) {
  WorldShape shape;
  std::tie(shape.ranks, shape.ranks_per_node) = GetParam();
  for (const std::size_t runs : {2, 9, 70}) {
    if (kolo::testing::kSanitized && runs == 70) continue;
    run_world(shape, [&](Rank& rank) {
      Dice dice(rank, static_cast<std::uint32_t>(runs));
      std::deque<Case> cases;
      std::vector<std::vector<std::size_t>> over(4);
      std::vector<data::Job*> jobs;
      const auto fails = [&](std::size_t run) { return rank.rank() == 1 && run % 4 == 1; };
      for (std::size_t kind = 0; kind < 4; ++kind) {
        Case& test = cases.emplace_back();
        for (std::size_t i = 0; i < runs; ++i) add_uneven(test, rank, dice, kind);
        for (std::size_t i = 0; i < runs; ++i) {
          if (!fails(i)) continue;
          test.expected[i].bytes = test.expected[i].output->contents();
          test.job.runs[i].allocate = [](const std::vector<std::int64_t>&) -> std::byte* { throw std::bad_alloc(); };
        }
        test.job.run_over = [&over, kind](data::Job&, std::size_t run) { over[kind].push_back(run); };
        jobs.push_back(&test.job);
      }
      run(rank.backend, jobs);
      for (std::size_t kind = 0; kind < 4; ++kind) {
        for (std::size_t i = 0; i < runs; ++i) {
          Status& status = cases[kind].job.runs[i].status;
          const bool asked = kind != 1 || cases[kind].job.runs[i].root == rank.rank();
          EXPECT_EQ(status.code(), fails(i) && asked ? ErrorCode::out_of_memory : ErrorCode::ok) << status.message();
          status = Status();
        }
        cases[kind].check(rank.rank());
        std::vector<std::size_t> in_order(over[kind].size());
        std::iota(in_order.begin(), in_order.end(), std::size_t{0});
        EXPECT_EQ(over[kind], in_order);
      }
    });
  }
}

/// A small run that others follow does not wait for them.
TEST(CpuBackend, ARunWhoseRowsDifferIsOverBeforeThoseBehindIt) {
  for (const int ranks_per_node : {0, 1, 2}) {
    for (const auto kind : {core::CollectiveKind::allgather, core::CollectiveKind::gather}) {
      WorldShape shape;
      shape.ranks = 3;
      shape.ranks_per_node = ranks_per_node;
      run_world(shape, [&](Rank& rank) {
        const std::vector<std::int32_t> mine(3, rank.rank()), many(3000, rank.rank());
        std::vector<std::int32_t> small(9, -1), large(9000, -1);
        const bool gets = kind == core::CollectiveKind::allgather || rank.rank() == 2;
        data::Job job;
        const auto add = [&](const std::vector<std::int32_t>& in, std::vector<std::int32_t>& out) {
          data::Run& run = job.runs.emplace_back();
          run.kind = kind;
          run.dtype = DType::int32;
          run.root = 2;
          run.elements = static_cast<std::int64_t>(in.size());
          run.pieces.push_back({reinterpret_cast<const std::byte*>(in.data()), nullptr, run.elements});
          run.allocate = [&](const std::vector<std::int64_t>&) { return reinterpret_cast<std::byte*>(out.data()); };
        };
        // Between nodes neighbours that are shorter than all slots share broadcasts: this one is not.
        const bool shares = kind == core::CollectiveKind::allgather && ranks_per_node > 0;
        add(shares ? many : mine, shares ? large : small);
        std::vector<std::int32_t> next(9000, -1);
        add(many, next);
        int ended = 0;
        job.run_over = [&](data::Job&, std::size_t run) {
          EXPECT_EQ(run, static_cast<std::size_t>(ended));
          if (ended++ > 0 || !gets) return;
          const std::vector<std::int32_t>& done = shares ? large : small;
          EXPECT_EQ(std::count(done.begin(), done.end(), -1), 0);
          EXPECT_EQ(next.back(), -1) << "what is behind it has long not come";
        };
        run(rank.backend, {&job});
        EXPECT_GE(ended, 1);
        for (std::size_t i = 0; gets && i < next.size(); ++i) ASSERT_EQ(next[i], static_cast<int>(i / 3000));
      });
    }
  }
}

TEST(CpuBackend, ASetRunsAmongItsMembersOnly) {
  WorldShape shape;
  shape.ranks = 5;
  shape.ranks_per_node = 2;  // nodes {0,1} {2,3} {4}; the set has {1} {2,3} of them
  run_world(shape, [&](Rank& rank) {
    const std::vector<int> members{1, 2, 3};
    test_support::meet(rank.bootstrap);  // the set's slots lie where the world's do: those have been made
    if (rank.rank() == 0 || rank.rank() == 4) {
      test_support::meet(rank.bootstrap);
      return;
    }
    const core::Topology topology = core::topology_of(rank.topology, members);
    EXPECT_EQ(topology.size, 3);
    EXPECT_EQ(topology.node_count(), 2);
    const int locals = topology.local_size();
    const std::size_t bytes = shm::SlotRing::column_bytes(shape.slot_bytes, shape.slots);
    auto intra = std::make_shared<shm::SlotRing>(base::Columns::in_a_row(rank.node->memory(), bytes, locals),
                                                 topology.local_rank, shape.slot_bytes, shape.slots);
    CpuBackendOptions options;
    options.members = members;
    options.first_tag = 100;
    CpuBackend backend(topology, intra, rank.inter, options);
    test_support::meet(rank.bootstrap);  // all rings have been made
    std::vector<float> data(300, static_cast<float>(rank.rank())), sent(300, static_cast<float>(rank.rank()));
    data::Job job;
    job.runs.push_back(sum_of(data, {}));
    job.runs.push_back(sum_of(sent, {}));
    job.runs.back().kind = core::CollectiveKind::broadcast;
    job.runs.back().root = 2;
    run(backend, {&job});
    EXPECT_EQ(data, std::vector<float>(300, 6.0F));
    EXPECT_EQ(sent, std::vector<float>(300, 3.0F));
  });
}

/// Drives a job until it stands still for want of these ranks.
void drive_until_awaiting(data::Backend& backend, const std::vector<int>& ranks) {
  const test::Watchdog watchdog;
  std::vector<data::Job*> finished;
  while (backend.awaited() != ranks) {
    EXPECT_NE(backend.progress(finished), data::Progress::idle);
    watchdog.check();
  }
}

TEST(CpuBackend, SaysWhomItWaitsFor) {
  // A chunk that is reduced where it is taken, chunks that fill all slots, and a root that has not come.
  for (const int elements : {30, 5000, -5000}) {
    for (const int ranks_per_node : {0, 2}) {
      WorldShape shape;
      shape.ranks = 4;
      shape.ranks_per_node = ranks_per_node;
      run_world(shape, [&](Rank& rank) {
        std::vector<float> data(static_cast<std::size_t>(std::abs(elements)), 1.0F);
        data::Job job;
        job.runs.push_back(sum_of(data, {}));
        if (elements < 0) {
          job.runs.front().kind = core::CollectiveKind::broadcast;
          job.runs.front().root = 3;
        }
        EXPECT_EQ(rank.backend.awaited(), std::vector<int>());
        rank.backend.start(job);
        EXPECT_EQ(rank.backend.awaited(), std::vector<int>()) << "nothing has been done yet";
        if (rank.rank() != 3) {
          // Between nodes rank 0 waits for its lane's rank of the other node, which waits for rank 3.
          const bool through_two = rank.rank() == 0 && ranks_per_node > 0;
          drive_until_awaiting(rank.backend, {through_two ? 2 : 3});
        }
        test_support::meet(rank.bootstrap);
        drive(rank.backend, {&job});
        EXPECT_EQ(data[0], elements < 0 ? 1.0F : 4.0F);
      });
    }
  }
}

TEST(CpuBackend, WhoOnlyGivesASmallTensorWaitsForNobody) {
  WorldShape shape;
  shape.ranks = 4;
  run_world(shape, [&](Rank& rank) {
    constexpr int kRoot = 2;
    std::vector<float> data(30, 1.0F);
    data::Job job;
    job.runs.push_back(sum_of(data, {}));
    job.runs.front().kind = core::CollectiveKind::reduce;
    job.runs.front().root = kRoot;
    if (rank.rank() == 0) run(rank.backend, {&job});
    test_support::meet(rank.bootstrap);  // nobody else has come
    if (rank.rank() == kRoot) {
      rank.backend.start(job);
      drive_until_awaiting(rank.backend, {1, 3});
    }
    test_support::meet(rank.bootstrap);
    if (rank.rank() == kRoot) drive(rank.backend, {&job});
    if (rank.rank() == 1 || rank.rank() == 3) run(rank.backend, {&job});
    EXPECT_EQ(data, std::vector<float>(30, rank.rank() == kRoot ? 4.0F : 1.0F));
  });
}

TEST(CpuBackend, AbortLeavesCallersMemoryAlone) {
  for (const int ranks_per_node : {0, 1}) {
    WorldShape shape;
    shape.ranks = 3;
    shape.ranks_per_node = ranks_per_node;
    run_world(shape, [&](Rank& rank) {
      std::vector<data::Job*> finished;
      auto data = std::make_unique<std::vector<float>>(5000, 1.0F);
      data::Job job;
      job.runs.push_back(sum_of(*data, {}));
      if (rank.rank() != 2) {  // rank 2 never comes
        rank.backend.start(job);
        for (int i = 0; i < 50; ++i) EXPECT_NE(rank.backend.progress(finished), data::Progress::idle);
      }
      rank.backend.abort();
      job.runs.clear();
      data.reset();
      test_support::meet(rank.bootstrap);
      for (int i = 0; i < 50; ++i) EXPECT_EQ(rank.backend.progress(finished), data::Progress::idle);
      EXPECT_TRUE(finished.empty());
    });
  }
}

TEST(CpuBackend, AFaultOfTheTransportReachesTheCaller) {
  class Broken final : public transport::InterNode {
   public:
    std::byte* staging(std::size_t bytes) override {
      memory_.resize(bytes);
      return memory_.data();
    }
    Operation send(int, int, const std::byte*, std::size_t) override { return 1; }
    Operation receive(int, int, std::byte*, std::size_t) override { return 1; }
    bool test(Operation) override { throw Error(ErrorCode::transport, "the cable is cut"); }
    const char* name() const noexcept override { return "a broken cable"; }

   private:
    std::vector<std::byte> memory_;
  };
  const shm::Segment memory = shm::Segment::anonymous(shm::SlotRing::column_bytes(256, 2));
  auto intra = std::make_shared<shm::SlotRing>(base::Columns({memory.data()}), 0, 256, 2);
  CpuBackend backend(core::make_topology(0, {0, 1}, 0), intra, std::make_shared<Broken>());
  EXPECT_EQ(backend.describe(), "shared memory (1 ranks, 2 slots of 256 bytes), a broken cable (2 nodes, 1 lane)");
  std::vector<float> data(20, 1.0F);
  data::Job job;
  job.runs.push_back(sum_of(data, {}));
  backend.start(job);
  std::vector<data::Job*> finished;
  try {
    for (int i = 0; i < 3; ++i) static_cast<void>(backend.progress(finished));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    EXPECT_STREQ(error.what(), "kolo: the cable is cut");
  }
  backend.abort();
}

TEST(CpuBackend, AResultIsUsedBeforeTheOwnPartHasGone) {
  class Unhurried final : public transport::InterNode {
   public:
    std::byte* staging(std::size_t bytes) override { return memory_.emplace_back(bytes).data(); }
    Operation send(int, int, const std::byte*, std::size_t) override { return kSend; }
    Operation receive(int, int, std::byte* data, std::size_t bytes) override {
      const std::vector<float> theirs(bytes / sizeof(float), 2.0F);
      std::memcpy(data, theirs.data(), bytes);
      return kReceive;
    }
    bool test(Operation operation) override { return operation == kReceive || gone; }
    const char* name() const noexcept override { return "a slow reader"; }

    bool gone = false;

   private:
    enum : Operation { kSend = 1, kReceive = 2 };
    std::deque<std::vector<std::byte>> memory_;
  };
  constexpr std::size_t kSlot = 256;
  constexpr std::size_t kSlots = 2;
  const shm::Segment memory = shm::Segment::anonymous(shm::SlotRing::column_bytes(kSlot, kSlots));
  auto intra = std::make_shared<shm::SlotRing>(base::Columns({memory.data()}), 0, kSlot, kSlots);
  const auto cable = std::make_shared<Unhurried>();
  CpuBackend backend(core::make_topology(0, {0, 1}, 0), intra, cable);
  constexpr std::size_t kBegun = kSlots * kSlot / sizeof(float);
  std::vector<float> data(kBegun + 10, 1.0F);
  data::Job job;
  job.runs.push_back(sum_of(data, {}));
  backend.start(job);
  std::vector<data::Job*> finished;
  while (backend.progress(finished) == data::Progress::advanced) {
  }
  EXPECT_EQ(data[kBegun - 1], 3.0F);
  EXPECT_EQ(data[kBegun], 1.0F) << "its slot's last message has not gone";
  EXPECT_EQ(backend.progress(finished), data::Progress::waiting);
  EXPECT_TRUE(finished.empty());
  cable->gone = true;
  while (finished.empty()) ASSERT_EQ(backend.progress(finished), data::Progress::advanced);
  EXPECT_EQ(data, std::vector<float>(kBegun + 10, 3.0F));
}

// ---------------------------------------------------------------- parts

TEST(PartOf, CoversEverythingOnceInLines) {
  for (std::int64_t count = 0; count < 200; ++count) {
    for (int parts = 1; parts <= 9; ++parts) {
      std::int64_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Part part = part_of(count, i, parts, 8);
        EXPECT_EQ(part.begin, next);
        EXPECT_TRUE(part.begin % 8 == 0 || part.begin == count);
        EXPECT_LE(part.elements, part_of(count, 0, parts, 8).elements);
        next += part.elements;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace kolo::data::cpu::test
