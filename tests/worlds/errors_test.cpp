// SPDX-License-Identifier: Apache-2.0
//
// What a caller can do wrong beyond one call (refusals_test.cpp): names in flight, handles, settings, contexts; the
// code and the sentence, and that the job goes on afterwards.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>
#include <kolo/objects.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::testing::has;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

// ---------------------------------------------------------------- a name is in flight once

TEST(Duplicates, InFlight) {
  // Rank 1 lets rank 0 try again while the first submission waits for it.
  std::promise<void> tried;
  const std::shared_future<void> was_tried = tried.get_future().share();
  kolo::run_local(2, [&] {
    std::vector<float> x{1};
    std::vector<float> y{10};
    if (kolo::rank() == 0) {
      kolo::Handle first = kolo::allreduce_async("x", kolo::view(x));
      const std::string wanted =
          "tensor \"x\" is already in flight: wait for its handle before submitting the name again, or give the second "
          "tensor another name";
      EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { (void)kolo::allreduce_async("x", kolo::view(y)); }),
                wanted);
      EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { kolo::allreduce("x", kolo::view(y)); }), wanted);
      EXPECT_EQ(sentence_of(ErrorCode::duplicate_name,
                            [&] { (void)kolo::prepare("x", kolo::Call::allreduce(kolo::view(y))); }),
                wanted);
      tried.set_value();
      first.wait();
    } else {
      was_tried.wait();
      kolo::allreduce("x", kolo::view(x));
    }
    EXPECT_EQ(x, std::vector<float>{2});
    EXPECT_EQ(y, std::vector<float>{10});
    kolo::allreduce("x", kolo::view(y));
    EXPECT_EQ(y, std::vector<float>{20});
  });
}

/// Many rounds of two threads that submit one name at the same time on every rank: one wins, or - where it was quick -
/// both, one after the other; what was refused was not reduced.
TEST(Duplicates, TwoThreadsAtOnce) {
  constexpr int kRounds = 200;
  std::vector<std::promise<void>> both_tried(kRounds);
  std::vector<std::shared_future<void>> were_tried;
  for (auto& one : both_tried) were_tried.push_back(one.get_future().share());
  kolo::run_local(2, [&] {
    kolo::Context& context = kolo::current_context();
    for (std::size_t round = 0; round < kRounds; ++round) {
      std::array<std::vector<float>, 2> x{std::vector<float>{1}, std::vector<float>{100}};
      if (kolo::rank() == 1) {  // nothing completes before both threads of rank 0 have tried
        were_tried[round].wait();
        kolo::allreduce("x", kolo::view(x[0]));
        continue;
      }
      std::array<kolo::Handle, 2> handles;
      std::atomic<int> at_the_line{0};
      std::atomic<int> refused{0};
      const auto submit = [&](std::size_t which) {
        at_the_line.fetch_add(1);
        while (at_the_line.load() < 2) std::this_thread::yield();
        try {
          handles[which] = kolo::allreduce_async({context, "x"}, kolo::view(x[which]));
        } catch (const kolo::Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::duplicate_name);
          refused.fetch_add(1);
        }
      };
      std::thread other(submit, 1);
      submit(0);
      other.join();
      both_tried[round].set_value();
      ASSERT_EQ(refused.load(), 1);
      const std::size_t winner = handles[0].valid() ? 0 : 1;
      handles[winner].wait();
      EXPECT_EQ(x[winner][0], winner == 0 ? 2.0F : 101.0F);
      EXPECT_EQ(x[1 - winner][0], winner == 0 ? 100.0F : 1.0F);
    }
  });
}

TEST(Duplicates, PreparedRequestsHoldTheirNames) {
  kolo::Context context;
  std::vector<float> x{1};
  std::vector<float> y{2};
  const std::string held = "the name \"x\" belongs to a prepared request: start that one, or use another name";
  {
    kolo::Prepared prepared = kolo::prepare({context, "x"}, kolo::Call::allreduce(kolo::view(x)));
    EXPECT_EQ(sentence_of(ErrorCode::duplicate_name,
                          [&] {
                            (void)kolo::prepare({context, "x"}, kolo::Call::allreduce(kolo::view(y)));
                          }),
              held);
    EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { kolo::allreduce({context, "x"}, kolo::view(y)); }), held);
    prepared.start().wait();
    kolo::Prepared moved = std::move(prepared);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)prepared.start(); }),
              "this prepared request is empty: it was moved from, or never made");
    moved.start().wait();
  }
  kolo::allreduce({context, "x"}, kolo::view(y));
  kolo::Prepared again = kolo::prepare({context, "x"}, kolo::Call::broadcast(kolo::view(y), 0));
  again.start().wait();
}

