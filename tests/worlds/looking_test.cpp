// SPDX-License-Identifier: Apache-2.0
//
// Looking at a job: recorders while it runs and after, timelines, metrics, and the checks of NaN and of replicas.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

namespace fs = std::filesystem;

using kolo::ErrorCode;
using kolo::testing::run_in;
using kolo::testing::sentence_of;
using Json = nlohmann::json;

class Looking : public testing::Test {
 protected:
  Looking() {
    std::string pattern = testing::TempDir() + "lookingXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Looking() override { fs::remove_all(folder_); }

  [[nodiscard]] kolo::Options options() const {
    return kolo::Options{}.with_setting("KOLO_RECORDER", folder_ + "/recorders").with_setting("KOLO_TIMEOUT_S", "100");
  }
  [[nodiscard]] kolo::JobReport explain() const { return kolo::explain_job(folder_ + "/recorders"); }
  [[nodiscard]] Json timeline(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    return Json::parse(std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
  }
  std::string folder_;
};

std::size_t count(const Json& events, const std::string& name, int rank) {
  std::size_t found = 0;
  for (const Json& event : events) found += event["name"] == name && event["pid"] == rank ? 1 : 0;
  return found;
}

TEST_F(Looking, AJobThatRunsIsHealthyAndLeavesNothing) {
  std::barrier outside(3);  // where no rank waits inside Kolo
  run_in(3, options(), [&] {
    std::vector<float> tensor(5, 1);
    for (int i = 0; i < 3; ++i) kolo::allreduce("w", kolo::view(tensor));
    kolo::allreduce(kolo::view(tensor));
    outside.arrive_and_wait();
    if (kolo::rank() == 0) {
      const kolo::JobReport report = explain();
      EXPECT_EQ(report.verdict, "healthy");
      EXPECT_TRUE(report.suspects.empty());
      ASSERT_EQ(report.ranks.size(), 3U);
      for (const kolo::RankReport& rank : report.ranks) EXPECT_EQ(rank.state, "runs");
    }
    outside.arrive_and_wait();
  });
  EXPECT_TRUE(fs::is_empty(folder_ + "/recorders"));
  EXPECT_EQ(
      sentence_of(ErrorCode::invalid_argument, [this] { static_cast<void>(explain()); }),
      "there is no recorder in \"" + folder_ +
          "/recorders\": give the directory of a job or of jobs (KOLO_RECORDER). Jobs that ended in order leave none");
}

TEST_F(Looking, AMismatchIsTold) {
  std::barrier outside(2);
  run_in(2, options(), [&] {
    std::vector<float> tensor(kolo::rank() == 0 ? 2 : 3);
    EXPECT_THROW(kolo::allreduce("w", kolo::view(tensor)), kolo::Error);
    outside.arrive_and_wait();
    if (kolo::rank() == 0) {
      const kolo::JobReport report = explain();
      EXPECT_EQ(report.verdict, "mismatch");
      EXPECT_NE(report.sentences.back().find("ranks disagree about shape"), std::string::npos);
    }
    outside.arrive_and_wait();
  });
}

TEST_F(Looking, OffAndWithoutAPlaceTheJobGoesOn) {
  for (const char* const place : {"off", "/proc/nowhere/else"}) {
    const std::string setting = place;
    std::vector<std::string> said;
    run_in(2,
           kolo::Options{}.with_setting("KOLO_RECORDER", setting).with_log_sink([&said](const kolo::LogRecord& record) {
             said.push_back(record.message);
           }),
           [] {
             std::vector<float> tensor(5, 1);
             kolo::allreduce("w", kolo::view(tensor));
             EXPECT_EQ(tensor.front(), 2);
           });
    ASSERT_EQ(said.size(), setting == "off" ? 0U : 1U);
    for (const std::string& sentence : said) {
      EXPECT_TRUE(kolo::testing::has(sentence, {"nothing is recorded for kolo-why (KOLO_RECORDER): "}));
    }
  }
}

TEST_F(Looking, ATimelineHasWhatAllRanksDid) {
  run_in(3, options(), [this] {
    std::vector<float> tensor(5, 1);
    kolo::allreduce("before", kolo::view(tensor));
    kolo::start_timeline(folder_ + "/first.json");
    for (int i = 0; i < 4; ++i) {
      kolo::allreduce("before", kolo::view(tensor));
      kolo::allreduce("later", kolo::view(tensor));
      kolo::end_step();
    }
    kolo::barrier();
    kolo::start_timeline(folder_ + "/second.json");
    kolo::allreduce("before", kolo::view(tensor));
    kolo::stop_timeline();
    kolo::stop_timeline();
    kolo::allreduce("later", kolo::view(tensor));
  });
  const Json first = timeline("first.json");
  const Json second = timeline("second.json");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(count(first, "allreduce", rank), 8U);
    EXPECT_EQ(count(first, "step 4 ends", rank), 1U);
    EXPECT_EQ(count(second, "allreduce", rank), 1U);
    EXPECT_EQ(count(second, "process_name", rank), 1U);
  }
}

/// The spans of a tensor on a rank, by name.
std::multiset<std::string> spans_of(const Json& events, const std::string& tensor, int rank) {
  std::set<int> rows;
  for (const Json& event : events) {
    if (event["name"] == "thread_name" && event["pid"] == rank && event["args"]["name"] == tensor)
      rows.insert(event["tid"].get<int>());
  }
  std::multiset<std::string> spans;
  for (const Json& event : events) {
    if (event["ph"] == "X" && event["pid"] == rank && rows.count(event["tid"].get<int>()) != 0)
      spans.insert(event["name"].get<std::string>());
  }
  return spans;
}

/// Ranks of which one is late in every step: it submits when all others have, and have been heard.
class OneIsLate : public Looking, public testing::WithParamInterface<std::pair<int, int>> {};

TEST_P(OneIsLate, AndTheOthersSayForWhomTheyWaited) {
  constexpr int kRanks = 3;
  constexpr int kSteps = 4;
  const auto [late, ranks_per_node] = GetParam();
  std::barrier outside(kRanks);
  run_in(kRanks, options().with_setting("KOLO_RANKS_PER_NODE", std::to_string(ranks_per_node)), [&] {
    const bool is_late = kolo::rank() == late;
    std::vector<int> others{0, 1, 2};
    others.erase(others.begin() + late);
    std::optional<kolo::Group> group;
    if (!is_late) group = kolo::Group::of(others);
    std::vector<float> named(5, 1), unnamed(6, 1), marker(1);
    kolo::start_timeline(folder_ + "/late.json");
    const std::uint64_t before = kolo::metrics().awaited_batches;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<kolo::Handle> handles;
      const auto submit = [&] {
        handles.push_back(kolo::allreduce_async("w", kolo::view(named)));
        handles.push_back(kolo::allreduce_async(kolo::view(unnamed)));
      };
      if (!is_late) {
        submit();
        // The first may overtake the submissions, the second is behind it, and so behind them.
        for (const char* const name : {"first", "second"}) kolo::allreduce({*group, name}, kolo::view(marker));
      }
      outside.arrive_and_wait();
      if (is_late) submit();
      for (kolo::Handle& handle : handles) handle.wait();
      kolo::end_step();
      outside.arrive_and_wait();
    }
    if (is_late) {
      EXPECT_EQ(kolo::metrics().awaited_batches - before, 2U * kSteps);
    }
    kolo::stop_timeline();
  });
  const Json events = timeline("late.json");
  for (int rank = 0; rank < kRanks; ++rank) {
    std::multiset<std::string> expected;
    for (int step = 0; step < kSteps; ++step) {
      expected.insert("allreduce");
      expected.insert(rank == late ? "negotiate" : "waiting for rank " + std::to_string(late));
    }
    EXPECT_EQ(spans_of(events, "w", rank), expected);
    std::size_t waited = 0;
    for (const Json& event : events) {
      if (event["ph"] != "X" || event["pid"] != rank || event["name"] != "allreduce") continue;
      EXPECT_EQ(event["args"]["route"], ranks_per_node == kRanks ? "flat" : "between nodes");
      waited += event["args"].value("waited_for_rank", -1) == late ? 1 : 0;
    }
    EXPECT_EQ(waited, rank == late ? 0U : kSteps);
  }
}

