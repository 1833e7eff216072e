// SPDX-License-Identifier: Apache-2.0
//
// Calls without a name, blocking and asynchronous: the order of the calls is the name.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/detail/counters.hpp>
#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/support/sanitized.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::Group;
using kolo::ReduceOp;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::run_in;
using kolo::testing::sentence_of;
using kolo::testing::With;
using kolo::testing::worlds;

const With kSmallSlots{{"KOLO_SLOT_BYTES", "256"}, {"KOLO_SLOTS", "2"}};

class Unnamed : public InWorlds {
 protected:
  Unnamed() : InWorlds(kSmallSlots) {}
};

TEST_P(Unnamed, ManyInFlight) {
  constexpr int kCalls = kolo::testing::unless_sanitized(5000, 1000);
  run([] {
    const int ranks = kolo::size();
    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<int>> tensors;
      for (int i = 0; i < kCalls; ++i) tensors.emplace_back(i % 3 + 1, kolo::rank() + i + step);
      std::vector<kolo::Handle> handles;
      for (auto& tensor : tensors) handles.push_back(kolo::allreduce_async(kolo::view(tensor), ReduceOp::sum));
      kolo::wait_all(handles);
      for (int i = 0; i < kCalls; ++i) {
        const int sum = ranks * (i + step) + ranks * (ranks - 1) / 2;
        ASSERT_EQ(tensors[static_cast<std::size_t>(i)], std::vector<int>(static_cast<std::size_t>(i % 3 + 1), sum));
      }
    }
    // No name was ever declared, and no plan made.
    EXPECT_EQ(kolo::detail::counters(kolo::current_context()).signatures_sent, 0U);
  });
}

/// Blocking calls come behind the asynchronous ones that were made before, on every rank.
TEST_P(Unnamed, BlockingOnesInBetween) {
  run([] {
    const int ranks = kolo::size();
    for (int i = 0; i < 50; ++i) {
      std::vector<int> x{kolo::rank()};
      kolo::Handle open = kolo::allreduce_async(kolo::view(x), ReduceOp::sum);
      // Some ranks wait first.
      if ((kolo::rank() + i) % 2 == 0) open.wait();
      EXPECT_EQ(kolo::allreduce(i, ReduceOp::sum), ranks * i);
      open.wait();
      EXPECT_EQ(x[0], ranks * (ranks - 1) / 2);
    }
  });
}

/// Each rank chooses for each call whether it waits for it at once, later, or for several together.
TEST_P(Unnamed, SomeRanksWaitWhereOthersDoNot) {
  constexpr int kCalls = kolo::testing::unless_sanitized(600, 200);
  run([] {
    const int ranks = kolo::size();
    std::minstd_rand same(3);
    std::minstd_rand own(static_cast<unsigned>(kolo::rank() + 1));
    std::vector<std::vector<int>> tensors(kCalls);
    std::vector<kolo::Handle> open;
    for (int i = 0; i < kCalls; ++i) {
      // Short ones and long ones, in runs: so that calls avoid the log now and then.
      const std::size_t elements = same() % 8 == 0 ? 5000 : 3;
      std::vector<int>& tensor = tensors[static_cast<std::size_t>(i)];
      tensor.assign(elements, kolo::rank() + i);
      if (i / 20 % 2 == 0 || own() % 2 == 0) {
        kolo::allreduce(kolo::view(tensor), ReduceOp::sum);
        ASSERT_EQ(tensor.back(), ranks * i + ranks * (ranks - 1) / 2) << "call " << i;
      } else {
        open.push_back(kolo::allreduce_async(kolo::view(tensor), ReduceOp::sum));
        if (own() % 3 == 0) kolo::wait_all(std::exchange(open, {}));
      }
    }
    kolo::wait_all(open);
    for (int i = 0; i < kCalls; ++i) {
      const std::vector<int>& tensor = tensors[static_cast<std::size_t>(i)];
      ASSERT_EQ(tensor, std::vector<int>(tensor.size(), ranks * i + ranks * (ranks - 1) / 2)) << "call " << i;
    }
  });
}

