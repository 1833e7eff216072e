// SPDX-License-Identifier: Apache-2.0
//
// Ranks that share CPUs return from short rooted calls before the others have begun them. Whatever comes of such a call
// later - somebody is late, somebody calls something else, joins, leaves - the others get its data, and the rank itself
// is told.
#include <gtest/gtest.h>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/support/sanitized.hpp"

namespace {

using kolo::ErrorCode;
using kolo::Group;
using kolo::ReduceOp;
using kolo::testing::has;
using kolo::testing::sentence_of;

/// So that ranks share CPUs whatever machine this is.
class OneCpu {
 public:
  OneCpu() {
    if (::sched_getaffinity(0, sizeof before_, &before_) != 0) throw std::runtime_error("sched_getaffinity");
    cpu_set_t one;
    CPU_ZERO(&one);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before_)) ++cpu;
    CPU_SET(cpu, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) throw std::runtime_error("sched_setaffinity");
  }
  ~OneCpu() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OneCpu(const OneCpu&) = delete;
  OneCpu& operator=(const OneCpu&) = delete;

 private:
  cpu_set_t before_{};
};

kolo::Options options(const std::map<std::string, std::string>& settings = {}) {
  kolo::Options options;
  // Patience of 10 ms.
  options.with_setting("KOLO_TIMEOUT_S", "60").with_setting("KOLO_SPIN_US", "100000");
  for (const auto& [name, value] : settings) options.with_setting(name, value);
  return options;
}

void run(int ranks, const std::function<void()>& body, const std::map<std::string, std::string>& settings = {}) {
  const OneCpu one;
  kolo::run_local(ranks, body, options(settings));
}

void wait_for(const std::atomic<int>& count, int least) {
  while (count.load() < least) std::this_thread::yield();
}

/// Calls that pass by the log one after another, as many as a rank sees before it leaves one early. Each does on all
/// ranks or on none, so all stop after the same one.
void be_steady(const Group& group) {
  kolo::barrier(group);  // settles what was left, which is counted by the log if it goes there
  for (int in_a_row = 0; in_a_row < 40;) {
    const std::uint64_t before = kolo::metrics().expressed;
    kolo::barrier(group);
    in_a_row = kolo::metrics().expressed > before ? in_a_row + 1 : 0;
  }
}

int value(int rank, int call) { return 1000 * call + rank + 1; }

/// One call of each kind, with every result compared, and inputs overwritten as soon as the call has returned.
void call_once(const Group& group, int kind, int root, int call, std::size_t elements) {
  const int rank = kolo::rank(group);
  const int size = kolo::size(group);
  const auto n = static_cast<std::size_t>(size);
  std::vector<int> in(elements, value(rank, call));
  switch (kind) {
  case 0: {
    std::vector<int> out(rank == root ? n * elements : 0, -1);
    kolo::gather_into(group, kolo::const_view(in), kolo::view(out), root);
    in.assign(in.size(), -2);
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], value(static_cast<int>(i / elements), call)) << "gather " << call;
    return;
  }
  case 1: {
    std::vector<int> all;
    if (rank == root) {
      for (int other = 0; other < size; ++other) all.insert(all.end(), elements, value(other, call));
    } else {
      all.push_back(-3);
    }
    kolo::scatter_into(group, kolo::const_view(all), kolo::view(in), root);
    all.assign(all.size(), -2);
    ASSERT_EQ(in, std::vector<int>(elements, value(rank, call))) << "scatter " << call;
    return;
  }
  case 2: {
    if (rank != root) in.assign(elements, -1);
    kolo::broadcast(group, kolo::view(in), root);
    ASSERT_EQ(in, std::vector<int>(elements, value(root, call))) << "broadcast " << call;
    in.assign(in.size(), -2);
    return;
  }
  default: {
    std::vector<int> out(elements, -1);
    kolo::reduce_into(group, kolo::const_view(in), kolo::view(out), root);
    in.assign(in.size(), -2);
    int sum = 0;
    for (int other = 0; other < size; ++other) sum += value(other, call);
    ASSERT_EQ(out, std::vector<int>(elements, rank == root ? sum : -1)) << "reduce " << call;
  }
  }
}

