// SPDX-License-Identifier: Apache-2.0
#include "timeline/timeline.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <kolo/error.hpp>

#include "core/collectives.hpp"
#include "core/device_span.hpp"

namespace kolo::timeline {
namespace {

using Json = nlohmann::json;
using recorder::Kind;
using recorder::Record;

constexpr auto kAllreduce = static_cast<std::uint8_t>(core::CollectiveKind::allreduce);

/// As viewers read it: the end of the array may be missing.
Json parse(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ',')) text.pop_back();
  return Json::parse(text + "]");
}

Record record(std::uint64_t time, Kind kind, std::uint64_t id, std::uint32_t round = 0, std::uint32_t amount = 0,
              std::uint8_t detail = 0) {
  return {time, id, round, amount, 0, kind, detail, -1};
}

/// What a writer makes of some events, without what it says of the rank.
Json written(Writer& writer, const std::vector<Record>& records) {
  std::string lines = "[";
  for (const Record& one : records) writer.add(one, lines);
  Json all = parse(lines);
  Json events = Json::array();
  for (const Json& event : all) {
    if (event["ph"] != "M") events.push_back(event);
  }
  return events;
}

TEST(TimelineWriter, ATensorIsNegotiatedAndThenReduced) {
  Writer writer({"", 3, "host", 0, "exact"});
  writer.name(7, "layer \"1\"\n\xff");
  const Json events = written(writer, {record(1000, Kind::submitted, 7, 2, 400, kAllreduce),
                                       record(5500, Kind::batch_begun, 7, 9, 1, recorder::kPlanned),
                                       record(8000, Kind::batch_ended, 0, 9)});
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0], (Json{{"ph", "X"},
                             {"name", "negotiate"},
                             {"pid", 3},
                             {"tid", 10},
                             {"ts", 1.0},
                             {"dur", 4.5},
                             {"args", {{"round", 2}, {"bytes", 400}}}}));
  EXPECT_EQ(events[1], (Json{{"ph", "X"},
                             {"name", "allreduce"},
                             {"pid", 3},
                             {"tid", 10},
                             {"ts", 5.5},
                             {"dur", 2.5},
                             {"args", {{"batch", 9}, {"requests", 1}, {"planned", true}, {"bytes", 400}}}}));
}

TEST(TimelineWriter, ATensorWaitsForTheRankThatWasLast) {
  const auto names_on = [](int rank) {
    Writer writer({"", rank, "host", 0, "exact"});
    Record begun = record(3, Kind::batch_begun, 1, 1, 2);
    begun.last = 2;
    std::vector<std::string> names;
    for (const Json& event :
         written(writer, {record(1, Kind::submitted, 1, 1, 4, kAllreduce),
                          record(2, Kind::submitted, 2, 1, 8, kAllreduce), begun, record(3, Kind::batch_member, 2, 1)}))
      names.push_back(event["name"]);
    return names;
  };
  EXPECT_EQ(names_on(0), (std::vector<std::string>{"waiting for rank 2", "waiting for rank 2"}));
  EXPECT_EQ(names_on(2), (std::vector<std::string>{"negotiate", "negotiate"}));
}

TEST(TimelineWriter, ABatchSaysItsRoutes) {
  Writer writer({"", 0, "host", 0, "exact"});
  Record begun = record(2, Kind::batch_begun, 1, 1, 1, recorder::kUnnamed);
  begun.last = 3;
  const Json events =
      written(writer, {record(1, Kind::called, 0, 1, 100, kAllreduce), begun,
                       record(6, Kind::batch_ended, 0, 1, 0, recorder::kFlat | recorder::kBetweenNodes)});
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(
      events[0]["args"],
      (Json{{"batch", 1}, {"requests", 1}, {"bytes", 100}, {"route", "flat, between nodes"}, {"waited_for_rank", 3}}));
}

TEST(TimelineWriter, MembersOfABatchHaveTheirRows) {
  Writer writer({"", 0, "host", 0, "exact"});
  const Json events =
      written(writer, {record(1, Kind::submitted, 1, 1, 4, kAllreduce), record(2, Kind::submitted, 2, 1, 8, kAllreduce),
                       record(3, Kind::batch_begun, 1, 1, 2), record(3, Kind::batch_member, 2, 1),
                       record(9, Kind::batch_ended, 0, 1)});
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[2]["tid"], 10);
  EXPECT_EQ(events[3]["tid"], 11);
  EXPECT_EQ(events[3]["args"]["bytes"], 8);
}

TEST(TimelineWriter, WhatBeganBeforeTheTimelineIsLeftOut) {
  Writer writer({"", 0, "host", 0, "exact"});
  EXPECT_TRUE(written(writer, {record(3, Kind::batch_begun, 1, 1, 1), record(4, Kind::batch_ended, 0, 1),
                               record(5, Kind::batch_ended, 0, 8), record(6, Kind::wait_ended, 1),
                               record(7, Kind::message_ended, 1)})
                  .empty());
}