INSTANTIATE_TEST_SUITE_P(OfOneNodeAndOfThree, OneIsLate,
                         testing::Values(std::pair{0, 3}, std::pair{1, 3}, std::pair{2, 3}, std::pair{0, 1},
                                         std::pair{2, 1}));

TEST_F(Looking, ATimelineThatCannotBeMadeIsAnErrorOnAllRanks) {
  run_in(2, options(), [this] {
    EXPECT_EQ(sentence_of(ErrorCode::io, [this] { kolo::start_timeline(folder_ + "/none/run.json"); }),
              "rank 0: " + folder_ + "/none/run.json: open: No such file or directory");
  });
}

TEST_F(Looking, ANanIsRefusedWithItsPlace) {
  run_in(2, {{"KOLO_CHECK_NAN", "1"}}, [] {
    const std::string rank = std::to_string(kolo::rank());
    std::vector<float> tensor(10000, 1);
    kolo::allreduce("w", kolo::view(tensor));
    kolo::end_step();
    tensor[9000] = std::numeric_limits<float>::quiet_NaN();
    const std::string rest =
        "element 9000 of 10000 is NaN on rank " + rank + " in step 2 (KOLO_CHECK_NAN); it was not submitted";
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::allreduce("w", kolo::view(tensor)); }),
              "allreduce of \"w\": " + rest);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::allreduce(kolo::view(tensor)); }),
              "unnamed allreduce: " + rest);
    kolo::Prepared prepared = kolo::prepare({kolo::world(), "p"}, kolo::Call::allreduce(kolo::view(tensor)));
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { static_cast<void>(prepared.start()); }),
              "allreduce of \"p\": " + rest);
    std::vector<kolo::NamedView> members{{"w1", kolo::view(tensor)}};
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::grouped_allreduce("g", members); }),
              "allreduce of \"w1\": " + rest);
    std::vector<double> wide(3, std::numeric_limits<double>::infinity());
    kolo::allreduce("wide", kolo::view(wide));  // no NaN
    wide[0] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THROW(kolo::allreduce("wide", kolo::view(wide)), kolo::Error);
    kolo::broadcast("wide", kolo::view(wide), 0);  // nothing is added
    EXPECT_TRUE(std::isnan(wide[0]));
    tensor[9000] = 1;
    kolo::allreduce("w", kolo::view(tensor));
    prepared.start().wait();
  });
}

