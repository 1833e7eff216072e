// SPDX-License-Identifier: Apache-2.0
//
// The ways in which a program may submit and wait: from several threads, by several contexts, with prepared requests,
// callbacks, looking instead of waiting, and not at all.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>

#include "steps.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::testing::Gradients;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::worlds;

class Submission : public InWorlds {};

/// Runs `body(thread, context)` on `count` threads of this rank.
template <class Body>
void on_threads(int count, Body body) {
  kolo::Context& context = kolo::current_context();
  std::vector<std::thread> threads;
  for (int thread = 1; thread < count; ++thread) threads.emplace_back([&, thread] { body(thread, context); });
  body(0, context);
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Submission, ThreadsWithTensorsOfTheirOwn) {
  run([] {
    on_threads(3, [](int thread, kolo::Context& context) {
      Gradients gradients(10, "thread" + std::to_string(thread) + ".");
      for (int step = 0; step < 30; ++step) gradients.run(context, step);
    });
  });
}

TEST_P(Submission, OneThreadWaitsWhatAnotherSubmits) {
  run([] {
    kolo::Context& context = kolo::current_context();
    for (int step = 0; step < 20; ++step) {
      Gradients gradients(8);
      std::vector<kolo::Handle> handles;
      std::thread submitter([&] {
        for (std::size_t k = 0; k < gradients.count(); ++k) handles.push_back(gradients.submit(context, k, step));
      });
      submitter.join();
      std::vector<std::thread> waiters;
      for (std::size_t k = 0; k < handles.size(); ++k) {
        waiters.emplace_back([&, k] {
          handles[k].wait();
          gradients.check(k, step, context.size());
        });
      }
      for (std::thread& waiter : waiters) waiter.join();
    }
  });
}

TEST_P(Submission, SeveralWorldsInOneProcess) {
  // Each thread of the outer world is a rank of an inner one, too, and has a world of its own.
  run([] {
    kolo::Context alone;
    kolo::Context& outer = kolo::current_context();
    on_threads(2, [&](int thread, kolo::Context&) {
      Gradients gradients(6, "of thread " + std::to_string(thread) + " ");
      for (int step = 0; step < 15; ++step) {
        gradients.run(outer, step);
        gradients.run(alone, step);
      }
    });
  });
}

TEST_P(Submission, WaitForHandlesOfSeveralWorldsTogether) {
  run([] {
    kolo::Context alone;
    kolo::Context& world = kolo::current_context();
    Gradients here(5);
    Gradients there(5);
    for (int step = 0; step < 10; ++step) {
      std::vector<kolo::Handle> handles;
      for (std::size_t k = 0; k < 5; ++k) {
        handles.push_back(here.submit(alone, k, step));
        handles.push_back(there.submit(world, k, step));
      }
      kolo::wait_all(handles);
      for (std::size_t k = 0; k < 5; ++k) {
        here.check(k, step, 1);
        there.check(k, step, world.size());
      }
    }
  });
}

TEST_P(Submission, PreparedRequestsFromSeveralThreads) {
  run([] {
    on_threads(3, [](int thread, kolo::Context& context) {
      std::vector<float> x(50);
      std::vector<double> y(20);
      std::vector<int> z(10);
      const std::string own = std::to_string(thread);
      kolo::Prepared first = kolo::prepare({context, "x" + own}, kolo::Call::allreduce(kolo::view(x)));
      kolo::Prepared second =
          kolo::prepare({context, "y" + own}, kolo::Call::grouped_allreduce({{"y", kolo::view(y)}}));
      kolo::Prepared third =
          kolo::prepare({context, "z" + own}, kolo::Call::broadcast(kolo::view(z), context.size() - 1));
      for (int step = 0; step < 60; ++step) {
        std::fill(x.begin(), x.end(), static_cast<float>(step));
        std::fill(y.begin(), y.end(), 1.0);
        std::fill(z.begin(), z.end(), context.rank() + step);
        std::array<kolo::Handle, 3> handles{first.start(), second.start(), third.start()};
        if (step % 3 == 0) {
          for (kolo::Handle& handle : handles) handle.wait();
        } else {
          kolo::wait_all(handles);
        }
        ASSERT_EQ(x, std::vector<float>(50, static_cast<float>(step * context.size())));
        ASSERT_EQ(y, std::vector<double>(20, context.size()));
        ASSERT_EQ(z, std::vector<int>(10, context.size() - 1 + step));
      }
    });
  });
}

