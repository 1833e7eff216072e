// SPDX-License-Identifier: Apache-2.0
//
// What a job in good health says of itself, level by level.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>
#include <kolo/log.hpp>

#include "world.hpp"

namespace {

using kolo::LogLevel;
using kolo::testing::run_in;

/// The sink of all ranks of a world.
class Records {
 public:
  kolo::LogSink sink() {
    return [this](const kolo::LogRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    };
  }
  /// The messages of a rank, at this level.
  [[nodiscard]] std::vector<std::string> of(int rank, LogLevel level) const {
    std::vector<std::string> messages;
    for (const kolo::LogRecord& record : records_) {
      if (record.rank == rank && record.level == level) messages.push_back(record.message);
    }
    return messages;
  }
  [[nodiscard]] std::size_t count() const { return records_.size(); }

 private:
  std::mutex mutex_;
  std::vector<kolo::LogRecord> records_;
};

void steps() {
  std::vector<float> small(10, 1.0F);
  std::vector<float> large(40000, 1.0F);
  for (int step = 0; step < 4; ++step) {
    std::vector<kolo::Handle> handles;
    handles.push_back(kolo::allreduce_async("small", kolo::view(small)));
    handles.push_back(kolo::allreduce_async("large", kolo::view(large)));
    kolo::wait_all(handles);
    kolo::end_step();
    kolo::barrier();
  }
  std::vector<float> other(11, 1.0F);
  kolo::allreduce("small", kolo::view(other));
}

Records& run(Records& records, const std::string& level, const std::string& per_node = "0") {
  kolo::Options options;
  options.log_sink = records.sink();
  options.with_setting("KOLO_LOG_LEVEL", level)
      .with_setting("KOLO_RANKS_PER_NODE", per_node)
      .with_setting("KOLO_SLOTS", "4")
      .with_setting("KOLO_SLOT_BYTES", "64K")
      .with_setting("KOLO_ROUTES", "*:none=small");
  run_in(2, options, steps);
  return records;
}

bool has(const std::vector<std::string>& messages, const std::string& wanted) {
  return std::count(messages.begin(), messages.end(), wanted) > 0;
}

TEST(LogRecords, AHealthyJobSaysNothingByItself) {
  Records records;
  EXPECT_EQ(run(records, "warning").count(), 0U);
}

TEST(LogRecords, InfoIsWhatWasFoundAndThePlans) {
  Records records;
  const std::vector<std::string> said = run(records, "info").of(0, LogLevel::info);
  ASSERT_GE(said.size(), 5U);
  EXPECT_EQ(said[0], "Kolo " + std::string(kolo::version()) +
                         ", 2 ranks on 1 node (2); ranks meet by: ranks as threads of one process");
  // Whether slots are written past the cache is measured.
  EXPECT_EQ(said[1].rfind("CPU tensors: shared memory (2 ranks, 4 slots of 64 KiB", 0), 0U) << said[1];
  EXPECT_TRUE(has(said, "peers' memory: may be read"));
  // Why it ends depends on who was first: by a wait, by the other signature, or when the ranks leave.
  for (const char* beginning : {"plan 0: ", "plan 0 is no longer used: "}) {
    EXPECT_TRUE(std::any_of(said.begin(), said.end(), [&](const std::string& one) {
      return one.rfind(beginning, 0) == 0;
    })) << beginning;
  }
  EXPECT_EQ(records.of(1, LogLevel::info), std::vector<std::string>()) << "rank 0 tells for all";
  EXPECT_EQ(records.of(0, LogLevel::debug), std::vector<std::string>());
}

TEST(LogRecords, NodesAreInfo) {
  Records records;
  const std::vector<std::string> said = run(records, "info", "1").of(0, LogLevel::info);
  ASSERT_GE(said.size(), 3U);
  EXPECT_EQ(said[0], "Kolo " + std::string(kolo::version()) +
                         ", 2 ranks on 2 nodes (1, 1); ranks meet by: ranks as threads of one process");
  EXPECT_EQ(said[1], "between nodes: queues between threads (KOLO_TRANSPORT=auto: what comes with the start)");
  EXPECT_EQ(said[2],
            "CPU tensors: shared memory (1 ranks, 4 slots of 64 KiB), queues between threads (2 nodes, 1 lane)");
}

TEST(LogRecords, DebugIsBatchesAndTraceRequests) {
  Records records;
  run(records, "trace");
  for (const int rank : {0, 1}) {
    const std::vector<std::string> batches = records.of(rank, LogLevel::debug);
    EXPECT_TRUE(has(batches, "batch of 1 request: allreduce of 11 float32 elements (flat)"));
    EXPECT_TRUE(std::any_of(batches.begin(), batches.end(), [](const std::string& one) {
      return one.find("allreduce of 40") != std::string::npos && one.find(" (slots)") != std::string::npos;
    }));
    const std::vector<std::string> requests = records.of(rank, LogLevel::trace);
    EXPECT_TRUE(has(requests, "submitted: allreduce of \"large\", 1 tensor of 160000 bytes"));
    EXPECT_TRUE(has(requests, "done: allreduce of \"large\", 1 tensor of 160000 bytes"));
    EXPECT_TRUE(has(requests, "submitted: unnamed barrier"));
  }
}

TEST(LogRecords, AWorldOfOneSaysTheSame) {
  Records records;
  kolo::Options options;
  options.log_sink = records.sink();
  options.with_setting("KOLO_LOG_LEVEL", "trace").with_setting("KOLO_ROUTES", "*:none=small");
  {
    kolo::Context context = kolo::Context::alone(options);
    std::vector<float> x(10, 1.0F);
    kolo::allreduce({context, "x"}, kolo::view(x));
  }
  const std::vector<std::string> said = records.of(0, LogLevel::info);
  ASSERT_GE(said.size(), 2U);
  EXPECT_EQ(said[0].rfind("Kolo " + std::string(kolo::version()) + ", 1 rank on 1 node (1); ranks meet by: ", 0), 0U)
      << said[0];
  EXPECT_EQ(said[1].rfind("CPU tensors: ", 0), 0U) << said[1];
  const std::vector<std::string> debug = records.of(0, LogLevel::debug);
  ASSERT_EQ(debug.size(), 2U);
  EXPECT_EQ(debug[0].rfind("milliseconds of the start, behind the meeting: settings ", 0), 0U) << debug[0];
  EXPECT_EQ(debug[1].rfind("batch of 1 request: allreduce of 10 float32 elements", 0), 0U) << debug[1];
  EXPECT_TRUE(has(records.of(0, LogLevel::trace), "submitted: allreduce of \"x\", 1 tensor of 40 bytes"));
  EXPECT_TRUE(has(records.of(0, LogLevel::trace), "done: allreduce of \"x\", 1 tensor of 40 bytes"));
}

TEST(LogRecords, NamesStandOnOneLineAndInPart) {
  Records records;
  kolo::Options options;
  options.log_sink = records.sink();
  options.with_setting("KOLO_LOG_LEVEL", "trace");
  run_in(2, options, [] {
    float x = 1;
    for (const std::string& name : {std::string("a\nb \x1b[31m\"c\""), std::string(10000, 'x')}) {
      kolo::allreduce_async(name, kolo::view(&x, kolo::Shape{1})).wait();
    }
  });
  for (const int rank : {0, 1}) {
    const std::vector<std::string> requests = records.of(rank, LogLevel::trace);
    for (const std::string& shown :
         {std::string("\"a\\nb \\x1b[31m\\\"c\\\"\""), "\"" + std::string(100, 'x') + "...\" (10000 bytes)"}) {
      for (const char* event : {"submitted", "done"}) {
        const std::string wanted = std::string(event) + ": allreduce of " + shown + ", 1 tensor of 4 bytes";
        EXPECT_TRUE(has(requests, wanted)) << wanted;
      }
    }
  }
}

}  // namespace