std::uint64_t sum_of(const kolo::Histogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), std::uint64_t{0});
}

TEST_F(Looking, MetricsSayHowLongAndByWhichRoute) {
  run_in(3, options(), [] {
    std::vector<float> small(10, 1);
    std::vector<float> large(100'000, 1);
    for (int i = 0; i < 5; ++i) {
      kolo::allreduce("small", kolo::view(small));
      kolo::allreduce("large", kolo::view(large));
      kolo::end_step();
    }
    kolo::allreduce("last", kolo::view(small));
    const kolo::Metrics metrics = kolo::metrics();
    EXPECT_EQ(metrics.steps, 5U);
    EXPECT_EQ(metrics.bytes_flat, 6 * 40U);
    EXPECT_EQ(metrics.bytes_slots, 5 * 400'000U);
    EXPECT_EQ(metrics.bytes_small + metrics.bytes_flat + metrics.bytes_slots, metrics.bytes);
    EXPECT_EQ(metrics.negotiation_ns.count, 11U);
    EXPECT_EQ(metrics.execution_ns.count, metrics.batches);
    EXPECT_EQ(metrics.batch_requests.sum, 11U);
    EXPECT_EQ(metrics.batch_bytes.sum, metrics.bytes_flat + metrics.bytes_slots);
    for (const kolo::Histogram& one : {metrics.negotiation_ns, metrics.execution_ns, metrics.wait_ns}) {
      EXPECT_EQ(one.counts.size(), one.bounds.size() + 1);
      EXPECT_EQ(sum_of(one), one.count);
    }
    EXPECT_EQ(metrics.allreduce.calls, 11U);
    EXPECT_EQ(metrics.allreduce.bytes, metrics.bytes);
    EXPECT_EQ(metrics.broadcast.calls, 0U);
    const Json json = Json::parse(kolo::metrics_json());
    EXPECT_EQ(json["bytes_slots"], metrics.bytes_slots);
    EXPECT_EQ(json["allreduce"]["bytes"], metrics.allreduce.bytes);
    EXPECT_EQ(json["last_step_batches"], 2U) << "the engine's own";
    EXPECT_EQ(json["batch_bytes"]["counts"], Json(metrics.batch_bytes.counts));
  });
}

TEST_F(Looking, MetricsAreInAFileForEachRank) {
  const auto lines_of = [this](const std::string& name) {
    std::ifstream file(folder_ + "/metrics/" + name);
    std::set<std::string> lines;
    for (std::string line; std::getline(file, line);) EXPECT_TRUE(lines.insert(line).second) << line;
    return lines;
  };
  fs::create_directory(folder_ + "/metrics");
  run_in(3, options().with_setting("KOLO_METRICS_FILE", folder_ + "/metrics/kolo.prom"), [] {
    std::vector<float> tensor(10, 1);
    kolo::allreduce("w", kolo::view(tensor));
    kolo::end_step();
    kolo::allreduce("w", kolo::view(tensor));
  });
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder_ + "/metrics")) files.insert(entry.path().filename());
  EXPECT_EQ(files, (std::set<std::string>{"kolo.prom", "kolo.1.prom", "kolo.2.prom"}));
  const std::set<std::string> lines = lines_of("kolo.1.prom");
  for (const char* const line :
       {"# HELP kolo_steps_total Steps that have ended.", "# TYPE kolo_steps_total counter",
        "kolo_steps_total{rank=\"1\"} 1", "# TYPE kolo_route_bytes_total counter",
        "kolo_route_bytes_total{rank=\"1\",route=\"flat\"} 80",
        "kolo_collective_calls_total{rank=\"1\",collective=\"allreduce\"} 2",
        "kolo_collective_bytes_total{rank=\"1\",collective=\"allreduce\"} 80",
        "kolo_collective_calls_total{rank=\"1\",collective=\"barrier\"} 0", "# TYPE kolo_awaited_batches_total counter",
        "# TYPE kolo_negotiation_seconds histogram", "kolo_negotiation_seconds_bucket{rank=\"1\",le=\"+Inf\"} 2",
        "kolo_negotiation_seconds_count{rank=\"1\"} 2", "kolo_batch_bytes_bucket{rank=\"1\",le=\"1024\"} 2",
        "kolo_batch_bytes_sum{rank=\"1\"} 80"})
    EXPECT_EQ(lines.count(line), 1U) << line;
}