/// All ranks come back to one number, whatever each has called in between, past the log or not.
TEST_P(Unnamed, BehindAJoin) {
  run([] {
    const int ranks = kolo::size();
    for (int epoch = 0; epoch < 4; ++epoch) {
      for (int i = 0; i < 5; ++i) EXPECT_EQ(kolo::allreduce(i, ReduceOp::sum), ranks * i);
      std::vector<std::vector<float>> tensors(static_cast<std::size_t>(3 + 2 * kolo::rank()), {1.0F});
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if ((i + static_cast<std::size_t>(epoch)) % 2 == 0) {
          kolo::allreduce(kolo::view(tensors[i]), ReduceOp::max);
        } else {
          kolo::allreduce_async(kolo::view(tensors[i]), ReduceOp::max).wait();
        }
        EXPECT_EQ(tensors[i][0], 1.0F);
      }
      static_cast<void>(kolo::join());
      std::vector<int> x{kolo::rank()};
      kolo::Handle open = kolo::allreduce_async(kolo::view(x), ReduceOp::sum);
      EXPECT_EQ(kolo::allreduce(epoch, ReduceOp::sum), ranks * epoch);
      open.wait();
      EXPECT_EQ(x[0], ranks * (ranks - 1) / 2);
    }
  });
}

/// Kolo's own calls are in another order than the program's.
TEST_P(Unnamed, OnesAroundCallsOfKolosOwn) {
  run([] {
    for (int i = 0; i < 20; ++i) {
      int x = 1;
      kolo::Handle open;
      const auto call = [&] { open = kolo::allreduce_async(kolo::view(&x, 1), ReduceOp::sum); };
      if ((kolo::rank() + i) % 2 == 0) call();
      EXPECT_EQ(kolo::broadcast_object(std::string(static_cast<std::size_t>(kolo::rank() + i), 'x'), 0),
                std::string(static_cast<std::size_t>(i), 'x'));
      EXPECT_EQ(kolo::allgather_object(i).size(), static_cast<std::size_t>(kolo::size()));
      if (i % 5 == 0) {
        const Group all = kolo::world().split(0);
        EXPECT_EQ(kolo::size(all), kolo::size());
      }
      if ((kolo::rank() + i) % 2 != 0) call();
      open.wait();
      EXPECT_EQ(x, kolo::size());
    }
  });
}