TEST(Duplicates, PreparedRequestStartedTwice) {
  std::promise<void> tried;
  const std::shared_future<void> was_tried = tried.get_future().share();
  kolo::run_local(2, [&] {
    std::vector<float> x{1};
    kolo::Prepared prepared = kolo::prepare("x", kolo::Call::allreduce(kolo::view(x)));
    if (kolo::rank() == 1) was_tried.wait();
    kolo::Handle handle = prepared.start();
    if (kolo::rank() == 0) {
      EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { (void)prepared.start(); }),
                "tensor \"x\" is already in flight: wait for its handle before submitting the name again, or give the "
                "second tensor another name");
      tried.set_value();
    }
    handle.wait();
    EXPECT_EQ(x, std::vector<float>{2});
    prepared.start().wait();
    EXPECT_EQ(x, std::vector<float>{4});
  });
}

// ---------------------------------------------------------------- ranks that disagree

// ---------------------------------------------------------------- handles

TEST(Handles, Empty) {
  kolo::Context context;
  kolo::Handle empty;
  const std::string wanted = "this handle is empty: it was moved from, or never started";
  EXPECT_FALSE(empty.valid());
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { empty.wait(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)empty.wait_for(std::chrono::seconds(1)); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)empty.done(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)empty.status(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { empty.on_done([](const kolo::Status&) {}); }), wanted);
  std::vector<float> x{1};
  std::vector<kolo::Handle> handles(2);
  handles[0] = kolo::allreduce_async({context, "x"}, kolo::view(x));
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::wait_all(handles); }), wanted);
  kolo::Handle moved = std::move(handles[0]);
  EXPECT_FALSE(handles[0].valid());
  moved.wait();
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { moved.on_done({}); }), "on_done needs something to call");
  kolo::wait_all({});
}

TEST(Handles, ResultsAreTakenOnce) {
  kolo::Context context;
  const std::vector<float> x{1, 2};
  kolo::Future<kolo::Tensor> future = kolo::allgather_async({context, "x"}, kolo::const_view(x));
  const kolo::Tensor result = future.get();
  EXPECT_EQ(result.as<float>()[1], 2.0F);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)future.get(); }),
            "the result of this operation has been taken already");
  EXPECT_TRUE(
      has(sentence_of(ErrorCode::invalid_argument, [&] { (void)result.as<double>(); }), {"float32", "float64"}));
  kolo::Future<kolo::AlltoallResult> exchanged = kolo::alltoall_async({context, "x"}, kolo::const_view(x));
  EXPECT_EQ(exchanged.get().received_splits, std::vector<std::int64_t>{2});
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)exchanged.get(); }),
            "the result of this operation has been taken already");
}

TEST(Handles, EveryWayOfWaitingInsideACallback) {
  kolo::run_local(2, [] {
    kolo::Context& context = kolo::current_context();
    std::vector<float> x{1};
    std::vector<float> y{1};
    kolo::Handle late = kolo::allreduce_async("late", kolo::view(y));  // rank 1 submits it after the callback
    if (kolo::rank() == 0) {
      kolo::Handle first = kolo::allreduce_async("x", kolo::view(x));
      std::promise<void> called;
      first.on_done([&](const kolo::Status&) {
        const std::string wanted =
            "a callback of on_done must not wait for an operation: start it there, and wait elsewhere";
        kolo::Handle open = kolo::barrier_async({context, "open"});
        EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { open.wait(); }), wanted);
        EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)open.wait_for(std::chrono::seconds(9)); }),
                  wanted);
        EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::wait_all(kolo::Span<kolo::Handle>(&open, 1)); }),
                  wanted);
        EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::barrier(context); }), wanted);
        EXPECT_FALSE(open.done());  // looking is allowed
        called.set_value();
      });
      first.wait();
      called.get_future().wait();
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
      kolo::barrier_async("open2").wait();
    } else {
      kolo::allreduce("x", kolo::view(x));
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);  // rank 0's callback has run
      kolo::Handle open = kolo::barrier_async("open");
      open.wait();
      kolo::barrier_async("open2").wait();
    }
    late.wait();
  });
}

