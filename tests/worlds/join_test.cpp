// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are out of data join, and the others go on: every type and operation to the bit as in a group of those who
// are left, in every order of joining; what is refused; how a join ends when somebody dies, leaves, or never comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <kolo/detail/counters.hpp>
#include <kolo/kolo.hpp>

#include "base/half.hpp"
#include "errors.hpp"
#include "tests/optimizer/model.hpp"
#include "tests/support/exact_values.hpp"
#include "tests/support/gate.hpp"
#include "without_log.hpp"
#include "world.hpp"

namespace {

using kolo::AllreduceOptions;
using kolo::DType;
using kolo::ErrorCode;
using kolo::Group;
using kolo::ReduceOp;
using kolo::Shape;
using kolo::testing::Gate;
using kolo::testing::has;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::run_in;
using kolo::testing::sentence_of;
using kolo::testing::worlds;

class Joins : public InWorlds {
 protected:
  Joins()
      : InWorlds({{"KOLO_SLOT_BYTES", "512"},
                  {"KOLO_SLOTS", "3"},
                  {"KOLO_FUSION_THRESHOLD", "2048"},
                  {"KOLO_GROUPS", "64"}}) {}
};

INSTANTIATE_TEST_SUITE_P(Worlds, Joins,
                         worlds({{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {4, 2}}, {{3, 2}, {8, 0}, {8, 3}}), name_of);

// ---------------------------------------------------------------- values

/// Irregular numbers; zeros of both signs, and what is largest, among them.
double value_of(int rank, int step, std::size_t i) {
  switch ((i + static_cast<std::size_t>(step)) % 11) {
  case 0:
    return -0.0;
  case 1:
    return rank % 2 == 0 ? 0.0 : -0.0;
  case 2:
    return std::numeric_limits<double>::infinity();
  default:
    return std::sin(static_cast<double>(i * 7 + static_cast<std::size_t>(rank * 31 + step * 3 + 1))) * 3;
  }
}

void put(DType dtype, std::byte* to, double value) {
  const auto bytes = [to](auto element) { std::memcpy(to, &element, sizeof element); };
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::float16) return bytes(kolo::base::to_float16(narrow));
  if (dtype == DType::bfloat16) return bytes(kolo::base::to_bfloat16(narrow));
  if (dtype == DType::float32) return bytes(narrow);
  if (dtype == DType::float64) return bytes(value);
  if (dtype == DType::boolean) return bytes(value > 0);
  kolo::testing::store(dtype, to, std::isfinite(value) ? static_cast<std::int64_t>(value * 40) : 77);
}

double number_at(DType dtype, const std::byte* from) {
  std::uint16_t half = 0;
  float narrow = 0;
  double wide = 0;
  std::memcpy(&half, from, sizeof half);
  if (dtype == DType::float16) return static_cast<double>(kolo::base::to_float(kolo::Float16{half}));
  if (dtype == DType::bfloat16) return static_cast<double>(kolo::base::to_float(kolo::BFloat16{half}));
  std::memcpy(dtype == DType::float32 ? static_cast<void*>(&narrow) : &wide, from, kolo::size_of(dtype));
  return dtype == DType::float32 ? static_cast<double>(narrow) : wide;
}

/// To the bit, but for what is no number (0 times infinity), which has no sign in particular.
bool is_same(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const std::size_t width = kolo::size_of(dtype);
  for (std::size_t at = 0; at < a.size(); at += width) {
    if (std::memcmp(a.data() + at, b.data() + at, width) == 0) continue;
    if (!kolo::is_floating_point(dtype)) return false;
    if (!std::isnan(number_at(dtype, a.data() + at)) || !std::isnan(number_at(dtype, b.data() + at))) return false;
  }
  return true;
}

struct Case {
  std::string name;
  DType dtype = DType::float32;
  std::int64_t length = 0;
  AllreduceOptions options;
};

/// Every type with every operation, some scaled, some sent as 16 bits; of lengths that take the flat way, chunks, and
/// no element at all.
std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&all](DType dtype, const AllreduceOptions& options) {
    const std::int64_t lengths[] = {29, 700, 0, 130, 1};
    all.push_back({"x" + std::to_string(all.size()), dtype, lengths[all.size() % 5], options});
  };
  for (int type = 0; type < kolo::kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product,
                              ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor}) {
      if (!kolo::is_floating_point(dtype)) {
        if (op != ReduceOp::average) add(dtype, op);
        continue;
      }
      if (op > ReduceOp::product) continue;
      add(dtype, op);
      if (op == ReduceOp::product) continue;
      for (const double prescale : {-1.5, 0.0, 1e-60}) add(dtype, AllreduceOptions(op).with_prescale(prescale));
      if (dtype != DType::float32 && dtype != DType::float64) continue;
      add(dtype, AllreduceOptions(op).with_send_as(DType::bfloat16).with_prescale(-0.5));
      add(dtype, AllreduceOptions(op).with_send_as(DType::float16));
    }
  }
  return all;
}