/// More signatures than a link has numbers for, and again.
TEST_P(Unnamed, OfManyShapes) {
  run([] {
    for (int step = 0; step < 2; ++step) {
      std::vector<std::vector<float>> tensors;
      for (std::size_t i = 0; i < 700; ++i) tensors.emplace_back(i + 1, 1.0F);
      std::vector<kolo::Handle> handles;
      for (auto& tensor : tensors) handles.push_back(kolo::allreduce_async(kolo::view(tensor), ReduceOp::sum));
      kolo::wait_all(handles);
      for (std::size_t i = 0; i < tensors.size(); ++i)
        ASSERT_EQ(tensors[i], std::vector<float>(i + 1, static_cast<float>(kolo::size())));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Unnamed, worlds({{1, 0}, {2, 0}, {3, 0}, {4, 2}, {4, 1}, {5, 2}}), name_of);

/// A rank that has made many calls before it waited, the last time, says them together the next time.
TEST(UnnamedInBursts, AreSaidTogether) {
  kolo::run_local(2, [] {
    std::vector<float> x(200, 1);
    std::uint64_t fewest = ~std::uint64_t{0};
    for (int step = 0; step < 40; ++step) {
      const std::uint64_t before = kolo::detail::counters().messages_posted;
      std::vector<kolo::Handle> handles;
      for (float& one : x) handles.push_back(kolo::allreduce_async(kolo::view(&one, 1), ReduceOp::max));
      kolo::wait_all(handles);
      fewest = std::min(fewest, kolo::detail::counters().messages_posted - before);
    }
    EXPECT_LE(fewest, 3U);
    EXPECT_EQ(x, std::vector<float>(200, 1));
  });
}

/// Calls that are found together are told together, but before a call of another group or signature, a name, the end of
/// a step, a join, or the end of a group, which come behind them.
TEST(UnnamedInBursts, AreToldBeforeWhatComesBehindThem) {
  kolo::run_local(2, [] {
    const int rank = kolo::rank();
    for (int round = 0; round < 30; ++round) {
      const Group pair = Group::of({1, 0});
      std::vector<std::vector<int>> tensors;
      tensors.reserve(200);
      std::vector<kolo::Handle> handles;
      const auto call = [&](const Group& group, int elements, int times = 1) {
        for (int i = 0; i < times; ++i) {
          tensors.emplace_back(static_cast<std::size_t>(elements),
                               static_cast<int>(tensors.size()) + round * (rank + 1));
          handles.push_back(kolo::allreduce_async(group, kolo::view(tensors.back()), ReduceOp::sum));
        }
      };
      call(kolo::world(), 1, 100);  // a burst, so that what follows is found together
      call(kolo::world(), 2);
      call(pair, 2);
      call(pair, 2, 3);
      call(kolo::world(), 1, 2);
      tensors.emplace_back(1, static_cast<int>(tensors.size()) + round * (rank + 1));
      handles.push_back(kolo::allreduce_async("a name", kolo::view(tensors.back()), ReduceOp::sum));
      call(kolo::world(), 1, 2);
      kolo::end_step();
      call(pair, 1, 2);
      kolo::Future<int> last = kolo::join_async(pair);
      call(kolo::world(), 1, 2);
      kolo::wait_all(handles);
      static_cast<void>(last.get());
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ(tensors[i], std::vector<int>(tensors[i].size(), 2 * static_cast<int>(i) + 3 * round))
            << "call " << i << " of round " << round << ", rank " << rank;
      }
    }
  });
}

/// A rank that waits and ranks that do not make one call: they must agree on it.
TEST(UnnamedThatDiffer, FailWhereSomeRanksWait) {
  kolo::run_local(3, [] {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> x(kolo::rank() == 2 ? 5 : 4, 1.0F);
      const std::string sentence = sentence_of(ErrorCode::mismatch, [&] {
        if ((kolo::rank() + round) % 2 == 0) {
          kolo::allreduce(kolo::view(x));
        } else {
          kolo::allreduce_async(kolo::view(x)).wait();
        }
      });
      EXPECT_TRUE(kolo::testing::has(sentence, {"unnamed call number ", "[4] on ranks 0 and 1; [5] on rank 2"}));
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 3);
    }
  });
}

/// Threads that share a group's sequence: no order is promised, and nothing hangs.
TEST(UnnamedOfSeveralThreads, AreAllMade) {
  constexpr int kCalls = kolo::testing::unless_sanitized(300, 60);
  std::atomic<int> said{0};
  run_in(2,
         kolo::Options{}.with_setting("KOLO_LOG_LEVEL", "debug").with_log_sink([&said](const kolo::LogRecord& record) {
           if (kolo::testing::has(record.message, {"more than one thread makes unnamed calls in the world"})) ++said;
         }),
         [] {
           kolo::Context& context = kolo::current_context();
           const auto blocking = [&context] {
             for (int i = 0; i < kCalls; ++i) {
               int x = 1;
               kolo::allreduce(context, kolo::view(&x, 1), ReduceOp::sum);
               ASSERT_EQ(x, 2);
             }
           };
           std::thread first(blocking);
           std::thread second(blocking);
           std::thread third([&context] {
             for (int i = 0; i < kCalls; ++i) {
               int x = 1;
               kolo::allreduce_async(context, kolo::view(&x, 1), ReduceOp::sum).wait();
               ASSERT_EQ(x, 2);
             }
           });
           for (std::thread* const thread : {&first, &second, &third}) thread->join();
         });
  EXPECT_EQ(said, 2) << "once on each rank";
}