TEST(Handles, CallbacksThatThrowAreLoggedAndDropped) {
  std::mutex mutex;
  std::vector<std::string> errors;
  const auto sink = [&](const kolo::LogRecord& record) {
    const std::lock_guard lock(mutex);
    if (record.level == kolo::LogLevel::error) errors.push_back(record.message);
  };
  {
    kolo::Context context(kolo::Options{}.with_log_sink(sink));
    std::vector<float> x{1};
    std::promise<void> second;
    kolo::Handle handle = kolo::allreduce_async({context, "x"}, kolo::view(x));
    bool inline_throw = false;
    try {
      handle.on_done([](const kolo::Status&) { throw std::runtime_error("mine"); });
    } catch (const std::runtime_error&) {
      inline_throw = true;
    }
    handle.on_done([&](const kolo::Status&) { second.set_value(); });
    second.get_future().wait();
    EXPECT_FALSE(inline_throw) << "an exception of a callback that runs at once is dropped, too";
    kolo::allreduce({context, "x"}, kolo::view(x));
  }
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0], "a callback of on_done threw an exception, which was dropped: mine");
}

// ---------------------------------------------------------------- settings

TEST(Settings, BadValuesNameTheVariableTheValueAndTheRange) {
  const auto refused = [](const char* name, const char* value) {
    const kolo::Options options = kolo::Options{}.with_setting(name, value);
    std::atomic<int> ran{0};
    const std::string sentence = sentence_of(ErrorCode::invalid_setting, [&] { run_in(3, options, [&] { ++ran; }); });
    EXPECT_EQ(ran.load(), 0) << "the body of a world that cannot be made runs nowhere";
    const std::string alone = sentence_of(ErrorCode::invalid_setting, [&] { const kolo::Context context(options); });
    EXPECT_TRUE(has(sentence, {alone.c_str()}));
    return sentence;
  };
  EXPECT_TRUE(has(refused("KOLO_TIMEOUT_S", "soon"), {"KOLO_TIMEOUT_S", "soon", "0.001 .. 1000000000"}));
  EXPECT_TRUE(has(refused("KOLO_TIMEOUT_S", "0"), {"KOLO_TIMEOUT_S", "\"0\"", "0.001 .. 1000000000"}));
  EXPECT_TRUE(has(refused("KOLO_TIMEOUT_S", "nan"), {"KOLO_TIMEOUT_S", "nan", "0.001 .. 1000000000"}));
  EXPECT_TRUE(has(refused("KOLO_SLOTS", "65"), {"KOLO_SLOTS", "\"65\"", "0 .. 64"}));
  EXPECT_TRUE(has(refused("KOLO_PLAN", "perhaps"), {"KOLO_PLAN", "perhaps", "true or false"}));
  EXPECT_TRUE(has(refused("KOLO_LOG_LEVEL", "loud"), {"KOLO_LOG_LEVEL", "loud", "trace, debug, info"}));
  EXPECT_TRUE(has(refused("KOLO_FUSION_THRESHOLD", "-1"), {"KOLO_FUSION_THRESHOLD", "-1", "0 .. 1T"}));
  EXPECT_TRUE(has(refused("KOLO_INTERFACE", "10.1.0.0/99"),
                  {"KOLO_INTERFACE=10.1.0.0/99 matches no address of this machine; give an interface's name, "}));
  EXPECT_TRUE(has(refused("KOLO_TIMEOUTS", "1"), {"KOLO_TIMEOUTS", "did you mean KOLO_TIMEOUT_S?"}));
}

// ---------------------------------------------------------------- life