/// Tensors of all cases, which are reduced by the group and by those alone who are left.
class Step {
 public:
  explicit Step(int step) : cases_(cases()), in_all_(cases_.size()), in_rest_(cases_.size()) {
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const std::size_t width = kolo::size_of(cases_[i].dtype);
      std::vector<std::byte>& bytes = in_all_[i];
      bytes.resize(static_cast<std::size_t>(cases_[i].length) * width);
      for (std::size_t j = 0; j < bytes.size() / width; ++j) {
        put(cases_[i].dtype, bytes.data() + j * width, value_of(kolo::rank(), step, i + j));
      }
      in_rest_[i] = bytes;
    }
  }
  void run(const Group& all, const Group& rest) {
    std::vector<kolo::Handle> handles;
    for (std::size_t k = 0; k < cases_.size(); ++k) {
      const std::size_t i = (k + static_cast<std::size_t>(kolo::rank()) * 13) % cases_.size();
      handles.push_back(submit(all, i, in_all_[i]));
      handles.push_back(submit(rest, i, in_rest_[i]));
    }
    kolo::wait_all(handles);
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const bool is_alone = kolo::size(rest) == 1 && cases_[i].options.send_as;  // then nothing is sent, and rounded
      if (is_alone || is_same(cases_[i].dtype, in_all_[i], in_rest_[i])) continue;
      ADD_FAILURE() << to_string(cases_[i].dtype) << " " << to_string(cases_[i].options.op) << " x "
                    << cases_[i].options.prescale << ", " << cases_[i].length << " elements";
    }
  }

 private:
  kolo::Handle submit(const Group& group, std::size_t i, std::vector<std::byte>& bytes) {
    const Case& one = cases_[i];
    return kolo::allreduce_async({group, one.name}, kolo::TensorView(bytes.data(), one.dtype, Shape{one.length}),
                                 one.options);
  }

  std::vector<Case> cases_;
  std::vector<std::vector<std::byte>> in_all_;
  std::vector<std::vector<std::byte>> in_rest_;
};

/// How many ranks submit this name: those that have not joined.
int number_of(const char* name, const Group& group = kolo::world()) {
  std::int32_t one = 1;
  kolo::allreduce({group, name}, kolo::TensorView(&one, DType::int32, Shape{}));
  return one;
}

/// Returns when all others have joined: nobody else submits this.
void wait_for_the_others(const Group& group = kolo::world()) { EXPECT_EQ(number_of("is anybody there", group), 1); }

// ---------------------------------------------------------------- the others go on

/// What each rank has data for, by epoch.
int steps_of(int epoch, int rank, int ranks) {
  switch (epoch) {
  case 0:
    return rank + 1;  // rank 0 joins first
  case 1:
    return ranks - rank;  // and last
  case 2:
    return rank == ranks / 2 ? 2 : 0;  // all but one together, at once
  default:
    return rank % 2 == 0 ? 1 : 3 + rank;  // half of them together
  }
}