TEST_F(Looking, MetricsThatCannotBeWrittenAreOneWarning) {
  std::vector<std::string> said;
  run_in(1,
         kolo::Options{}
             .with_setting("KOLO_METRICS_FILE", folder_ + "/none/kolo.prom")
             .with_setting("KOLO_METRICS_INTERVAL_S", "0.01")
             .with_log_sink([&said](const kolo::LogRecord& record) { said.push_back(record.message); }),
         [] { kolo::barrier(); });
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(kolo::testing::has(said[0], {"metrics are written no more (KOLO_METRICS_FILE): ", "No such file"}));
}

/// A model of two parameters.
struct Model {
  std::vector<float> a = std::vector<float>(100, 1), b = std::vector<float>(1000, 2);
  std::vector<float> grad_a = std::vector<float>(100), grad_b = std::vector<float>(1000);
  std::vector<kolo::Parameter> parameters{{"a", kolo::view(a), kolo::view(grad_a)},
                                          {"b", kolo::view(b), kolo::view(grad_b)}};
};

TEST_F(Looking, ReplicasThatDifferAreNamed) {
  run_in(4, options(), [] {
    Model model;
    kolo::check_replicas(model.parameters);
    if (kolo::rank() == 2) model.b[999] = 3;
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { kolo::check_replicas(model.parameters); }),
              "parameter \"b\" is not the same on all ranks: rank 2 holds other values than ranks 0, 1 and 3");
    model.a[0] = static_cast<float>(kolo::rank() / 2);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { kolo::check_replicas(model.parameters); }),
              "parameter \"a\" is not the same on all ranks: ranks 0-3 hold different values; 1 more "
              "parameter differs");
  });
}

