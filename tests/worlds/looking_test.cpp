// SPDX-License-Identifier: Apache-2.0
//
// Looking at a job: recorders while it runs and after, timelines, and the check of NaN.
#include <barrier>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <kolo/kolo.hpp>

#include "errors.hpp"

namespace {

namespace fs = std::filesystem;

using kolo::ErrorCode;
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
  /// As viewers read it: the end of the array is missing.
  [[nodiscard]] Json timeline(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    while (!text.empty() && (text.back() == '\n' || text.back() == ',')) text.pop_back();
    return Json::parse(text + "]");
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
  kolo::run_local(
      3,
      [&] {
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
      },
      options());
  EXPECT_TRUE(fs::is_empty(folder_ + "/recorders"));
  EXPECT_EQ(
      sentence_of(ErrorCode::invalid_argument, [this] { static_cast<void>(explain()); }),
      "there is no recorder in \"" + folder_ +
          "/recorders\": give the directory of a job or of jobs (KOLO_RECORDER). Jobs that ended in order leave none");
}

TEST_F(Looking, AMismatchIsTold) {
  std::barrier outside(2);
  kolo::run_local(
      2,
      [&] {
        std::vector<float> tensor(kolo::rank() == 0 ? 2 : 3);
        EXPECT_THROW(kolo::allreduce("w", kolo::view(tensor)), kolo::Error);
        outside.arrive_and_wait();
        if (kolo::rank() == 0) {
          const kolo::JobReport report = explain();
          EXPECT_EQ(report.verdict, "mismatch");
          EXPECT_NE(report.sentences.back().find("ranks disagree about shape"), std::string::npos);
        }
        outside.arrive_and_wait();
      },
      options());
}

TEST_F(Looking, OffAndWithoutAPlaceTheJobGoesOn) {
  for (const char* const place : {"off", "/proc/nowhere/else"}) {
    const std::string setting = place;
    std::vector<std::string> said;
    kolo::run_local(
        2,
        [] {
          std::vector<float> tensor(5, 1);
          kolo::allreduce("w", kolo::view(tensor));
          EXPECT_EQ(tensor.front(), 2);
        },
        kolo::Options{}.with_setting("KOLO_RECORDER", setting).with_log_sink([&said](const kolo::LogRecord& record) {
          said.push_back(record.message);
        }));
    ASSERT_EQ(said.size(), setting == "off" ? 0U : 1U);
    for (const std::string& sentence : said) {
      EXPECT_TRUE(kolo::testing::has(sentence, {"nothing is recorded for kolo-why (KOLO_RECORDER): "}));
    }
  }
}

TEST_F(Looking, ATimelineHasWhatAllRanksDid) {
  kolo::run_local(
      3,
      [this] {
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
      },
      options());
  const Json first = timeline("first.json");
  const Json second = timeline("second.json");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(count(first, "allreduce", rank), 8U);
    EXPECT_EQ(count(first, "step 4 ends", rank), 1U);
    EXPECT_EQ(count(second, "allreduce", rank), 1U);
    EXPECT_EQ(count(second, "process_name", rank), 1U);
  }
}

TEST_F(Looking, ATimelineThatCannotBeMadeIsAnErrorOnAllRanks) {
  kolo::run_local(
      2,
      [this] {
        EXPECT_EQ(sentence_of(ErrorCode::transport, [this] { kolo::start_timeline(folder_ + "/none/run.json"); }),
                  "rank 0: open " + folder_ + "/none/run.json: No such file or directory (errno 2)");
      },
      options());
}

TEST_F(Looking, ANanIsRefusedWithItsPlace) {
  kolo::run_local(
      2,
      [] {
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
        kolo::Prepared prepared = kolo::prepare(kolo::world(), "p", kolo::Call::allreduce(kolo::view(tensor)));
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
      },
      kolo::Options{}.with_setting("KOLO_CHECK_NAN", "1").with_setting("KOLO_TIMEOUT_S", "100"));
}

}  // namespace