TEST_P(Joins, TheOthersGoOnAsIfTheyWereAlone) {
  run([] {
    const int ranks = kolo::size();
    const int rank = kolo::rank();
    constexpr int kEpochs = 4;
    std::map<std::vector<int>, Group> groups;
    const auto with_data = [ranks](int epoch, int step) {
      std::vector<int> left;
      for (int one = 0; one < ranks; ++one) {
        if (steps_of(epoch, one, ranks) > step) left.push_back(one);
      }
      return left;
    };
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      for (int step = 0; step < steps_of(epoch, rank, ranks); ++step) {
        const std::vector<int> left = with_data(epoch, step);
        if (groups.count(left) == 0) groups.emplace(left, Group::of(left));
      }
    }
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      int last = 0;
      for (int one = 0; one < ranks; ++one) {
        if (steps_of(epoch, one, ranks) > steps_of(epoch, last, ranks)) last = one;
      }
      for (int step = 0; step < steps_of(epoch, rank, ranks); ++step) {
        const std::vector<int> left = with_data(epoch, step);
        Step(step).run(kolo::world(), groups.at(left));
        EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), static_cast<int>(left.size()));
        kolo::end_step();
      }
      EXPECT_EQ(kolo::join(), last) << "epoch " << epoch;
      for (int i = 0; i < 5; ++i) EXPECT_EQ(kolo::allreduce(i, ReduceOp::sum), i * ranks);
      kolo::barrier();
    }
  });
}

/// Unnamed calls pass by the log again when the join has ended.
TEST(Join, LeavesUnnamedCallsAsTheyWere) {
  kolo::run_local(3, [] {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i < 4 + 3 * kolo::rank(); ++i) {
        const int left = i < 4 ? 3 : i < 7 ? 2 : 1;
        EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), left);
      }
      EXPECT_EQ(kolo::join(), 2);
      const std::uint64_t before = kolo::detail::counters().shortcuts;
      for (int i = 0; i < 50; ++i) EXPECT_EQ(kolo::allreduce(kolo::rank() + i, ReduceOp::max), 2 + i);
      kolo::testing::expect_calls_without_the_log(before);
    }
  });
}

/// The collectives themselves: CasesWithoutTheLastIn.EveryByte. What Kolo makes of them:
TEST_P(Joins, ObjectsAndSplitsDoWithout) {
  run([] {
    const int ranks = kolo::size();
    const int rank = kolo::rank();
    if (ranks == 1) return;
    if (rank == 0) {
      EXPECT_EQ(kolo::join(), ranks - 1);
      return;
    }
    for (int round = 0; round < 3; ++round) {
      kolo::barrier();
      std::vector<std::string> words = kolo::allgather_object(std::to_string(rank));
      EXPECT_EQ(words.size(), static_cast<std::size_t>(ranks - 1));
      EXPECT_EQ(words.back(), std::to_string(ranks - 1));
      const Group rest = kolo::world().split(0, -rank);
      EXPECT_EQ(rest.members().front(), ranks - 1);
      EXPECT_EQ(kolo::allreduce(rest, 1, ReduceOp::sum), ranks - 1);
    }
    if (rank == ranks - 1) wait_for_the_others();
    EXPECT_EQ(kolo::join(), ranks - 1);
  });
}

TEST_P(Joins, AnAverageCanBeOverAll) {
  run([] {
    const int ranks = kolo::size();
    if (kolo::rank() + 1 < ranks) {
      kolo::join(kolo::JoinOptions().with_counts_in_averages(kolo::rank() > 0));
      return;
    }
    wait_for_the_others();
    std::vector<double> x(100, 6);
    kolo::allreduce("x", kolo::view(x), ReduceOp::average);
    EXPECT_EQ(x, std::vector<double>(100, 6.0 / (ranks > 1 ? ranks - 1 : 1)));
    std::vector<float> largest(100, -1);
    kolo::allreduce("largest", kolo::view(largest), ReduceOp::max);
    EXPECT_EQ(largest, std::vector<float>(100, -1));
    EXPECT_EQ(kolo::join(), ranks - 1);
  });
}

/// Gradients in an arena are reduced where they lie; an absent rank has none ready.
TEST_P(Joins, ArenasStay) {
  run([] {
    const int ranks = kolo::size();
    kolo::GradientArena arena(1 << 16);
    const kolo::TensorView gradient = arena.allocate(DType::float32, Shape{3000});
    const kolo::Span<float> elements(static_cast<float*>(gradient.data()), 3000);
    for (int step = 0; step < 2 + kolo::rank(); ++step) {
      std::fill(elements.begin(), elements.end(), static_cast<float>(kolo::rank()));
      kolo::allreduce("gradient", gradient, ReduceOp::average);
      const int first = std::max(0, step - 1);  // that has data
      const float average = static_cast<float>(first + ranks - 1) / 2;
      EXPECT_TRUE(std::all_of(elements.begin(), elements.end(), [=](float x) { return x == average; })) << step;
    }
    EXPECT_EQ(kolo::join(), ranks - 1);
  });
}