/// A chain of operations, each started by the callback of the one before: on whatever thread drives.
TEST_P(Submission, CallbacksThatStartTheNext) {
  constexpr int kLinks = 50;
  run([] {
    struct Chain {
      kolo::Context& context;
      std::vector<std::int64_t> x;
      std::promise<void> ended;
      int links = 0;
      void start() {
        kolo::Handle handle = kolo::allreduce_async({context, "chain"}, kolo::view(x));
        handle.on_done([this](const kolo::Status& status) {
          if (!status.ok()) return ended.set_exception(std::make_exception_ptr(kolo::Error(status)));
          if (++links == kLinks) return ended.set_value();
          for (std::int64_t& element : x) element /= context.size();
          start();
        });
      }
    };
    Chain chain{kolo::current_context(), std::vector<std::int64_t>(9, 3), {}, 0};
    chain.start();
    chain.ended.get_future().get();
    EXPECT_EQ(chain.x, std::vector<std::int64_t>(9, 3 * kolo::size()));
  });
}

TEST_P(Submission, WaitForThatExpiresAndThenSucceeds) {
  std::atomic<int> expired{0};
  run([&] {
    std::vector<float> x(4, 1);
    if (kolo::rank() == kolo::size() - 1) {
      while (expired.load() < kolo::size() - 1) std::this_thread::yield();
      kolo::allreduce("x", kolo::view(x));
    } else {
      kolo::Handle handle = kolo::allreduce_async("x", kolo::view(x));
      EXPECT_FALSE(handle.wait_for(std::chrono::milliseconds(20)));
      EXPECT_FALSE(handle.wait_for(std::chrono::milliseconds(0)));
      EXPECT_FALSE(handle.wait_for(std::chrono::seconds(-1)));
      EXPECT_FALSE(handle.status().has_value());
      expired.fetch_add(1);
      EXPECT_TRUE(handle.wait_for(std::chrono::hours(1)));
      EXPECT_TRUE(handle.wait_for(std::chrono::seconds(0)));
    }
    EXPECT_EQ(x, std::vector<float>(4, static_cast<float>(kolo::size())));
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size()) << "expiring is no fault";
  });
}

/// Nobody ever waits: looking at the handle is enough.
TEST_P(Submission, LookingOnly) {
  run([] {
    Gradients gradients(10);
    kolo::Context& context = kolo::current_context();
    for (int step = 0; step < 10; ++step) {
      std::vector<kolo::Handle> handles;
      for (std::size_t k = 0; k < gradients.count(); ++k) handles.push_back(gradients.submit(context, k, step));
      for (std::size_t k = 0; k < gradients.count(); ++k) {
        while (!handles[k].done()) std::this_thread::yield();
        gradients.check(k, step, context.size());
      }
      kolo::end_step();
    }
  });
}

/// Looking at one of a planned batch whose rest comes only after: the plan must give way.
TEST_P(Submission, LookingAtOneByOne) {
  run([] {
    Gradients gradients(5);
    kolo::Context& context = kolo::current_context();
    for (int step = 0; step < 20; ++step) {
      for (std::size_t k = 0; k < gradients.count(); ++k) {
        const kolo::Handle handle = gradients.submit(context, k, step);
        while (!handle.status()) std::this_thread::yield();
        gradients.check(k, step, context.size());
      }
      kolo::end_step();
    }
  });
}

/// A callback counts as a wait, too.
TEST_P(Submission, CallbacksOneByOne) {
  run([] {
    Gradients gradients(5);
    kolo::Context& context = kolo::current_context();
    for (int step = 0; step < 20; ++step) {
      for (std::size_t k = 0; k < gradients.count(); ++k) {
        std::promise<void> done;
        gradients.submit(context, k, step).on_done([&](const kolo::Status& status) {
          EXPECT_TRUE(status.ok()) << status.message();
          done.set_value();
        });
        done.get_future().wait();
        gradients.check(k, step, context.size());
      }
      kolo::end_step();
    }
  });
}