TEST_F(Looking, ReplicasOfDifferentNumbersAreSaid) {
  run_in(2, options(), [] {
    Model model;
    if (kolo::rank() == 1) model.parameters.pop_back();
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { kolo::check_replicas(model.parameters); }),
              "check_replicas: ranks disagree: rank 0 has \"b float32 [1000]\"; rank 1 has nothing (the list is over)");
  });
}

TEST_F(Looking, OptimizersCompareReplicasEverySoManySteps) {
  run_in(3, options().with_setting("KOLO_CHECK_REPLICAS", "3"), [] {
    Model model;
    std::vector<float> mean{static_cast<float>(kolo::rank())};  // buffers may differ
    model.parameters.insert(model.parameters.begin(), {"mean", kolo::view(mean)});
    kolo::Sgd sgd(model.parameters, {/*learning_rate=*/0.1});
    kolo::DistributedOptimizer optimizer(sgd, model.parameters);
    for (int step = 1; step < 4; ++step) EXPECT_TRUE(optimizer.step());
    if (kolo::rank() == 1) model.a[7] = 5;
    EXPECT_TRUE(optimizer.step());
    EXPECT_TRUE(optimizer.step());
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { optimizer.step(); }),
              "parameter \"a\" is not the same on all ranks after step 6 (KOLO_CHECK_REPLICAS): rank 1 holds other "
              "values than ranks 0 and 2");
  });
}

/// The sentence of ranks that begin unequal.
std::string unequal(const std::string& name, const std::string& who) {
  return "parameter \"" + name + "\" is not the same on all ranks before the first step: " + who +
         ". Give all ranks the values of one (broadcast_parameters), or leave out what is to differ "
         "(KOLO_CHECK_REPLICAS=first,-PATTERN)";
}

TEST_F(Looking, RanksThatBeginUnequalAreToldBeforeTheFirstStep) {
  run_in(3, options(), [] {
    Model model;
    if (kolo::rank() == 1) model.a[7] = 5;
    const std::vector<float> before = model.b;
    kolo::Sgd sgd(model.parameters, {/*learning_rate=*/0.1});
    kolo::DistributedOptimizer optimizer(sgd, model.parameters);
    for (int tries = 0; tries < 2; ++tries) {
      std::fill(model.grad_b.begin(), model.grad_b.end(), 1.0F);
      EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { optimizer.step(); }),
                unequal("a", "rank 1 holds other values than ranks 0 and 2"));
      EXPECT_EQ(model.b, before);
    }
    kolo::broadcast_parameters(model.parameters);
    EXPECT_TRUE(optimizer.step());
    if (kolo::rank() == 1) model.a[7] = 6;  // nobody looks again
    EXPECT_TRUE(optimizer.step());
  });
}

TEST_F(Looking, EachWayToStepComparesFirst) {
  run_in(2, options(), [] {
    const auto sentence = [](const auto& step) {
      Model model;
      model.b[1] = static_cast<float>(kolo::rank());
      kolo::Sgd sgd(model.parameters, {/*learning_rate=*/0.1});
      kolo::DistributedOptimizer optimizer(sgd, model.parameters);
      return sentence_of(ErrorCode::mismatch, [&] { step(optimizer); });
    };
    const std::string wanted = unequal("b", "ranks 0 and 1 hold different values");
    kolo::LossScaler scaler;
    EXPECT_EQ(sentence([](auto& optimizer) { optimizer.step(std::size_t{3}); }), wanted);
    EXPECT_EQ(sentence([&](auto& optimizer) { optimizer.step(scaler); }), wanted);
    EXPECT_EQ(scaler.skipped(), 0);
  });
}

