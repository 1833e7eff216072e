// SPDX-License-Identifier: Apache-2.0
//
// Worlds that cannot be made, or not by everybody: all ranks hear of it, and nobody waits for one that has given up.
#include <sys/resource.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <kolo/collectives.hpp>

#include "api/access.hpp"
#include "bootstrap/thread_world.hpp"
#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::testing::has;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

/// Leaves this process so many descriptors more than it has open.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t spare) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(open) - 1 + spare;  // one was for looking
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

/// At whatever step they run out, until there are enough.
TEST(Start, WithoutDescriptorsFailsAtOnceAndSaysWhoLacksThem) {
  std::atomic<int> bodies{0};
  rlim_t spare = 0;
  for (; bodies == 0; ++spare) {
    const FewDescriptors few(spare);
    try {
      kolo::run_local(4, [&] { ++bodies; });
    } catch (const kolo::Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::transport);
      EXPECT_TRUE(has(error.status().message(), {"rank ", ": Too many open files (errno 24)"}));
      ASSERT_EQ(bodies, 0);
    }
  }
  EXPECT_EQ(bodies, 4);
  EXPECT_GT(spare, 4U);
  kolo::run_local(4, [] { EXPECT_EQ(kolo::allreduce(1, kolo::ReduceOp::sum), 4); });
}

TEST(Start, ABadSettingIsEveryRanks) {
  const auto options = kolo::Options{}.with_setting("KOLO_SLOTS", "many");
  EXPECT_EQ(sentence_of(ErrorCode::invalid_setting, [&] { run_in(3, options, [] {}); }),
            "rank 0: KOLO_SLOTS is \"many\" (option); expected an integer in the range 0 .. 64");
}

/// Shared settings that differ: rank 0's hold, and whoever chose another one is told so. (The latch timeout is one of
/// them: the sequencer waits by rank 0's, and the ranks must wait as long.)
TEST(Start, ASharedSettingThatDiffersIsRankZeros) {
  std::mutex mutex;
  std::vector<std::string> records;
  kolo::bootstrap::ThreadWorld world(2);
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back([&, rank] {
      kolo::Options options;
      options.with_setting("KOLO_LATCH_TIMEOUT_S", rank == 0 ? "7" : "3").with_setting("KOLO_TIMEOUT_S", "60");
      if (rank == 1) options.with_setting("KOLO_SLOTS", "6");
      if (rank == 0) options.with_setting("KOLO_SLOTS", "5").with_setting("KOLO_OPEN_BATCHES", "3");
      options.log_sink = [&](const kolo::LogRecord& record) {
        const std::lock_guard lock(mutex);
        if (record.rank == 1) records.push_back(record.message);  // rank 0 may find unknown variables
      };
      kolo::Context context(kolo::Bootstrap(std::make_unique<kolo::detail::BootstrapHolder>(world.bootstrap(rank))),
                            options);
      EXPECT_EQ(kolo::allreduce(context, 1, kolo::ReduceOp::sum), 2);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(records,
            (std::vector<std::string>{"KOLO_LATCH_TIMEOUT_S is 3 on this rank and 7 on rank 0, whose value is used",
                                      "KOLO_SLOTS is 6 on this rank and 5 on rank 0, whose value is used"}));
}

/// On all threads alike.
TEST(Start, InitAndShutdownAreRefusedInsideRunLocal) {
  kolo::run_local(3, [] {
    EXPECT_EQ(
        sentence_of(ErrorCode::invalid_argument, [] { kolo::init(); }),
        "kolo::init: this thread has a context already, that of run_local or of a ContextGuard; leave init out, or "
        "use a kolo::Session, which takes what is there");
    EXPECT_EQ(
        sentence_of(ErrorCode::invalid_argument, [] { kolo::shutdown(); }),
        "kolo::shutdown: this thread's context is that of run_local or of a ContextGuard, and not init's; whoever "
        "made it shuts it down");
    const kolo::Session session;  // a guest
    EXPECT_EQ(kolo::size(), 3);
  });
  EXPECT_FALSE(kolo::is_initialized());
}

/// A variable of the environment, for a scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { EXPECT_EQ(::setenv(name, value, 1), 0); }
  ~Variable() { EXPECT_EQ(::unsetenv(name_), 0); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(Start, ALauncherThatCannotBeJoinedIsAnErrorAndNotManyWorldsOfOne) {
  for (const char* name : {"WORLD_SIZE", "HOROVOD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const Variable size(name, "8");
    for (int way = 0; way < 2; ++way) {
      const std::string sentence = sentence_of(ErrorCode::transport, [&] {
        if (way == 0) kolo::init();
        const kolo::Context context;
      });
      EXPECT_TRUE(has(sentence, {(name + std::string(" says that a launcher has started 8 processes, but each of them "
                                                     "would be alone: "))
                                     .c_str(),
                                 ", or set KOLO_ALONE=1 if each is to run alone"}));
    }
    const Variable alone("KOLO_ALONE", "1");
    EXPECT_EQ(kolo::Context().size(), 1);
  }
  const Variable job("SLURM_STEP_NUM_TASKS", "8");  // in which torchrun has started one
  const Variable torchrun("WORLD_SIZE", "1");
  EXPECT_EQ(kolo::Context().size(), 1);
  EXPECT_EQ(kolo::Context::alone().size(), 1);
}

TEST(Start, RingsOfAnySizeInTheirRange) {
  for (const char* size : {"4K", "5000", "4097"}) {
    run_in(2, {{"KOLO_MESSAGE_RING", size}, {"KOLO_LOG_RING", size}}, [] {
      for (int i = 0; i < 100; ++i) {
        float x = 1;
        kolo::allreduce("t" + std::to_string(i), kolo::view(&x, {1}));
        EXPECT_EQ(x, 2.0F);
      }
    });
  }
}

}  // namespace
