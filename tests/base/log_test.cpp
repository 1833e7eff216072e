// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <ctime>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace kolo::base {
namespace {

TEST(LogLevel, Names) {
  for (const std::string name : {"trace", "debug", "info", "warning", "error", "off"}) {
    const auto level = parse_log_level(name);
    ASSERT_TRUE(level.has_value()) << name;
    EXPECT_EQ(to_string(*level), name);
  }
  EXPECT_EQ(parse_log_level("fatal"), LogLevel::off);
  EXPECT_EQ(parse_log_level("Info"), std::nullopt);
  EXPECT_EQ(to_string(static_cast<LogLevel>(9)), "unknown");
}

TEST(LogLine, Format) {
  std::tm parts{};
  parts.tm_year = 124;
  parts.tm_mday = 5;
  parts.tm_hour = 14;
  parts.tm_min = 3;
  parts.tm_sec = 27;
  parts.tm_isdst = -1;
  LogRecord record;
  record.time = std::chrono::system_clock::from_time_t(std::mktime(&parts)) + std::chrono::milliseconds(12);
  record.level = LogLevel::warning;
  record.message = "slow";
  EXPECT_EQ(format_log_line(record), "[kolo warning 14:03:27.012] slow\n");
  record.rank = 3;
  EXPECT_EQ(format_log_line(record), "[kolo 3 warning 14:03:27.012] slow\n");
}

TEST(Logger, PassesRecordsOfItsLevelAndAbove) {
  std::vector<LogRecord> records;
  Logger logger(LogLevel::info, 7, [&](const LogRecord& record) { records.push_back(record); });
  int evaluated = 0;
  KOLO_LOG(logger, debug) << "not said " << ++evaluated;
  EXPECT_EQ(evaluated, 0);
  KOLO_LOG(logger, info) << "said " << ++evaluated;
  KOLO_LOG(logger, error) << "said " << ++evaluated;
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].message, "said 1");
  EXPECT_EQ(records[0].level, LogLevel::info);
  EXPECT_EQ(records[0].rank, 7);
  EXPECT_EQ(records[1].message, "said 2");
  EXPECT_EQ(records[1].level, LogLevel::error);
  EXPECT_EQ(records[1].rank, 7);
  EXPECT_LE(records[0].time, records[1].time);

  const Logger silent(LogLevel::off, 7, [&](const LogRecord& record) { records.push_back(record); });
  EXPECT_FALSE(silent.enabled(LogLevel::error));
  EXPECT_FALSE(silent.enabled(LogLevel::off));
  KOLO_LOG(silent, error) << "silenced";
  EXPECT_EQ(records.size(), 2U);
}

TEST(Logger, WritesToStandardErrorWithoutASink) {
  const Logger logger(LogLevel::warning, 2);
  testing::internal::CaptureStderr();
  KOLO_LOG(logger, warning) << "to stderr";
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_EQ(written.rfind("[kolo 2 warning ", 0), 0U) << written;
  EXPECT_EQ(written.substr(written.find(']')), "] to stderr\n");
}

TEST(Logger, ASinkMayThrow) {
  const Logger logger(LogLevel::warning, 0, [](const LogRecord&) { throw std::runtime_error("full"); });
  testing::internal::CaptureStderr();
  KOLO_LOG(logger, warning) << "first";
  KOLO_LOG(logger, warning) << "second";
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_NE(written.find("] first\n"), std::string::npos) << written;
  EXPECT_NE(written.find("] second\n"), std::string::npos) << written;
}

TEST(Logger, ASinkMayLog) {
  std::vector<std::string> messages;
  Logger* self = nullptr;
  Logger logger(LogLevel::info, 0, [&](const LogRecord& record) {
    messages.push_back(record.message);
    KOLO_LOG(*self, info) << "from the sink";
  });
  self = &logger;
  testing::internal::CaptureStderr();
  KOLO_LOG(logger, info) << "outer";
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_EQ(messages, std::vector<std::string>{"outer"});
  EXPECT_NE(written.find("] from the sink\n"), std::string::npos) << written;
}

// A program's text, or another rank's, would forge lines, and fill the disk.
TEST(Logger, ARecordIsOneLineOfABoundedLength) {
  std::vector<std::string> messages;
  const Logger logger(LogLevel::info, 0, [&messages](const LogRecord& record) { messages.push_back(record.message); });
  KOLO_LOG(logger, error) << "the reason: a\n[kolo 0 error 12:00:00.000] forged";
  logger.write(LogLevel::error, std::string(50'000'000, 'x'));
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0], "the reason: a\\n[kolo 0 error 12:00:00.000] forged");
  EXPECT_EQ(messages[1], std::string(16384, 'x') + "... (50000000 bytes)");
}

TEST(Logger, ManyThreadsLogOneAtATime) {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  std::multiset<std::string> messages;  // unguarded on purpose: the logger calls one at a time
  Logger logger(LogLevel::info, 0, [&](const LogRecord& record) { messages.insert(record.message); });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&logger, t] {
      for (int i = 0; i < kEach; ++i) KOLO_LOG(logger, info) << t << ':' << i;
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_EQ(messages.size(), static_cast<std::size_t>(kThreads * kEach));
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kEach; ++i) {
      EXPECT_EQ(messages.count(std::to_string(t) + ':' + std::to_string(i)), 1U);
    }
  }
}

}  // namespace
}  // namespace kolo::base
