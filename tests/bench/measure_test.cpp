// SPDX-License-Identifier: Apache-2.0
//
// What is done with samples, with a job of one rank that talks to nobody.
#include "bench/kolo_bench/measure.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <stdlib.h>

#include "bench/kolo_bench/data.hpp"
#include "bench/kolo_bench/interrupt.hpp"
#include "bench/kolo_bench/report.hpp"

namespace kolo_bench {
namespace {

using kolo::DType;
using kolo::ReduceOp;

class Alone final : public Job {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] int nodes() const override { return 1; }
  void barrier() override {}
  void max(std::vector<double>&) override {}
  [[nodiscard]] std::int64_t sum(std::int64_t value) override { return value; }
  void broadcast(std::vector<char>&) override {}
};

Contestant counting(const std::string& name, int& calls, std::int64_t wrong = 0) {
  return {name, [] {}, [&calls] { ++calls; }, [wrong] { return wrong; }};
}

Flags brief() {
  Flags flags;
  flags.mode_name = "allreduce";
  flags.iterations = 3;
  flags.warmup = 2;
  flags.seconds = 1e-9;
  return flags;
}

TEST(Samples, EqualOnesHaveNoSpread) {
  for (std::size_t count = 1; count < 40; ++count) {
    const Summary summary = summarize(std::vector<double>(count, 0.001312));
    EXPECT_EQ(summary.p10, 0.001312);
    EXPECT_EQ(summary.median, 0.001312);
    EXPECT_EQ(summary.p90, 0.001312);
  }
}

TEST(Samples, PercentilesAreInterpolated) {
  std::vector<double> samples;
  for (int i = 10; i >= 0; --i) samples.push_back(i);
  const Summary summary = summarize(samples);
  EXPECT_DOUBLE_EQ(summary.median, 5);
  EXPECT_DOUBLE_EQ(summary.p10, 1);
  EXPECT_DOUBLE_EQ(summary.p90, 9);
  EXPECT_DOUBLE_EQ(summarize({1, 2}).median, 1.5);
  EXPECT_DOUBLE_EQ(summarize({7}).p90, 7);
  EXPECT_DOUBLE_EQ(summarize({}).median, 0);
}

TEST(Samples, AreStableWhenBothHalvesAgree) {
  std::vector<double> samples(19, 1);
  EXPECT_FALSE(is_stable(samples)) << "too few";
  samples.push_back(1);
  EXPECT_TRUE(is_stable(samples));
  for (std::size_t i = 10; i < 20; ++i) samples[i] = 1.05;
  EXPECT_FALSE(is_stable(samples));
  for (std::size_t i = 10; i < 20; ++i) samples[i] = 1.01;
  EXPECT_TRUE(is_stable(samples));
}

TEST(Measure, ContestantsTakeTurnsAndHaveAsManySamples) {
  Alone job;
  const Flags flags = brief();
  Bench bench{job, flags};
  int first = 0;
  int second = 0;
  const std::vector<Measured> measured = measure(bench, {counting("a", first), counting("b", second, 5)});
  ASSERT_EQ(measured.size(), 2U);
  EXPECT_EQ(measured[0].name, "a");
  EXPECT_EQ(measured[0].wrong, 0);
  EXPECT_EQ(measured[1].wrong, 5);
  EXPECT_EQ(measured[0].samples.size(), measured[1].samples.size());
  EXPECT_GT(first, 100) << "short calls are measured many at a time";
}

TEST(Measure, APauseComesBeforeEveryCall) {
  Alone job;
  const Flags flags = brief();
  Bench bench{job, flags};
  int pauses = 0;
  int calls = 0;
  Contestant contestant = counting("a", calls);
  contestant.pause = [&] { ++pauses; };
  const std::size_t samples = measure(bench, {contestant})[0].samples.size();
  EXPECT_EQ(calls, static_cast<int>(samples) + 1 + flags.warmup);
  EXPECT_EQ(pauses, static_cast<int>(samples) + 1);
}

/// Two jobs of one rank, on threads: while one measures the other waits, and both end their rows together.
TEST(Turns, TwoJobsNeverMeasureAtOnce) {
  std::string folder = testing::TempDir() + "turnsXXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  constexpr int kRows = 3;
  std::atomic<int> inside{0};
  std::vector<std::size_t> rounds[2];
  const auto body = [&](int index) {
    Turns turns({index, 2, folder}, 0);
    for (int row = 0; row < kRows; ++row) {
      std::size_t round = 0;
      while (turns.begin()) {
        EXPECT_EQ(inside.fetch_add(1), 0);
        ++round;
        inside.fetch_sub(1);
        const bool ended = turns.leads() && round == 10;
        turns.end(ended);
        if (ended) break;
      }
      if (!turns.leads()) turns.end(true);
      rounds[index].push_back(round);
    }
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  EXPECT_EQ(rounds[0], std::vector<std::size_t>(kRows, 10));
  EXPECT_EQ(rounds[1], std::vector<std::size_t>(kRows, 9)) << "in its last turn the first job ends the row";
  for (const char* pipe : {"/0.0", "/1.0"}) EXPECT_EQ(std::remove((folder + pipe).c_str()), 0);
  EXPECT_EQ(std::remove(folder.c_str()), 0);
}

TEST(Report, RecordsHaveTheKeysThatAreDocumented) {
  Alone job;
  Flags flags = brief();
  flags.baselines = {Baseline::mpi};
  flags.json = testing::TempDir() + "records.json";
  Row row;
  row.collective = "allreduce";
  row.bytes = 4000;
  row.count = 1000;
  row.dtype = "float32";
  row.op = "sum";
  row.bus_factor = 1.5;
  row.more["model"] = "one";
  {
    Report report(flags, job);
    report.add(row, {{"kolo", {1, 2, 3}, {2, 1, 3}, 0}, {"mpi", {2, 8, 12}, {6, 4, 8}, 7}});
    EXPECT_EQ(report.wrong(), 7);
    report.finish();
  }
  std::ifstream stream(flags.json);
  const auto records = nlohmann::json::parse(stream);
  EXPECT_EQ(std::remove(flags.json.c_str()), 0);
  ASSERT_EQ(records.size(), 1U);
  const auto& record = records[0];
  EXPECT_EQ(record["collective"], "allreduce");
  EXPECT_EQ(record["ranks"], 1);
  EXPECT_EQ(record["nodes"], 1);
  EXPECT_EQ(record["in_place"], true);
  EXPECT_EQ(record["time_us"], 2.0);
  EXPECT_EQ(record["time_p10_us"], 1.0);
  EXPECT_EQ(record["time_p90_us"], 3.0);
  EXPECT_EQ(record["algbw"], 2.0);
  EXPECT_EQ(record["busbw"], 3.0);
  EXPECT_EQ(record["model"], "one");
  EXPECT_EQ(record["baseline"]["mpi"]["time_us"], 6.0);
  EXPECT_EQ(record["baseline"]["mpi"]["ratio"], 3.0);
  EXPECT_DOUBLE_EQ(record["baseline"]["mpi"]["ratio_p10"].get<double>(), 2.4);  // of 2, 4, 4
  EXPECT_DOUBLE_EQ(record["baseline"]["mpi"]["ratio_p90"].get<double>(), 4);
}

/// By adding up in double what was put in, for every type that holds numbers.
TEST(Data, ReductionsAreWhatTheInputsAddUpTo) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
    constexpr int kRanks = 3;
    constexpr std::int64_t kCount = 100;
    std::vector<double> wanted;
    for (int rank = 0; rank < kRanks; ++rank) {
      Buffer input(DType::float64, kCount);
      fill_input(input, op, rank, kRanks);
      const auto* x = static_cast<const double*>(input.data());
      if (rank == 0) wanted.assign(x, x + kCount);
      for (std::int64_t i = 0; rank > 0 && i < kCount; ++i) {
        double& sum = wanted[static_cast<std::size_t>(i)];
        sum = op == ReduceOp::min       ? std::min(sum, x[i])
              : op == ReduceOp::max     ? std::max(sum, x[i])
              : op == ReduceOp::product ? sum * x[i]
                                        : sum + x[i];
      }
    }
    Buffer output(DType::float64, kCount);
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double sum = wanted[static_cast<std::size_t>(i)];
      static_cast<double*>(output.data())[i] = op == ReduceOp::average ? sum / kRanks : sum;
    }
    EXPECT_EQ(count_wrong_reduction(output, op, kRanks), 0) << to_string(op);
    static_cast<double*>(output.data())[17] += 1;
    EXPECT_EQ(count_wrong_reduction(output, op, kRanks), 1) << to_string(op);
  }
}