TEST(Life, ContextThatWasMovedFrom) {
  kolo::Context context;
  kolo::Context other = std::move(context);
  const std::string wanted = "this context was moved from";
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [&] { (void)context.rank(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [&] { kolo::barrier(context); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [&] { (void)kolo::metrics(context); }), wanted);
  context.shutdown();  // nothing to leave
  kolo::barrier(other);
  context = std::move(other);
  kolo::barrier(context);
}

TEST(Life, UseAfterShutdown) {
  kolo::Context context;
  std::vector<float> x{1};
  kolo::Prepared prepared = kolo::prepare({context, "p"}, kolo::Call::allreduce(kolo::view(x)));
  kolo::Handle done = kolo::allreduce_async({context, "x"}, kolo::view(x));
  done.wait();
  context.shutdown();
  context.shutdown();  // a second call does nothing
  const std::string wanted = "this context was shut down";
  EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { kolo::allreduce({context, "x"}, kolo::view(x)); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down,
                        [&] {
                          (void)kolo::allreduce_async({context, "x"}, kolo::view(x));
                        }),
            wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { kolo::barrier(context); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { kolo::end_step(context); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down, [&] { (void)prepared.start(); }), wanted);
  EXPECT_EQ(sentence_of(ErrorCode::shut_down,
                        [&] {
                          (void)kolo::prepare({context, "q"}, kolo::Call::allreduce(kolo::view(x)));
                        }),
            wanted);
  EXPECT_EQ(context.rank(), 0);
  done.wait();  // its outcome stays
}

TEST(Life, OpenOperationsFailAtShutdown) {
  kolo::run_local(2, [] {
    std::vector<float> x{1};
    kolo::Handle handle;
    if (kolo::rank() == 0) handle = kolo::allreduce_async("x", kolo::view(x));
    kolo::current_context().shutdown();
    if (kolo::rank() == 0) {
      ASSERT_TRUE(handle.done());
      const ErrorCode code = handle.status()->code();
      EXPECT_TRUE(code == ErrorCode::shut_down || code == ErrorCode::rank_lost) << handle.status()->message();
      EXPECT_THROW(handle.wait(), kolo::Error);
    }
  });
}

TEST(Life, InitTwiceAndAgain) {
  EXPECT_FALSE(kolo::is_initialized());
  EXPECT_EQ(sentence_of(ErrorCode::not_initialized, [] { (void)kolo::rank(); }),
            "this thread has no context: call kolo::init() first (or make a kolo::Session, pass a kolo::Context, or "
            "bind one to this thread by a kolo::ContextGuard)");
  kolo::shutdown();  // nothing to do
  for (int round = 0; round < 3; ++round) {
    kolo::init();
    EXPECT_TRUE(kolo::is_initialized());
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [] { kolo::init(); }),
              "kolo::init was called before, and kolo::shutdown has not been");
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [] { const kolo::Session session; }),
              "kolo::init was called before, and kolo::shutdown has not been");
    EXPECT_EQ(kolo::allreduce(3, ReduceOp::sum), 3);  // still there
    kolo::shutdown();
    EXPECT_FALSE(kolo::is_initialized());
  }
  EXPECT_TRUE(
      has(sentence_of(ErrorCode::invalid_setting, [] { kolo::init(kolo::Options{}.with_setting("KOLO_SLOTS", "65")); }),
          {"KOLO_SLOTS"}));
  kolo::init();  // after an init that failed
  kolo::shutdown();
}

TEST(Life, SessionsAndGuards) {
  {
    const kolo::Session session;
    EXPECT_TRUE(kolo::is_initialized());
    kolo::run_local(2, [] {
      const kolo::Session inner;  // joins what is bound to the thread
      EXPECT_EQ(kolo::size(), 2);
      kolo::barrier();
    });
    EXPECT_EQ(kolo::size(), 1);
  }
  EXPECT_FALSE(kolo::is_initialized());
  kolo::run_local(3, [] {
    { const kolo::Session session; }
    EXPECT_EQ(kolo::size(), 3);  // the session left it alone
    kolo::Context alone;
    {
      const kolo::ContextGuard guard(alone);
      EXPECT_EQ(kolo::size(), 1);
      kolo::Context another;
      const kolo::ContextGuard inner(another);
      EXPECT_EQ(kolo::allreduce(7, ReduceOp::sum), 7);
      EXPECT_EQ(&kolo::current_context(), &another);
    }
    EXPECT_EQ(kolo::size(), 3);
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 3);
  });
}

TEST(Life, WorldsInsideWorlds) {
  kolo::run_local(2, [] {
    const int outer = kolo::rank();
    kolo::run_local(3, [outer] { EXPECT_EQ(kolo::allreduce(outer + 1, ReduceOp::sum), 3 * (outer + 1)); });
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

TEST(Life, RunLocalNeedsARank) {
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [] { kolo::run_local(0, [] {}); }),
            "run_local needs at least one rank, not 0");
}

}  // namespace