TEST(RunAhead, EveryResultIsExactWhateverComesBetween) {
  constexpr int kCalls = kolo::testing::unless_sanitized(3000, 600);
  for (const int ranks : {2, 3, 4}) {
    run(ranks, [] {
      be_steady(kolo::world());
      std::minstd_rand same(3);  // the same program on every rank, but not at the same pace
      std::minstd_rand own(static_cast<unsigned>(kolo::rank() + 1));
      int kind = 0;
      for (int call = 0; call < kCalls; ++call) {
        if (same() % 8 == 0) kind = static_cast<int>(same() % 7);
        const std::size_t sizes[] = {0, 1, 3, 10, 15, 26, 27, 30, 31, 60, 64, 250, 300, 3000};
        const std::size_t elements = sizes[same() % std::size(sizes)];
        const int root = same() % 2 == 0 ? 0 : static_cast<int>(same() % static_cast<unsigned>(kolo::size()));
        const bool late = same() % 512 == 0;  // for longer than anybody looks
        if (late && own() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(15));
        for (unsigned pause = own() % 16 == 0 ? 100 : 0; pause > 0; --pause) std::this_thread::yield();
        if (kind == 4) {
          ASSERT_EQ(kolo::allreduce(call, ReduceOp::sum), call * kolo::size());
        } else if (kind == 5) {
          std::vector<int> x(3, kolo::rank());
          kolo::allreduce("a name", kolo::view(x), ReduceOp::max);
          ASSERT_EQ(x, std::vector<int>(3, kolo::size() - 1));
        } else if (kind == 6) {
          kolo::barrier();
        } else {
          call_once(kolo::world(), kind, root, call, elements);
        }
        ASSERT_FALSE(testing::Test::HasFatalFailure());
      }
    });
  }
}

/// Rank 0 begins the call only when rank 1 has returned from it: nobody would, if they met in it.
TEST(RunAhead, WhoOnlyGivesReturnsBeforeTheRootHasBegun) {
  for (const int kind : {0, 3}) {
    std::atomic<int> returned{0};
    run(3, [&] {
      be_steady(kolo::world());
      for (int call = 0; call < 20; ++call) {
        if (kolo::rank() == 0) wait_for(returned, 2 * call + 2);
        call_once(kolo::world(), kind, 0, call, 5);
        if (kolo::rank() != 0) returned.fetch_add(1);
      }
    });
  }
}

/// The same of the root of a broadcast and of a scatter, and of who hears it before others have come.
TEST(RunAhead, TheRootReturnsAndWhoHasItsDataDoes) {
  for (const int kind : {1, 2}) {
    std::atomic<int> returned{0};
    run(3, [&] {
      be_steady(kolo::world());
      for (int call = 0; call < 20; ++call) {
        if (kolo::rank() == 1) wait_for(returned, 2 * call + 1);
        if (kolo::rank() == 2) wait_for(returned, 2 * call + 2);
        call_once(kolo::world(), kind, 0, call, 5);
        if (kolo::rank() != 2) returned.fetch_add(1);
      }
    });
  }
}

TEST(RunAhead, IsAtMost128CallsLong) {
  std::atomic<int> returned{0};
  run(2, [&] {
    be_steady(kolo::world());
    std::vector<int> x(3, 1);
    if (kolo::rank() == 0) {
      wait_for(returned, 128);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(returned.load(), 128);
    }
    for (int call = 0; call < 300; ++call) {
      call_once(kolo::world(), 0, 0, call, 3);
      if (kolo::rank() == 1) returned.fetch_add(1);
    }
  });
}

TEST(RunAhead, CanBeTurnedOff) {
  std::atomic<int> begun{0};
  run(2,
      [&] {
        be_steady(kolo::world());
        if (kolo::rank() == 0) begun.store(1);
        call_once(kolo::world(), 0, 0, 1, 3);
        if (kolo::rank() == 1) {
          EXPECT_EQ(begun.load(), 1);
        }
      },
      {{"KOLO_RUN_AHEAD", "0"}});
}