TEST(TimelineWriter, WaitsMessagesCallsAndMarks) {
  Writer writer({"", 0, "host", 0, "exact"});
  writer.name(1, "w");
  Record open = record(10, Kind::message_open, 99, 5, 64, 1);
  open.set = 2;
  const Json events = written(
      writer, {record(1000, Kind::wait_begun, 1), record(3000, Kind::wait_ended, 1), open,
               record(40, Kind::message_ended, 99), record(50, Kind::batch_begun, 4, 1, 3, recorder::kUnnamed),
               record(60, Kind::batch_ended, 0, 1), record(70, Kind::step_ended, 0, 0, 8), record(80, Kind::fault, 0)});
  std::vector<std::string> names;
  for (const Json& event : events) names.push_back(event["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"wait for w", "send to rank 2", "unnamed calls", "step 8 ends", "error"}));
}

TEST(TimelineWriter, StreamsOfADeviceHaveRows) {
  Writer writer({"", 1, "host", -1000, "that of the day"});
  const auto span = [](core::DeviceSpan is, std::uint64_t begin, std::uint64_t end) {
    return record(begin, Kind::device_span, end, 9, 400, is.code());
  };
  core::DeviceSpan carried{core::DeviceSpan::What::nccl, core::DeviceSpan::Row::second_nccl, /*in_place=*/true};
  std::string lines = "[";
  writer.add(span({core::DeviceSpan::What::pack, core::DeviceSpan::Row::second_nccl}, 2000, 3500), lines);
  Record of_group = span(carried, 4000, 6000);
  of_group.set = 5;
  writer.add(of_group, lines);
  writer.add(span({core::DeviceSpan::What::unpack, core::DeviceSpan::Row::unpack}, 6000, 7000), lines);
  const Json events = parse(lines);
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[0]["args"]["name"], "device: nccl 2");
  EXPECT_EQ(events[1], (Json{{"ph", "X"},
                             {"name", "pack"},
                             {"pid", 1},
                             {"tid", 6},
                             {"ts", 1.0},
                             {"dur", 1.5},
                             {"args", {{"batch", 9}, {"bytes", 400}}}}));
  EXPECT_EQ(events[2]["name"], "nccl");
  EXPECT_EQ(events[2]["args"], (Json{{"batch", 9}, {"group", 5}, {"bytes", 400}, {"in_place", true}}));
  EXPECT_EQ(events[3]["args"]["name"], "device: unpack");
  EXPECT_EQ(events[4]["tid"], 7);
}

TEST(TimelineWriter, CallsWithoutANameAreShownByTheirCollective) {
  constexpr auto kBroadcast = static_cast<std::uint8_t>(core::CollectiveKind::broadcast);
  Writer writer({"", 0, "host", 0, "exact"});
  std::vector<Record> records;
  for (std::uint32_t call = 1; call <= 4; ++call)
    records.push_back(record(call, Kind::called, 0, call, 100, call < 4 ? kAllreduce : kBroadcast));
  records.push_back(record(5, Kind::batch_begun, 1, 1, 2, recorder::kUnnamed));
  records.push_back(record(6, Kind::batch_ended, 0, 1));
  records.push_back(record(7, Kind::batch_begun, 3, 2, 2, recorder::kUnnamed));
  records.push_back(record(8, Kind::batch_ended, 0, 2));
  const Json events = written(writer, records);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["name"], "allreduce");
  EXPECT_EQ(events[0]["args"], (Json{{"batch", 1}, {"requests", 2}, {"bytes", 200}}));
  EXPECT_EQ(events[1]["name"], "unnamed calls");
}

TEST(TimelineWriter, TimesAreThoseOfRank0) {
  Writer writer({"", 1, "host", -2000, "that of the day"});
  EXPECT_EQ(written(writer, {record(5000, Kind::step_ended, 0)})[0]["ts"], 3.0);
}