TEST(Join, IsOfAGroupAlone) {
  kolo::run_local(4, [] {
    const Group group = Group::of(kolo::rank() < 3 ? std::vector<int>{2, 0, 1} : std::vector<int>{3});
    if (kolo::rank() == 3) {
      EXPECT_EQ(kolo::join(group), 0);
      EXPECT_EQ(number_of("world"), 4);
      return;
    }
    kolo::Future<int> join;
    if (kolo::rank() == 0) {
      wait_for_the_others(group);
      EXPECT_EQ(kolo::allreduce(group, 5.0, ReduceOp::average), 5.0);
    } else {
      join = kolo::join_async(group);
    }
    EXPECT_EQ(number_of("world"), 4) << "others than in the group";
    if (kolo::rank() == 0) join = kolo::join_async(group);
    EXPECT_EQ(join.get(), 1) << "rank 0 of the world is rank 1 of the group";
    EXPECT_EQ(join.get(), 1);
    EXPECT_EQ(kolo::allreduce(group, 1, ReduceOp::sum), 3);
  });
}

/// What is planned is cut at the join, and planned anew when all are back.
TEST(Join, CutsPlansAndAllowsNewOnes) {
  kolo::run_local(3, [] {
    const auto steps = [](int count, int left) {
      for (int step = 0; step < count; ++step) {
        std::vector<std::vector<float>> x(20, std::vector<float>(50, 1));
        std::vector<kolo::Handle> handles;
        for (std::size_t i = 0; i < x.size(); ++i) {
          handles.push_back(kolo::allreduce_async("x" + std::to_string(i), kolo::view(x[i])));
        }
        kolo::wait_all(handles);
        for (const std::vector<float>& one : x) EXPECT_EQ(one, std::vector<float>(50, static_cast<float>(left)));
        kolo::end_step();
      }
    };
    for (int epoch = 0; epoch < 2; ++epoch) {
      steps(5, 3);
      EXPECT_GT(kolo::detail::counters().planned_batches, 0U);
      if (kolo::rank() > 0) steps(2, 2);
      if (kolo::rank() > 1) steps(2, 1);
      EXPECT_EQ(kolo::join(), 2);
      const std::uint64_t before = kolo::detail::counters().planned_batches;
      steps(5, 3);
      EXPECT_GT(kolo::detail::counters().planned_batches, before);
    }
  });
}

/// In flight when a rank joins: it contributes to that, and to what others submit of it later.
TEST(Join, LeavesWhatIsInFlight) {
  kolo::run_local(3, [] {
    std::vector<float> x(2000, 1), y(10, 1), z(10, 1);
    if (kolo::rank() == 0) {
      kolo::Handle first = kolo::allreduce_async("x", kolo::view(x));
      kolo::Handle mine = kolo::allreduce_async("mine", kolo::view(z));
      kolo::Future<int> join = kolo::join_async();
      first.wait();
      EXPECT_EQ(x, std::vector<float>(2000, 3));
      EXPECT_GT(join.get(), 0);
      mine.wait();
      EXPECT_EQ(z, std::vector<float>(10, 1));
      return;
    }
    kolo::allreduce("y", kolo::view(y));
    EXPECT_LE(y[0], 3);
    kolo::allreduce("x", kolo::view(x));
    EXPECT_EQ(x, std::vector<float>(2000, 3));
    EXPECT_GT(kolo::join(), 0);
  });
}

// ---------------------------------------------------------------- what cannot be

