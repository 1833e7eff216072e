// SPDX-License-Identifier: Apache-2.0
//
// kolo-bench --device cuda on the emulated GPU, ranks as threads: every collective and step beside NCCL's own
// communicator, all results compared, and nothing to report of races, memory or mismatches.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>
#include <nlohmann/json.hpp>

#include "bench/kolo_bench/device.hpp"
#include "bench/kolo_bench/modes.hpp"
#include "tests/emulated_cuda/emulator.hpp"

namespace kolo_bench {
namespace {

/// Of a world of threads.
class LocalJob final : public Job {
 public:
  [[nodiscard]] int rank() const override { return kolo::rank(); }
  [[nodiscard]] int size() const override { return kolo::size(); }
  [[nodiscard]] int nodes() const override { return 1; }
  void barrier() override { kolo::barrier(); }
  void max(std::vector<double>& values) override {
    kolo::allreduce(kolo::view(values), kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::max));
  }
  [[nodiscard]] std::int64_t sum(std::int64_t value) override { return kolo::allreduce(value, kolo::ReduceOp::sum); }
  void broadcast(std::vector<char>& bytes) override {
    kolo::broadcast({bytes.data(), kolo::DType::uint8, kolo::Shape{static_cast<std::int64_t>(bytes.size())}}, 0);
  }
};

void expect_no_reports() {
  kolo::emulated::drain();
  for (const kolo::emulated::Report& report : kolo::emulated::take_reports()) {
    ADD_FAILURE() << kolo::emulated::to_string(report.kind) << ": " << report.text;
  }
}

/// Runs it with `ranks` ranks; rank 0's records.
nlohmann::json run(int ranks, std::vector<const char*> words) {
  kolo::emulated::Config machine;
  machine.devices = 4;
  kolo::emulated::reset(machine);
  const std::string file = testing::TempDir() + "kolo_bench_cuda.json";
  words.insert(words.begin(), "kolo-bench");
  words.insert(words.end(), {"--device", "cuda", "-n", "1", "-w", "1", "-t", "1e-9", "--json", file.c_str()});
  const Flags flags = parse_flags(static_cast<int>(words.size()), words.data()).value();
  // Small slots: of a world's first seconds the emulator takes most to fill its memory with poison.
  const auto options = kolo::Options{}.with_setting("KOLO_FUSION_THRESHOLD", "1M");
  kolo::run_local(
      ranks,
      [&] {
        LocalJob job;
        Bench bench{job, flags};
        bench.device = open_device(job);
        bench.timer = bench.device->timer();
        Report report(flags, job);
        flags.mode == Mode::step ? run_step(bench, report) : run_collective(bench, report);
        report.finish();
        EXPECT_EQ(report.wrong(), 0);
      },
      options);
  expect_no_reports();
  EXPECT_EQ(kolo::emulated::live_objects(), std::vector<std::string>{});
  kolo::emulated::reset();
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}

class BenchOnGpus : public testing::TestWithParam<int> {};

TEST_P(BenchOnGpus, EveryCollectiveBesideNccl) {
  const struct {
    const char* mode;
    std::size_t places;
  } modes[] = {{"allreduce", 2}, {"reduce", 2},   {"broadcast", 2},      {"allgather", 1}, {"gather", 1},
               {"scatter", 1},   {"alltoall", 1}, {"reduce_scatter", 2}, {"sendrecv", 1},  {"pingpong", 1}};
  for (const auto& [mode, places] : modes) {
    const nlohmann::json rows = run(GetParam(), {mode, "-b", "1", "-e", "100K", "-f", "300", "--baseline", "nccl"});
    ASSERT_EQ(rows.size(), 3 * places) << mode;
    for (const nlohmann::json& row : rows) {
      EXPECT_EQ(row["device"], "cuda");
      EXPECT_EQ(row["wrong"], 0) << row;
      EXPECT_EQ(row["baseline"]["nccl"]["wrong"], 0) << row;
      EXPECT_GT(row["time_us"], 0) << row;
    }
  }
}

TEST_P(BenchOnGpus, EveryTypeAndOperationOfNccl) {
  const nlohmann::json rows =
      run(GetParam(), {"allreduce", "-b", "1K", "-e", "1K", "-d", "all", "-o", "all", "--baseline", "nccl"});
  ASSERT_EQ(rows.size(), 2 * (11 * 4 + 4U));  // averages of floats only
  const bool rounds = (GetParam() & (GetParam() - 1)) != 0;
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["baseline"]["nccl"]["wrong"], rounds && row["op"] == "average" ? -1 : 0) << row;
  }
}

TEST_P(BenchOnGpus, Steps) {
  const std::string shapes = testing::TempDir() + "kolo_bench_cuda_shapes";
  std::ofstream(shapes) << "64 3 7 7\n64\n64\n1000 64\n1000\n";
  const nlohmann::json rows =
      run(GetParam(), {"step", "--shapes", shapes.c_str(), "--submit", "by-name,prepared,grouped", "-o", "sum",
                       "--baseline", "nccl-per-tensor,nccl-grouped"});
  ASSERT_EQ(rows.size(), 3U);
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["baseline"]["nccl-per-tensor"]["wrong"], 0) << row;
    EXPECT_EQ(row["baseline"]["nccl-grouped"]["wrong"], 0) << row;
    EXPECT_GT(row["host_submit_us"], 0) << row;
    EXPECT_LT(row["host_submit_one_us"], row["host_submit_us"]) << row;
    EXPECT_GE(row["host_step_us"], row["host_submit_us"]) << row;
  }
}

TEST_P(BenchOnGpus, InAnArena) {
  for (const nlohmann::json& row : run(GetParam(), {"allreduce", "-b", "4", "-e", "1M", "-f", "512", "--arena"})) {
    EXPECT_TRUE(row["arena"]) << row;
    EXPECT_EQ(row["wrong"], 0) << row;
  }
  for (const nlohmann::json& row : run(GetParam(), {"step", "--model", "many-small", "--arena", "--submit",
                                                    "by-name,grouped", "--baseline", "nccl-grouped", "-o", "sum"})) {
    EXPECT_TRUE(row["arena"]) << row;
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["baseline"]["nccl-grouped"]["wrong"], 0) << row;
  }
}

TEST_P(BenchOnGpus, ABarrierHasNoPeer) { EXPECT_EQ(run(GetParam(), {"barrier"}).size(), 1U); }

INSTANTIATE_TEST_SUITE_P(Worlds, BenchOnGpus, testing::Values(1, 2, 3));

TEST(BenchWithoutGpus, OneRankWithoutADeviceIsARefusalOnAllRanks) {
  kolo::emulated::Config machine;
  machine.devices = 2;
  kolo::emulated::reset(machine);
  std::vector<std::string> said(3);
  kolo::run_local(3, [&] {
    LocalJob job;
    try {
      static_cast<void>(open_device(job));
    } catch (const BadFlags& refusal) {
      said[static_cast<std::size_t>(kolo::rank())] = refusal.what();
    }
  });
  EXPECT_NE(said[0].find("1 of 3 ranks"), std::string::npos) << said[0];
  EXPECT_NE(said[2].find("rank 2 of this machine has no device"), std::string::npos) << said[2];
  expect_no_reports();
  kolo::emulated::reset();
}

}  // namespace
}  // namespace kolo_bench