TEST(Data, PoisonIsWrongEverywhere) {
  for (int i = 0; i < kolo::kDTypeCount; ++i) {
    Buffer buffer(static_cast<DType>(i), 33);
    buffer.poison();
    EXPECT_EQ(count_wrong_reduction(buffer, ReduceOp::sum, 2), 33) << to_string(static_cast<DType>(i));
    fill_input(buffer, ReduceOp::sum, 4, 1);
    EXPECT_EQ(count_wrong_copy(buffer, 4, 0, 33), 0) << to_string(static_cast<DType>(i));
  }
}

/// In a process of its own, because a signal stays noted.
TEST(Interrupts, EndARowOnAllRanksAlike) {
  const auto interrupted_row = [] {
    note_interrupts();
    Alone job;
    Flags flags = brief();
    flags.seconds = 1e9;
    flags.iterations = 1 << 30;
    Bench bench{job, flags};
    int calls = 0;
    Contestant contestant = counting("a", calls);
    contestant.call = [&calls] {
      if (++calls == 5 && std::raise(SIGTERM) != 0) std::exit(1);
    };
    try {
      (void)measure(bench, {contestant});
    } catch (const Interrupted&) {
      std::exit(42);
    }
  };
  EXPECT_EXIT(interrupted_row(), testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace kolo_bench