/// A thread sleeps on a call that has no number yet, and another thread's blocking call gives it one. The thread
/// sanitizer judges it.
TEST(UnnamedOfSeveralThreads, MayBeWaitedForBeforeItHasItsNumber) {
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    std::promise<void> has_begun;
    run_in(2, {{"KOLO_SPIN_US", "0"}}, [&has_begun] {
      kolo::Context& context = kolo::current_context();
      const auto blocking = [&context] {
        int x = 1;
        kolo::allreduce(context, kolo::view(&x, 1), ReduceOp::sum);
        EXPECT_EQ(x, 2);
      };
      if (kolo::rank() == 1) has_begun.get_future().wait();
      std::thread other(blocking);
      int x = 1;
      kolo::Handle behind = kolo::allreduce_async(context, kolo::view(&x, 1), ReduceOp::sum);
      if (kolo::rank() == 0) has_begun.set_value();
      behind.wait();
      EXPECT_EQ(x, 2);
      other.join();
    });
  }
}

/// Call 3 has another shape on rank 1. It fails at once, on all, and the others run.
TEST(UnnamedThatDiffer, FailOnEveryRankAndTheNextGoesOn) {
  for (const int per_node : {0, 2, 1}) {
    run_in({4, per_node}, kSmallSlots, [] {
      std::vector<std::vector<float>> tensors;
      for (int i = 0; i < 6; ++i) tensors.emplace_back(kolo::rank() == 1 && i == 2 ? 7 : 5, 1.0F);
      std::vector<kolo::Handle> handles;
      for (auto& tensor : tensors) handles.push_back(kolo::allreduce_async(kolo::view(tensor), ReduceOp::sum));
      for (std::size_t i = 0; i < handles.size(); ++i) {
        if (i == 2) {
          EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { handles[i].wait(); }),
                    "unnamed call number 3 of allreduce: ranks disagree about shape: [5] on ranks 0, 2 and 3; [7] "
                    "on rank 1. The operation did not run; submit the same on every rank.");
        } else {
          handles[i].wait();
          EXPECT_EQ(tensors[i], std::vector<float>(5, 4.0F));
        }
      }
    });
  }
}

/// Kinds in another order: both calls fail, and the next one runs.
TEST(UnnamedThatDiffer, InAnotherOrder) {
  kolo::run_local(2, [] {
    std::vector<float> x{1};
    std::vector<kolo::Handle> handles;
    const auto barrier = [&] { handles.push_back(kolo::barrier_async()); };
    const auto reduce = [&] { handles.push_back(kolo::allreduce_async(kolo::view(x), ReduceOp::sum)); };
    if (kolo::rank() == 0) {
      barrier();
      reduce();
    } else {
      reduce();
      barrier();
    }
    for (kolo::Handle& handle : handles) {
      EXPECT_TRUE(kolo::testing::has(sentence_of(ErrorCode::mismatch, [&] { handle.wait(); }),
                                     {"disagree about the kind of collective"}));
    }
    EXPECT_EQ(x[0], 1);
    kolo::allreduce_async(kolo::view(x), ReduceOp::sum).wait();
    EXPECT_EQ(x[0], 2);
  });
}

