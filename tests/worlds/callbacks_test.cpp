// SPDX-License-Identifier: Apache-2.0
//
// What the program's own code may do where Kolo calls it: in callbacks of on_done, in what they have captured, and in
// the log sink. The driver's lock is free there; on a lock that is held these tests would hang.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>

#include "children.hpp"
#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

/// The callback is the arena's last owner: the arena goes when the callback has run.
TEST(Callbacks, MayOwnAnArena) {
  std::atomic<bool> registered{false};
  kolo::run_local(2, [&] {
    auto arena = std::make_shared<kolo::GradientArena>(4096, "a");
    const std::weak_ptr<kolo::GradientArena> alive = arena;
    const kolo::TensorView tensor = arena->allocate(kolo::DType::float32, {4});
    auto* const data = static_cast<float*>(tensor.data());
    for (int i = 0; i < 4; ++i) data[i] = static_cast<float>(i + kolo::rank());
    if (kolo::rank() == 1) {
      while (!registered.load()) std::this_thread::yield();
      kolo::allreduce("w", tensor);
      return;
    }
    std::array<float, 4> seen{};
    std::atomic<bool> called{false};
    kolo::Handle handle = kolo::allreduce_async("w", tensor);
    handle.on_done([&seen, &called, data, owner = std::move(arena)](const kolo::Status&) {
      std::copy_n(data, 4, seen.begin());
      called.store(true);
    });
    registered.store(true);
    handle.wait();
    while (!called.load() || !alive.expired()) std::this_thread::yield();
    EXPECT_EQ(seen, (std::array<float, 4>{1.0F, 3.0F, 5.0F, 7.0F}));
  });
}

/// Records come with faults, which are noticed in the middle of a driver's work.
TEST(Callbacks, LogSinkMayAskForMetrics) {
  std::array<std::atomic<kolo::Context*>, 2> contexts{};
  std::atomic<int> asked{0};
  const auto sink = [&](const kolo::LogRecord& record) {
    if (record.level != kolo::LogLevel::error) return;
    EXPECT_GE(kolo::metrics(*contexts.at(static_cast<std::size_t>(record.rank)).load()).submissions, 1U);
    asked.fetch_add(1);
  };
  EXPECT_THROW(run_in(2, kolo::Options{}.with_log_sink(sink),
                      [&] {
                        contexts.at(static_cast<std::size_t>(kolo::rank())).store(&kolo::current_context());
                        std::vector<float> x{1.0F};
                        kolo::allreduce("x", kolo::view(x));
                        EXPECT_EQ(x[0], 2.0F);
                        if (kolo::rank() == 1) throw std::runtime_error("out of luck");
                        kolo::barrier();
                      }),
               kolo::Error);
  EXPECT_EQ(asked.load(), 2);
}

constexpr const char* kNoShutdown =
    "a callback of on_done must not shut its context down, which would wait for the callback: the context stays open; "
    "shut it down outside the callback";

TEST(Callbacks, MustNotShutTheirContextDown) {
  kolo::run_local(2, [] {
    std::vector<float> x{1};
    std::atomic<bool> called{false};
    kolo::Context& context = kolo::current_context();
    kolo::Handle handle = kolo::allreduce_async("w", kolo::view(x), kolo::AllreduceOptions{}.with_op(ReduceOp::sum));
    handle.on_done([&](const kolo::Status&) {
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { context.shutdown(); }), kNoShutdown);
      called.store(true);
    });
    handle.wait();
    while (!called.load()) std::this_thread::yield();
    EXPECT_EQ(x[0], 2.0F);
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);  // the context is still there, for both
  });
}

TEST(Callbacks, MustNotShutTheProcesssContextDown) {
  kolo::init();
  std::vector<float> x{1};
  kolo::Handle handle = kolo::allreduce_async("w", kolo::view(x));
  std::atomic<bool> called{false};
  handle.on_done([&](const kolo::Status&) {
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [] { kolo::shutdown(); }), kNoShutdown);
    called.store(true);
  });
  handle.wait();
  while (!called.load()) std::this_thread::yield();
  EXPECT_TRUE(kolo::is_initialized());
  EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 1);
  kolo::shutdown();
}

struct Records {
  std::mutex mutex;
  std::vector<std::string> messages;  // guarded by mutex
};

/// A destructor cannot throw: it says so once, and leaves the context open.
void destroy_a_context_in_a_callback() {
  const auto records = std::make_shared<Records>();  // as long as the context stays open
  auto context =
      std::make_unique<kolo::Context>(kolo::Options{}.with_log_sink([records](const kolo::LogRecord& record) {
        const std::lock_guard lock(records->mutex);
        records->messages.push_back(record.message);
      }));
  std::vector<float> x{1};
  std::atomic<bool> called{false};
  kolo::Handle handle = kolo::allreduce_async({*context, "w"}, kolo::view(x));
  handle.on_done([&](const kolo::Status&) {
    context.reset();
    called.store(true);
  });
  while (!called.load()) std::this_thread::yield();
  handle.wait();
  const std::lock_guard lock(records->mutex);
  EXPECT_EQ(records->messages,
            (std::vector<std::string>{
                "a kolo::Context was destroyed inside a callback of on_done, where its context cannot be shut "
                "down: the context stays open until the process ends"}));
}

/// In a process of its own: one that has an open context has no children that are ranks.
TEST(Callbacks, ContextDestroyedInACallbackStaysOpen) {
  EXPECT_EQ(kolo::testing::status_of_child(destroy_a_context_in_a_callback), 0);
}

/// There is nobody to tell.
TEST(Callbacks, NothingIsLoggedWhenAWorldOfOneUnwinds) {
  Records records;
  try {
    const kolo::Context context(kolo::Options{}.with_log_sink([&](const kolo::LogRecord& record) {
      const std::lock_guard lock(records.mutex);
      records.messages.push_back(record.message);
    }));
    throw std::runtime_error("mine");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(records.messages, std::vector<std::string>());
}

}  // namespace