TEST(Join, WhatNeedsAnAbsentRankSaysSo) {
  kolo::run_local(4, [] {
    std::vector<float> x(8, 2);
    const auto refused = [](const auto& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    if (kolo::rank() == 3) {
      EXPECT_EQ(kolo::join(), 0);
    } else if (kolo::rank() == 1) {
      kolo::Future<int> join = kolo::join_async();
      const std::string why =
          ": this rank has joined, and takes part in nothing more until every rank has joined; wait for the join first";
      EXPECT_EQ(refused([&] { kolo::allreduce("x", kolo::view(x)); }), "allreduce of \"x\"" + why);
      EXPECT_EQ(refused([&] { static_cast<void>(Group::of({0, 1})); }), "a group cannot be made" + why);
      EXPECT_EQ(join.get(), 0);
    } else {
      EXPECT_EQ(number_of("both are present"), 2);
      EXPECT_EQ(
          refused([&] { kolo::broadcast("from 3", kolo::view(x), 3); }),
          "tensor \"from 3\": the broadcast cannot run, because its root, rank 3, has joined; give a root that has not "
          "joined.");
      EXPECT_EQ(
          refused([&] { kolo::reduce("to 1", kolo::view(x), 1); }),
          "tensor \"to 1\": the reduce cannot run, because its root, rank 1, has joined; give a root that has not "
          "joined.");
      EXPECT_EQ(refused([&] { static_cast<void>(kolo::alltoall("all", kolo::const_view(x))); }),
                "tensor \"all\": the alltoall cannot run, because ranks 1 and 3 have joined, and every rank would have "
                "to send and to receive; call it before any rank joins, or after the join.");
      const auto rows = kolo::rank() == 0 ? std::optional<kolo::ConstTensorView>(kolo::const_view(x)) : std::nullopt;
      std::vector<float> part(2);
      EXPECT_EQ(
          refused([&] { kolo::scatter_into("parts", rows, kolo::view(part), 0); }),
          "tensor \"parts\": the scatter cannot run, because ranks 1 and 3 have joined, and every rank would have "
          "to receive; call it before any rank joins, or after the join.");
      const auto scaled = AllreduceOptions(ReduceOp::product).with_prescale(0.1);
      EXPECT_EQ(
          refused([&] { kolo::allreduce("product", kolo::view(x), scaled); }),
          "tensor \"product\": the allreduce cannot run, because ranks 1 and 3 have joined, and nothing can stand "
          "for a rank in a product with prescale; scale the inputs before the call.");
      EXPECT_EQ(refused([&] {
                  static_cast<void>(Group::of({0, 2, 3}));
                }),
                "the group of ranks 0, 2 and 3 cannot be made, because rank 3 has joined; make it before any rank "
                "joins, or after the join.");
      EXPECT_EQ(refused([&] { kolo::GradientArena arena(1 << 12); }),
                "GradientArena(gradients): a rank has joined, and an arena is made by all of them; make it before");
      // The job goes on.
      EXPECT_EQ(number_of("both are present"), 2);
      if (kolo::rank() == 0) wait_for_the_others();
      EXPECT_EQ(kolo::join(), 0);
    }
    kolo::broadcast("from 3", kolo::view(x), 3);
    EXPECT_EQ(number_of("all are back"), 4);
  });
}

TEST(Join, AnUnnamedCallOfAnotherThreadWaitsForIt) {
  kolo::run_local(2, [] {
    if (kolo::rank() == 0) {
      kolo::Future<int> join = kolo::join_async();
      int sum = 0;
      std::thread other([&sum, group = kolo::world()] { sum = kolo::allreduce(group, 1, ReduceOp::sum); });
      EXPECT_EQ(join.get(), 1);
      other.join();
      EXPECT_EQ(sum, 2);
    } else {
      wait_for_the_others();
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 1);
      EXPECT_EQ(kolo::join(), 1);
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
    }
  });
}

TEST(Join, ATimeoutIsPositive) {
  kolo::run_local(1, [] {
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument,
                          [] { kolo::join(kolo::JoinOptions().with_timeout(std::chrono::seconds(0))); }),
              "join: its timeout is 0 ns; give a time greater than zero, or none for KOLO_TIMEOUT_S");
    EXPECT_EQ(kolo::join(), 0);
  });
}

// ---------------------------------------------------------------- how else it may end

TEST_P(Joins, ARankThatFailsEndsTheJob) {
  if (GetParam().ranks < 3) return;
  const int ranks = GetParam().ranks;
  EXPECT_TRUE(has(sentence_of(ErrorCode::user_exception,
                              [&] {
                                run([ranks] {
                                  if (kolo::rank() == ranks - 1) {
                                    std::vector<float> x(1000);
                                    wait_for_the_others();
                                    throw std::runtime_error("out of paper");
                                  }
                                  const std::string why = sentence_of(ErrorCode::user_exception, [] { kolo::join(); });
                                  EXPECT_TRUE(has(why, {("rank " + std::to_string(ranks - 1) + " left").c_str()}));
                                });
                              }),
                  {"out of paper"}));
}