/// A rank leaves with one call less than the others: these two run, and the third fails on whoever has made it.
TEST(UnnamedOfARankThatLeaves, RunAsFarAsItHadCome) {
  for (const int per_node : {0, 1}) {
    std::atomic<int> failures{0};
    run_in({3, per_node}, kSmallSlots, [&failures] {
      std::vector<std::vector<int>> tensors(3, std::vector<int>(2, 1));
      std::vector<kolo::Handle> handles;
      for (std::size_t i = 0; i < (kolo::rank() == 1 ? 2U : 3U); ++i)
        handles.push_back(kolo::allreduce_async(kolo::view(tensors[i]), ReduceOp::sum));
      for (std::size_t i = 0; i < handles.size(); ++i) {
        if (i < 2) {
          handles[i].wait();
          EXPECT_EQ(tensors[i], (std::vector<int>{3, 3}));
          continue;
        }
        EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { handles[i].wait(); }),
                  "rank 1 has shut down and will not submit unnamed call number 3.");
        ++failures;
      }
    });
    EXPECT_EQ(failures, 2);
  }
}

TEST(UnnamedInFlight, EndWithTheJobTheyWereMadeIn) {
  std::vector<int> x(100, 1);
  kolo::Handle handle;
  kolo::run_local(2, [&] {
    std::vector<int> mine(100, 1);
    for (int i = 0; i < 100; ++i) {
      kolo::Handle one = kolo::allreduce_async(kolo::view(mine), ReduceOp::sum);
      one.wait();
      if (kolo::rank() == 0) handle = std::move(one);
    }
  });
  EXPECT_TRUE(handle.done());
}

/// A group goes out of scope while its calls are in flight; its handles are waited for afterwards.
TEST(UnnamedInFlight, OutliveTheirGroup) {
  run_in({4, 2}, kSmallSlots, [] {
    for (int round = 0; round < 10; ++round) {
      std::vector<std::vector<int>> tensors(20, std::vector<int>(3, kolo::rank()));
      std::vector<kolo::Handle> handles;
      {
        const Group half = kolo::world().split(kolo::rank() / 2);
        for (auto& tensor : tensors) handles.push_back(kolo::allreduce_async(half, kolo::view(tensor), ReduceOp::sum));
      }
      kolo::wait_all(handles);
      for (const auto& tensor : tensors) EXPECT_EQ(tensor, std::vector<int>(3, kolo::rank() < 2 ? 1 : 5));
    }
  });
}

TEST(UnnamedInFlight, HaveCallbacksAndTimes) {
  kolo::run_local(3, [] {
    std::vector<std::vector<int>> tensors(200, std::vector<int>(1, 1));
    std::atomic<int> done{0};
    std::vector<kolo::Handle> handles;
    for (auto& tensor : tensors) {
      handles.push_back(kolo::allreduce_async(kolo::view(tensor), ReduceOp::sum));
      handles.back().on_done([&done](const kolo::Status& status) {
        EXPECT_TRUE(status.ok());
        ++done;
      });
    }
    for (kolo::Handle& handle : handles) EXPECT_TRUE(handle.wait_for(std::chrono::seconds(100)));
    for (kolo::Handle& handle : handles) handle.wait();
    while (done < 200) std::this_thread::yield();
  });
}

/// The deadline names the call, and who has not made it.
TEST(UnnamedInFlight, EndAtTheirDeadline) {
  std::atomic<int> waited{0};
  try {
    kolo::run_local(2, [&waited] {
      std::vector<int> x{1};
      if (kolo::rank() == 1) {
        while (waited == 0) std::this_thread::yield();
        return;
      }
      kolo::Handle handle = kolo::allreduce_async(
          kolo::view(x), kolo::AllreduceOptions(ReduceOp::sum).with_timeout(std::chrono::milliseconds(200)));
      EXPECT_TRUE(kolo::testing::has(
          sentence_of(ErrorCode::timeout, [&] { handle.wait(); }),
          {"unnamed call number 1 has not completed within 0.2",
           " s: rank 1 has not submitted it. The contents of the buffers in flight are undefined."}));
      waited = 1;
    });
  } catch (const kolo::Error&) {
  }
  EXPECT_EQ(waited, 1);
}

}  // namespace