/// Rank 2 is late, so the others go to the log, and need rank 1 there, which has long left and does not call Kolo.
TEST(RunAhead, WhoHasLeftIsFetchedWhileItDoesSomethingElse) {
  for (const int kind : {0, 1, 2, 3}) {
    const int root = kind == 0 || kind == 3 ? 0 : 1;
    std::atomic<int> left{0};
    std::atomic<int> late{0};
    std::atomic<int> done{0};
    run(3, [&] {
      be_steady(kolo::world());
      for (int call = 0; call < 5; ++call) {
        const int calls = 3 * call;
        if (kolo::rank() == 1) {
          call_once(kolo::world(), kind, root, calls, 4);
          call_once(kolo::world(), kind, root, calls + 1, 60);
          left.fetch_add(1);
          wait_for(done, 2 * (call + 1));  // nothing of Kolo's
        } else {
          wait_for(left, call + 1);
          if (kolo::rank() == 2) {
            // Until rank 0 has gone to the log.
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            late.fetch_add(1);
          }
          call_once(kolo::world(), kind, root, calls, 4);
          call_once(kolo::world(), kind, root, calls + 1, 60);
          done.fetch_add(1);
        }
        be_steady(kolo::world());
      }
    });
  }
}

TEST(RunAhead, AMismatchIsToldByTheNextCall) {
  std::vector<std::string> said(3);
  std::atomic<int> left{0};
  run(3, [&] {
    for (int round = 1; round <= 5; ++round) {
      be_steady(kolo::world());
      std::vector<float> x(kolo::rank() == 0 ? 5 : 4, 1.0F);
      std::string& sentence = said[static_cast<std::size_t>(kolo::rank())];
      if (kolo::rank() == 0) {
        wait_for(left, 2 * round);
        sentence = sentence_of(ErrorCode::mismatch, [&] { kolo::reduce(kolo::view(x), 0); });
        EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 3);
      } else {
        kolo::reduce(kolo::view(x), 0);
        left.fetch_add(1);
        int sum = 1;
        sentence = sentence_of(ErrorCode::mismatch, [&] { kolo::allreduce(kolo::view(&sum, kolo::Shape{})); });
        EXPECT_EQ(sum, 3) << "that call is done";
        const std::string before = "this call is done; an earlier one that had returned already has failed since: ";
        ASSERT_EQ(sentence.substr(0, before.size()), before);
        sentence = sentence.substr(before.size());
      }
      EXPECT_TRUE(has(sentence, {"unnamed call number ", "shape", "[4]", "[5]"}));
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 3) << "told once";
    }
  });
  for (const std::string& sentence : said) EXPECT_EQ(sentence, said.front());
}