TEST_F(Looking, BitsAreComparedBeforeTheFirstStep) {
  const auto step_from = [](float a) {
    Model model;
    model.a[3] = a;
    kolo::Sgd sgd(model.parameters, {/*learning_rate=*/0.1});
    kolo::DistributedOptimizer optimizer(sgd, model.parameters);
    optimizer.step();
  };
  run_in(2, options(), [&] {
    step_from(std::numeric_limits<float>::quiet_NaN());  // equal bits are equal
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { step_from(kolo::rank() == 0 ? 0.0F : -0.0F); }),
              unequal("a", "ranks 0 and 1 hold different values"));
  });
}

TEST_F(Looking, WhatIsToDifferIsLeftOut) {
  for (const std::string setting : {"first,-a", "off", "2,-*", "-b,-?,-a*"}) {
    run_in(2, options().with_setting("KOLO_CHECK_REPLICAS", setting), [] {
      Model model;
      model.a[0] = static_cast<float>(kolo::rank());
      kolo::Sgd sgd(model.parameters, {/*learning_rate=*/0.1});
      kolo::DistributedOptimizer optimizer(sgd, model.parameters);
      for (int step = 0; step < 3; ++step) EXPECT_TRUE(optimizer.step());
    });
  }
  run_in(2, options().with_setting("KOLO_CHECK_REPLICAS", "first,-a"), [] {
    Model model;
    model.a[0] = model.b[0] = static_cast<float>(kolo::rank());
    kolo::Sgd sgd(model.parameters, {/*learning_rate=*/0.1});
    kolo::DistributedOptimizer optimizer(sgd, model.parameters);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { optimizer.step(); }),
              unequal("b", "ranks 0 and 1 hold different values"));
  });
}

// Each rank steps them on two threads, and nothing says in which order the first steps begin.
TEST_F(Looking, OptimizersOfTwoThreadsAreComparedEachWithItself) {
  run_in(2, options(), [] {
    Model first, second;
    for (kolo::Parameter& parameter : second.parameters) parameter.name += "'";
    second.a[0] = 4;
    kolo::Sgd one(first.parameters, {/*learning_rate=*/0.1}), two(second.parameters, {/*learning_rate=*/0.1});
    kolo::DistributedOptimizer steps_one(one, first.parameters), steps_two(two, second.parameters);
    const auto train = [](auto& optimizer) {
      for (int step = 0; step < 3; ++step) EXPECT_TRUE(optimizer.step());
    };
    const bool is_first = kolo::rank() == 0;
    std::thread other([&] { train(is_first ? steps_one : steps_two); });
    train(is_first ? steps_two : steps_one);
    other.join();
  });
}

TEST_F(Looking, RanksThatHaveJoinedAreNotCompared) {
  run_in(3, options(), [] {
    Model model;
    if (kolo::rank() == 0) model.a[7] = 5;
    kolo::Sgd sgd(model.parameters, {/*learning_rate=*/0.1});
    kolo::DistributedOptimizer optimizer(sgd, model.parameters);
    if (kolo::rank() != 0) {
      EXPECT_TRUE(optimizer.step());
    }
    kolo::join();
  });
  run_in(3, options(), [] {
    Model model;
    if (kolo::rank() == 2) model.a[7] = 5;
    kolo::Sgd sgd(model.parameters, {/*learning_rate=*/0.1});
    kolo::DistributedOptimizer optimizer(sgd, model.parameters);
    if (kolo::rank() != 0) {
      EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { optimizer.step(); }),
                unequal("a", "ranks 1 and 2 hold different values"));
    }
    kolo::join();
  });
}

}  // namespace