class TimelineFile : public ::testing::Test {
 protected:
  TimelineFile() {
    std::string pattern = ::testing::TempDir() + "timelineXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TimelineFile() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path() const { return folder_ + "/run.json"; }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  [[nodiscard]] Json read() const { return Json::parse(text()); }
  std::string folder_;
};

TEST_F(TimelineFile, RanksAppendWholeLines) {
  create(path());
  constexpr int kRanks = 4;
  constexpr std::uint32_t kEach = 10000;
  std::vector<std::thread> ranks;
  std::barrier all_have_begun(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([this, rank, &all_have_begun] {
      Timeline timeline({path(), rank, "host", 0, "exact"}, [](const std::string& what) { ADD_FAILURE() << what; });
      all_have_begun.arrive_and_wait();
      for (std::uint32_t i = 0; i < kEach; ++i) timeline.take(record(i, Kind::step_ended, 0, 0, i));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::vector<std::uint32_t> seen(kRanks);
  for (const Json& event : read()) {
    if (event["ph"] == "M") continue;
    std::uint32_t& next = seen[event["pid"].get<std::size_t>()];
    EXPECT_EQ(event["name"], "step " + std::to_string(next++) + " ends");
  }
  EXPECT_EQ(seen, std::vector<std::uint32_t>(kRanks, kEach));
}

TEST_F(TimelineFile, NothingComesAfterItsEnd) {
  create(path());
  Timeline timeline({path(), 0, "host", 0, "exact"}, [](const std::string& what) { ADD_FAILURE() << what; });
  timeline.name(1, "w");
  timeline.take(record(1, Kind::sentence, 1));
  timeline.end();
  timeline.take(record(2, Kind::sentence, 1));
  timeline.end();
  const Json events = read();
  const Json& last = events[events.size() - 2];  // before the array's end
  EXPECT_EQ(last["name"], "w");
  EXPECT_EQ(last["ts"], 0.001);
}

TEST_F(TimelineFile, IsCompleteOnceTheLastRankHasEnded) {
  create(path());
  const auto refuse = [](const std::string& what) { ADD_FAILURE() << what; };
  constexpr int kRanks = 3;
  std::vector<std::unique_ptr<Timeline>> timelines;
  for (int rank = 0; rank < kRanks; ++rank)
    timelines.push_back(std::make_unique<Timeline>(Place{path(), rank, "host", 0, "exact"}, refuse));
  for (const std::size_t rank : {1U, 0U}) {
    timelines[rank]->end();
    EXPECT_FALSE(Json::accept(text())) << rank;
  }
  timelines[2]->take(record(1, Kind::step_ended, 0, 0, 7));
  timelines[2]->end();
  const Json events = read();
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const Json& one) { return one["name"] == "step 7 ends"; }),
            1);
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const Json& one) { return one["name"] == "process_name"; }),
            kRanks);
}

TEST_F(TimelineFile, AFullDiskEndsItWithASentence) {
  std::vector<std::string> said;
  {
    Timeline timeline({path(), 0, "host", 0, "exact"}, base::UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)),
                      [&said](const std::string& what) { said.push_back(what); });
    timeline.take(record(1, Kind::step_ended, 0));
  }
  EXPECT_EQ(said, std::vector<std::string>{"the timeline ends here: write to " + path() +
                                           ": No space left on device (errno 28)"});
}

// The default for the signal of this limit ends the process.
TEST_F(TimelineFile, TheLimitOfAFilesSizeEndsItWithASentenceAndAWholeLine) {
  std::vector<std::string> said;
  create(path());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  {
    Timeline timeline({path(), 0, "host", 0, "exact"}, [&said](const std::string& what) { said.push_back(what); });
    for (std::uint32_t i = 0; i < 100; ++i) timeline.take(record(i, Kind::step_ended, 0, 0, i));
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(said,
            std::vector<std::string>{"the timeline ends here: write to " + path() + ": File too large (errno 27)"});
  EXPECT_GT(parse(text()).size(), 6U);
}

TEST_F(TimelineFile, OnlyARegularFileIsTaken) {
  const auto error_of = [](const std::string& path) {
    try {
      create(path);
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + ": " + error.status().message();
    }
    return std::string("no error");
  };
  std::ofstream(folder_ + "/victim") << "mine";
  std::filesystem::create_symlink("victim", folder_ + "/link");
  ASSERT_EQ(::mkfifo((folder_ + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of(folder_ + "/link"), "io: " + folder_ + "/link: is a symbolic link, no regular file");
  EXPECT_EQ(error_of(folder_ + "/fifo"), "io: " + folder_ + "/fifo: is a FIFO, no regular file");
  EXPECT_EQ(error_of("/dev/full"), "io: /dev/full: is a device, no regular file");
  EXPECT_EQ(error_of(folder_ + "/none/run.json"), "io: " + folder_ + "/none/run.json: open: No such file or directory");
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/victim"), 4U);
  EXPECT_THROW(Timeline({folder_ + "/none/run.json", 0, "host", 0, "exact"}, {}), Error);
}

// A full pipe without a reader stands for a file system that hangs: write(2) does not return.
TEST_F(TimelineFile, AFileThatTakesNothingHoldsUpNoEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  base::UniqueFd reader(ends[0]);
  const int room = ::fcntl(ends[1], F_GETPIPE_SZ);
  const std::string fill(static_cast<std::size_t>(room), 'x');
  ASSERT_EQ(::write(ends[1], fill.data(), fill.size()), room);
  std::vector<std::string> said;
  {
    Timeline timeline({path(), 0, "host", 0, "exact", std::chrono::milliseconds(50)}, base::UniqueFd(ends[1]),
                      [&said](const std::string& what) { said.push_back(what); });
    for (std::uint32_t i = 0; i < 2 * kMostWaiting; ++i) timeline.take(record(i, Kind::step_ended, 0, 0, i));
  }
  EXPECT_EQ(said, std::vector<std::string>{"the timeline ends here: " + path() +
                                           " did not take the rest within 0.05 s; its file system hangs, or is too "
                                           "slow"});
  // Its thread ends with the pipe's, and says nothing more.
  std::string all(fill.size(), '\0');
  ssize_t got = 1;
  while (got > 0) got = ::read(reader.get(), all.data(), all.size());
  EXPECT_EQ(got, 0);
  EXPECT_EQ(said.size(), 1U);
}

}  // namespace
}  // namespace kolo::timeline