/// Nobody is left in the call to see that they differ.
TEST(RunAhead, AMismatchThatAllHaveLeftIsToldOnAll) {
  run(2, [&] {
    be_steady(kolo::world());
    std::vector<int> x(3, 1);
    kolo::reduce(kolo::view(x), 1 - kolo::rank());
    const std::string sentence = sentence_of(ErrorCode::mismatch, [&] { kolo::barrier(); });
    EXPECT_TRUE(has(sentence, {"root"}));
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

TEST(RunAhead, WhoseContributionIsLongTakesTheOthersToTheLog) {
  std::atomic<int> left{0};
  run(3,
      [&] {
        for (int round = 1; round <= 3; ++round) {
          be_steady(kolo::world());
          std::vector<int> in(kolo::rank() == 2 ? 50'000 : 3, kolo::rank());
          std::vector<int> out(kolo::rank() == 0 ? 50'006 : 0, -1);
          if (kolo::rank() == 2) wait_for(left, round);
          kolo::gather_into(kolo::const_view(in), kolo::view(out), 0);
          if (kolo::rank() == 1) left.fetch_add(1);
          if (kolo::rank() == 0) {
            EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0), 3 + 100'000);
          }
        }
      },
      {{"KOLO_DIRECT_BYTES", "0"}});
}

/// The world ends on rank 1 with calls that the others have yet to make.
TEST(RunAhead, WhoShutsDownSettlesWhatItHasLeft) {
  for (const bool mismatch : {false, true}) {
    std::atomic<int> left{0};
    run(3, [&] {
      be_steady(kolo::world());
      std::vector<int> x(kolo::rank() != 1 && mismatch ? 4 : 3, 1);
      if (kolo::rank() == 1) {
        for (int call = 0; call < 8; ++call) call_once(kolo::world(), 0, 0, call, 3);
        kolo::reduce(kolo::view(x), 0);
        left.store(1);
        return;
      }
      wait_for(left, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (int call = 0; call < 8; ++call) call_once(kolo::world(), 0, 0, call, 3);
      if (!mismatch) return kolo::reduce(kolo::view(x), 0);
      const std::string sentence = sentence_of(ErrorCode::mismatch, [&] { kolo::reduce(kolo::view(x), 0); });
      if (kolo::rank() == 2 && sentence == "(nothing was thrown)") return;  // it has left the call, too
      EXPECT_TRUE(has(sentence, {"unnamed call number ", "shape", "[3]", "[4]"}));
    });
  }
}

TEST(RunAhead, AGroupCanBeDroppedAtOnce) {
  std::atomic<int> left{0};
  run(4, [&] {
    for (int round = 1; round <= 8; ++round) {
      {
        if (kolo::rank() == 3) break;  // and stays: once a rank has left all goes by the log
        const Group group = Group::of({0, 1, 2});
        be_steady(group);
        if (kolo::rank() != 1) wait_for(left, round);
        if (kolo::rank() == 2 && round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(15));
        for (int call = 0; call < 9; ++call) call_once(group, call % 4, 1 - (call % 4 == 0 || call % 4 == 3), call, 3);
      }
      if (kolo::rank() == 1) left.fetch_add(1);
    }
    kolo::barrier();
  });
}

/// Nor need the world go on after that.
TEST(RunAhead, TheWorldEndsBehindAGroupThatIsDropped) {
  for (int round = 0; round < 4; ++round) {
    std::atomic<int> left{0};
    run(3, [&] {
      const Group group = Group::of({0, 1, 2});
      be_steady(group);
      if (kolo::rank() == 2) {
        wait_for(left, 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      for (int call = 0; call < 5; ++call) call_once(group, 3, 0, call, 3);
      if (kolo::rank() == 1) left.store(1);
    });
  }
}

/// A group is counted until it has been dropped, also where what was left there takes its time.
TEST(RunAhead, AGroupIsDroppedBeforeTheNextIsMade) {
  run(3,
      [] {
        for (int round = 0; round < 6; ++round) {
          const Group group = Group::of({0, 1, 2});
          be_steady(group);
          if (kolo::rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(15));
          for (int call = 0; call < 3; ++call) call_once(group, 3, 0, call, 3);
        }
      },
      {{"KOLO_GROUPS", "1"}});
}

/// An output that is too small is told by its own call, whatever comes of that later.
TEST(RunAhead, WhatACallHasThrownTheNextOneDoesNotTell) {
  std::atomic<int> left{0};
  run(3, [&] {
    be_steady(kolo::world());
    std::vector<int> all(6, 1);
    std::vector<int> out(kolo::rank() == 1 ? 3 : 2, -1);
    if (kolo::rank() == 2) {
      wait_for(left, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const auto scatter = [&] { kolo::scatter_into(kolo::const_view(all), kolo::view(out), 0); };
    if (kolo::rank() == 1) {
      EXPECT_TRUE(has(sentence_of(ErrorCode::invalid_argument, scatter), {"output of this scatter has "}));
      left.store(1);
    } else {
      scatter();
      EXPECT_EQ(out, std::vector<int>(2, 1));
    }
    for (int call = 0; call < 3; ++call) EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 3);
  });
}

TEST(RunAhead, WhoJoinsHasSettledWhatItHasLeft) {
  std::atomic<int> left{0};
  run(3, [&] {
    for (int round = 1; round <= 3; ++round) {
      be_steady(kolo::world());
      if (kolo::rank() != 1) wait_for(left, round);
      if (kolo::rank() == 1) {
        for (int call = 0; call < 5; ++call) call_once(kolo::world(), 3, 0, call, 3);
        left.fetch_add(1);
        kolo::join();
        continue;
      }
      for (int call = 0; call < 5; ++call) call_once(kolo::world(), 3, 0, call, 3);
      // Rank 1 is absent: the neutral element of the sum.
      std::vector<int> x(3, 1);
      kolo::reduce(kolo::view(x), 0);
      EXPECT_EQ(x, std::vector<int>(3, kolo::rank() == 0 ? 2 : 1));
      kolo::join();
    }
  });
}

/// Rank 2 joins while rank 1 is ahead of rank 0, which has not begun those calls.
TEST(RunAhead, CallsThatWereLeftGoOnWithoutWhoHasJoined) {
  std::atomic<int> left{0};
  std::atomic<int> done{0};
  run(3, [&] {
    be_steady(kolo::world());
    if (kolo::rank() == 2) {
      wait_for(left, 1);
      kolo::join();
      return;
    }
    std::vector<int> x(3, 1);
    if (kolo::rank() == 0) wait_for(left, 1);
    for (int call = 0; call < 6; ++call) {
      x.assign(3, 1);
      kolo::reduce(kolo::view(x), 0);
      EXPECT_EQ(x, std::vector<int>(3, kolo::rank() == 0 ? 2 : 1));
    }
    if (kolo::rank() == 1) {
      left.store(1);
      wait_for(done, 1);
    } else {
      done.store(1);
    }
    kolo::join();
  });
}

/// Rank 2 leaves the job without calls that rank 1 has left: rank 1 hears of it in its next call.
TEST(RunAhead, WhoHasLeftACallHearsThatARankWillNotMakeIt) {
  std::atomic<int> left{0};
  run(3, [&] {
    be_steady(kolo::world());
    if (kolo::rank() == 2) {
      wait_for(left, 1);
      return;
    }
    if (kolo::rank() == 1) {
      call_once(kolo::world(), 0, 0, 1, 3);
      left.store(1);
    } else {
      wait_for(left, 1);
      const std::string sentence = sentence_of(ErrorCode::rank_lost, [] { call_once(kolo::world(), 0, 0, 1, 3); });
      EXPECT_TRUE(has(sentence, {"unnamed call number ", "rank 2"}));
    }
    for (int call = 0; call < 3; ++call) {
      const std::string sentence = sentence_of(ErrorCode::rank_lost, [] { (void)kolo::allreduce(1, ReduceOp::sum); });
      EXPECT_TRUE(has(sentence, {"rank 2"}));
    }
  });
}

/// Two groups that share ranks, and threads of a rank that call in one.
TEST(RunAhead, InGroupsThatOverlapAndFromSeveralThreads) {
  constexpr int kCalls = kolo::testing::unless_sanitized(300, 80);
  run(4, [] {
    const int rank = kolo::rank();
    std::optional<Group> low;
    std::optional<Group> high;
    if (rank < 3) low.emplace(Group::of({0, 1, 2}));
    if (rank > 0) high.emplace(Group::of({3, 2, 1}));
    kolo::Context& context = kolo::current_context();
    const auto calls_in = [&](const Group& group) {
      const kolo::ContextGuard guard(context);
      for (int call = 0; call < 100; ++call) kolo::barrier(group);
      for (int call = 0; call < kCalls; ++call) call_once(group, call / 7 % 4, call / 3 % 3, call, 6);
    };
    std::vector<std::thread> threads;
    if (rank < 3) threads.emplace_back([&] { calls_in(*low); });
    if (rank > 0) threads.emplace_back([&] { calls_in(*high); });
    for (std::thread& thread : threads) thread.join();
    kolo::barrier();
  });
}

}  // namespace