/// Who submits or looks, and does not wait, may hold a lock that another operation's callback wants. The mailbox has
/// room for one: submitters find it full, and empty it themselves.
TEST_P(Submission, CallbacksAreNotForWhoDoesNotWait) {
  run({{"KOLO_MAILBOX", "1"}}, [] {
    kolo::Context& context = kolo::current_context();
    const std::thread::id self = std::this_thread::get_id();
    const kolo::Handle* on_its_own = nullptr;  // this thread's alone: whose callback may run on it now
    std::atomic<int> intruders{0};
    std::vector<std::vector<float>> x(40, std::vector<float>(4, 1));
    for (int round = 0; round < 20; ++round) {
      std::vector<kolo::Handle> handles(x.size());
      std::atomic<std::size_t> called{0};
      for (std::size_t k = 0; k < x.size(); ++k) {
        handles[k] = kolo::allreduce_async({context, "t" + std::to_string(k)}, kolo::view(x[k]));
        on_its_own = &handles[k];
        handles[k].on_done([&, one = &handles[k]](const kolo::Status&) {
          if (std::this_thread::get_id() == self && on_its_own != one) intruders.fetch_add(1);
          called.fetch_add(1, std::memory_order_release);
        });
        on_its_own = nullptr;
      }
      while (called.load(std::memory_order_acquire) < x.size()) {
        for (const kolo::Handle& handle : handles) static_cast<void>(handle.done());
        std::this_thread::yield();
      }
      EXPECT_EQ(intruders.load(), 0) << "round " << round;
    }
  });
}

/// A barrier completes beside what its ranks have started and not finished.
TEST_P(Submission, ABarrierIsNoFence) {
  run([] {
    if (kolo::size() == 1) return;
    std::vector<float> x(4, 1);
    kolo::Handle handle;
    if (kolo::rank() == 0) handle = kolo::allreduce_async("x", kolo::view(x));
    kolo::barrier();
    if (kolo::rank() == 0) {
      EXPECT_FALSE(handle.done());
    }
    kolo::barrier();
    if (kolo::rank() != 0) handle = kolo::allreduce_async("x", kolo::view(x));
    handle.wait();
    EXPECT_EQ(x, std::vector<float>(4, static_cast<float>(kolo::size())));
  });
}

TEST_P(Submission, HandlesThatAreDropped) {
  // Outlives the world: nobody waits for what is gathered from it.
  std::vector<std::vector<float>> memory(static_cast<std::size_t>(GetParam().ranks), std::vector<float>(100, 1));
  run([&memory] {
    kolo::Context& context = kolo::current_context();
    std::vector<std::vector<float>> x(20, std::vector<float>(100, 1));
    for (std::size_t k = 0; k < x.size(); ++k) {
      const kolo::Handle dropped = kolo::allreduce_async({context, "d" + std::to_string(k)}, kolo::view(x[k]));
    }
    // The names come free when the operations complete; a prepared one can then be made under each.
    for (std::size_t k = 0; k < x.size(); ++k) {
      while (true) {
        try {
          const kolo::Prepared prepared =
              kolo::prepare({context, "d" + std::to_string(k)}, kolo::Call::allreduce(kolo::view(x[k])));
          break;
        } catch (const kolo::Error& error) {
          ASSERT_EQ(error.code(), ErrorCode::duplicate_name);
          std::this_thread::yield();
        }
      }
      EXPECT_EQ(x[k], std::vector<float>(100, static_cast<float>(kolo::size())));
    }
    kolo::Future<kolo::Tensor> future =
        kolo::allgather_async("g", kolo::const_view(memory[static_cast<std::size_t>(kolo::rank())]));
    future = {};  // its result has nobody
    kolo::barrier();
  });
}

TEST_P(Submission, BigAndSmallTogether) {
  run([] {
    std::vector<float> big(300'000, 1);
    std::vector<float> small(1, 1);
    for (int step = 0; step < 5; ++step) {
      std::fill(big.begin(), big.end(), 1.0F);
      small[0] = 1;
      kolo::Handle first = kolo::allreduce_async("big", kolo::view(big));
      kolo::Handle second = kolo::allreduce_async("small", kolo::view(small));
      second.wait();
      EXPECT_EQ(small[0], static_cast<float>(kolo::size()));
      first.wait();
      ASSERT_EQ(big, std::vector<float>(big.size(), static_cast<float>(kolo::size())));
      kolo::end_step();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, Submission, worlds({{1, 0}, {2, 0}, {4, 0}, {4, 2}, {3, 1}}), name_of);

}  // namespace