TEST(Join, ARankThatLeavesEndsIt) {
  kolo::run_local(3, [] {
    if (kolo::rank() == 2) return wait_for_the_others();
    EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [] { kolo::join(); }), "rank 2 has shut down, so the join cannot end.");
    EXPECT_TRUE(has(sentence_of(ErrorCode::rank_lost, [] { kolo::barrier(); }), {"rank 2 has shut down"}));
    EXPECT_TRUE(has(sentence_of(ErrorCode::rank_lost, [] { kolo::join(); }), {"rank 2 has shut down"}));
  });
}

TEST(Join, OneThatNobodyElseMakesEndsAtItsDeadline) {
  Gate gate;
  kolo::run_local(2, [&gate] {
    if (kolo::rank() == 1) return gate.wait_for(1);
    const auto soon = kolo::JoinOptions().with_timeout(std::chrono::milliseconds(300));
    const std::string why = sentence_of(ErrorCode::timeout, [&] { kolo::join(soon); });
    EXPECT_TRUE(has(why, {"the join has not completed within ", ": rank 1 has not joined."}));
    gate.come();
  });
}

/// For longer than the join's own time the others work, with never so much time between two steps.
TEST(Join, LastsAsLongAsTheOthersWork) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kTime{2};
  kolo::run_local(3, [kTime] {
    if (kolo::rank() == 0) {
      EXPECT_GT(kolo::join(kolo::JoinOptions().with_timeout(kTime)), 0);
      return;
    }
    const Clock::time_point end = Clock::now() + kTime + std::chrono::milliseconds(500);
    double time = 0;
    while (time < 1) {
      time = Clock::now() >= end ? 1 : 0;
      kolo::allreduce("step", kolo::TensorView(&time, DType::float64, Shape{}), ReduceOp::min);
    }
    EXPECT_GT(kolo::join(), 0);
  });
}

// ---------------------------------------------------------------- training

/// Counts its steps; leaves values and gradients alone.
struct StepCounter {
  int steps = 0;
  void step() { ++steps; }
  void zero_grad() {}
};

/// One line behind the loop. Each step's gradient is the mean over those who have a batch for it.
TEST_P(Joins, AnOptimizerGoesOnWithUnevenNumbersOfBatches) {
  for (const bool weighted : {false, true}) {
    run([weighted] {
      const int ranks = kolo::size();
      kolo::test::Model<double> model;
      auto& a = model.add("a", {0, 0, 0});
      auto& b = model.add("b", std::vector<double>(200));
      StepCounter counter;
      kolo::DistributedOptimizer optimizer(counter, model.parameters());
      const auto batches = [](int rank) { return 2 + 2 * rank; };
      for (int step = 0; step < batches(kolo::rank()); ++step) {
        double samples = 0;
        double sum = 0;
        int left = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          if (step >= batches(rank)) continue;
          const double weight = weighted ? rank + step + 1 : 1;
          ++left;
          samples += weight;
          sum += weight * (rank * 10 + step);
        }
        if (weighted) optimizer.begin_micro_step(static_cast<std::size_t>(kolo::rank() + step + 1));
        a.gradient.assign(3, kolo::rank() * 10 + step);
        b.gradient.assign(200, kolo::rank() * 10 + step);
        optimizer.gradient_ready(1);
        EXPECT_TRUE(optimizer.step());
        for (const double got : {a.gradient[0], a.gradient[2], b.gradient[0], b.gradient[199]}) {
          EXPECT_NEAR(got, sum / samples, 1e-12) << "step " << step << ", " << left << " ranks";
        }
      }
      EXPECT_EQ(counter.steps, batches(kolo::rank()));
      EXPECT_EQ(kolo::join(), ranks - 1);
      a.gradient.assign(3, kolo::rank());
      b.gradient.assign(200, kolo::rank());
      if (weighted) optimizer.begin_micro_step(1);
      EXPECT_TRUE(optimizer.step());
      EXPECT_NEAR(a.gradient[1], (ranks - 1) / 2.0, 1e-12);
    });
  }
}

}  // namespace
