// SPDX-License-Identifier: Apache-2.0
//
// Groups of some ranks: several at once, how they are made and dropped, and what is refused.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/support/every_collective.hpp"
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
using kolo::testing::worlds;

/// Lists of members, so that there are groups of one rank, of all, of some, in any order, that overlap and that do not.
std::vector<std::vector<int>> lists_of(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<int>> lists{all, {all.rbegin(), all.rend()}};
  std::vector<int> even, odd, upper;
  for (const int rank : all) {
    lists.push_back({rank});
    (rank % 2 == 0 ? even : odd).push_back(rank);
    if (rank >= ranks / 2) upper.insert(upper.begin() + static_cast<int>(upper.size() / 2), rank);
  }
  for (auto& list : {even, odd, upper}) {
    if (!list.empty()) lists.push_back(list);
  }
  return lists;
}

class Subgroups : public InWorlds {
 protected:
  Subgroups() : InWorlds({{"KOLO_SLOT_BYTES", "256"}, {"KOLO_SLOTS", "2"}}) {}
};

TEST_P(Subgroups, UnnamedCalls) {
  run([] {
    std::vector<Group> groups;
    for (const std::vector<int>& list : lists_of(kolo::size())) {
      if (std::find(list.begin(), list.end(), kolo::rank()) == list.end()) continue;
      groups.push_back(Group::of(list));
      ASSERT_EQ(groups.back().members(), list);
      ASSERT_EQ(kolo::size(groups.back()), static_cast<int>(list.size()));
      ASSERT_EQ(list[static_cast<std::size_t>(kolo::rank(groups.back()))], kolo::rank());
    }
    for (int round = 0; round < 10; ++round) {
      for (const Group& group : groups) {
        const std::vector<int> members = group.members();
        const int root = round % kolo::size(group);
        EXPECT_EQ(kolo::broadcast_object(group, kolo::rank(), root), members[static_cast<std::size_t>(root)]);
        EXPECT_EQ(kolo::allgather_object(group, kolo::rank()), members);
        kolo::testing::check_every_collective<int>(group, round % 2 == 0 ? 1 : 3000, round, "",
                                                   [](const std::string& what) { ADD_FAILURE() << what; });
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Subgroups, worlds({{1, 0}, {2, 0}, {3, 0}, {4, 0}, {4, 2}, {4, 1}, {5, 2}, {8, 3}}),
                         name_of);

TEST(Split, ByColourInTheOrderOfTheKeys) {
  kolo::run_local(6, [] {
    const int rank = kolo::rank();
    const Group half = kolo::world().split(rank % 2, -rank);
    EXPECT_EQ(half.members(), rank % 2 == 0 ? (std::vector<int>{4, 2, 0}) : (std::vector<int>{5, 3, 1}));
    EXPECT_EQ(kolo::rank(half), 2 - rank / 2);
    const Group again = half.split(7);
    EXPECT_EQ(again.members(), half.members());
    const Group part = half.split(kolo::rank(half) == 0 ? kolo::kNoGroup : 3);
    EXPECT_EQ(part.is_member(), kolo::rank(half) != 0);
    if (part.is_member()) {
      EXPECT_EQ(part.members(), rank % 2 == 0 ? (std::vector<int>{2, 0}) : (std::vector<int>{3, 1}));
      EXPECT_EQ(kolo::allreduce(part, rank, ReduceOp::sum), rank % 2 == 0 ? 2 : 4);
    } else {
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::barrier(part); }),
                "this rank is no member of the group: it asked Group::split for none (kNoGroup)");
    }
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [] { (void)kolo::world().split(-2); }),
              "Group::split: the colour is -2; give one that is not negative, or kNoGroup");
  });
}

/// The others give up, and go on; whoever comes later gets their error. The next call is matched with the next.
TEST(GroupOf, CanFailAloneIfARankDoesNotCome) {
  run_in({4, 2}, [] {
    const auto soon = kolo::GroupOptions("three").with_timeout(std::chrono::milliseconds(50)).with_fails_alone(true);
    const auto later = kolo::GroupOptions("three").with_fails_alone(true);
    if (kolo::rank() < 3) {
      if (kolo::rank() == 1) kolo::barrier("given up");
      const std::string why = sentence_of(ErrorCode::expired, [&] { (void)Group::of({0, 1, 2}, soon); });
      EXPECT_NE(why.find("group \"three\" of ranks 0-2 has not been made within "), std::string::npos) << why;
      EXPECT_NE(why.find(": rank 1 has not called Group::of or split for it"), std::string::npos) << why;
      EXPECT_NE(why.find(" The call fails on every rank of the group, and the job goes on."), std::string::npos);
      if (kolo::rank() != 1) kolo::barrier("given up");
      const Group three = Group::of({0, 1, 2}, later);
      EXPECT_EQ(kolo::allreduce(three, 1), 3);
    } else {
      kolo::barrier("given up");
    }
    EXPECT_EQ(kolo::allreduce(1), 4);
  });
}

TEST(Split, CanFailAloneIfARankDoesNotCome) {
  run_in({3, 3}, [] {
    const auto soon = kolo::GroupOptions().with_timeout(std::chrono::milliseconds(50)).with_fails_alone(true);
    const auto later = kolo::GroupOptions().with_fails_alone(true);
    if (kolo::rank() == 2) kolo::barrier("given up");
    const std::string why = sentence_of(ErrorCode::expired, [&] { (void)kolo::world().split(0, 0, soon); });
    EXPECT_NE(why.find(": rank 2 has not called Group::of or split for it"), std::string::npos) << why;
    if (kolo::rank() != 2) kolo::barrier("given up");
    const Group half = kolo::world().split(kolo::rank() == 1 ? kolo::kNoGroup : 1, -kolo::rank(), later);
    EXPECT_EQ(half.is_member(), kolo::rank() != 1);
    if (half.is_member()) {
      EXPECT_EQ(half.members(), (std::vector<int>{2, 0}));
    }
    EXPECT_EQ(kolo::allreduce(1), 3);
  });
}

TEST(GroupOf, SaysWhatIsWrongWithTheList) {
  kolo::run_local(3, [] {
    const auto refused = [](const std::vector<int>& ranks) {
      return sentence_of(ErrorCode::invalid_argument, [&] { (void)Group::of(ranks); });
    };
    EXPECT_EQ(refused({}),
              "Group::of: the list of ranks is empty; give those that shall be in the group, this one among them");
    EXPECT_EQ(refused({0, 1, 2, 3}), "Group::of: there is no rank 3 among 3 ranks");
    EXPECT_EQ(refused({0, -1}), "Group::of: there is no rank -1 among 3 ranks");
    EXPECT_EQ(refused({0, 1, 2, 1}), "Group::of: rank 1 stands twice in the list");
    EXPECT_EQ(refused({(kolo::rank() + 1) % 3}),
              "Group::of: this rank, " + std::to_string(kolo::rank()) +
                  ", does not stand in the list; only those call it that shall be in the group");
    const Group all = Group::of({2, 1, 0});
    kolo::barrier(all);
  });
}

TEST(GroupOf, SentencesNameTheGroup) {
  kolo::run_local(3, [] {
    if (kolo::rank() == 1) return;
    const Group pair = Group::of({2, 0}, "pair");
    std::vector<float> x(kolo::rank() == 0 ? 2 : 3, 1);
    EXPECT_EQ(
        sentence_of(ErrorCode::mismatch,
                    [&] {
                      kolo::allreduce({pair, "x"}, kolo::view(x));
                    }),
        "tensor \"x\" of allreduce in group \"pair\" of ranks 0 and 2: ranks disagree about shape: [2] on rank 0; "
        "[3] on rank 2. The operation did not run; submit the same on every rank.");
  });
}

TEST(GroupOf, RanksThatGiveAnotherOrderDisagree) {
  kolo::run_local(2, [] {
    const std::vector<int> list = kolo::rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0};
    const std::string sentence = sentence_of(ErrorCode::mismatch, [&] { (void)Group::of(list); });
    EXPECT_EQ(sentence,
              "the group of ranks 0 and 1: ranks disagree about the order of its ranks: [0, 1] on rank 0; [1, 0] on "
              "rank 1. The group was not made; give the same order on every rank.");
    kolo::barrier(Group::of({1, 0}));
  });
}

/// Groups are made and dropped without end, some at once, while others run.
TEST(GroupOf, ManyOneAfterAnother) {
  run_in(3, {{"KOLO_GROUPS", "8"}}, [] {
    const int rounds = kolo::testing::unless_sanitized(2000, 200);
    for (int round = 0; round < rounds; ++round) {
      const Group all = Group::of({0, 1, 2});
      EXPECT_EQ(kolo::allreduce(all, 1, ReduceOp::sum), 3);
      const int left_out = round % 3;
      if (kolo::rank() == left_out) continue;
      std::vector<int> pair;
      for (int rank = 0; rank < 3; ++rank) {
        if (rank != left_out) pair.push_back(rank);
      }
      const Group two = Group::of(pair);
      std::vector<double> x(round % 100, 1.0);
      kolo::Handle handle = kolo::allreduce_async({two, "x"}, kolo::view(x));
      EXPECT_EQ(kolo::allreduce(two, kolo::rank(), ReduceOp::sum), 3 - left_out);
      EXPECT_EQ(kolo::allreduce(two, 1, ReduceOp::sum), 2);
      handle.wait();
      EXPECT_EQ(x, std::vector<double>(x.size(), 2.0));
    }
  });
}

/// The last copy goes while operations are in flight.
TEST(GroupOf, OperationsOutliveTheGroup) {
  kolo::run_local(2, [] {
    for (int round = 0; round < 100; ++round) {
      std::vector<float> x(1000, 1.0F), y(10, 2.0F);
      std::vector<kolo::Handle> handles;
      {
        const Group group = Group::of({0, 1});
        handles.push_back(kolo::allreduce_async({group, "x"}, kolo::view(x), ReduceOp::sum));
        handles.push_back(kolo::allreduce_async({group, "y"}, kolo::view(y), ReduceOp::sum));
      }
      kolo::wait_all(handles);
      EXPECT_EQ(x[999], 2.0F);
      EXPECT_EQ(y[9], 4.0F);
    }
  });
}

/// A rank that leaves runs what all have submitted, and its callbacks may submit more: that fails, and nothing else.
TEST(GroupOf, ACallbackMaySubmitWhileItsRankLeaves) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> leaves{false};
    kolo::run_local(2, [&leaves] {
      kolo::Context& context = kolo::current_context();
      const Group group = Group::of({0, 1});
      std::vector<float> x(4, 1.0F), y(4, 1.0F);
      kolo::Handle again;
      if (kolo::rank() == 1) leaves.wait(false);
      kolo::Handle handle = kolo::allreduce_async({group, "x"}, kolo::view(x), ReduceOp::sum);
      handle.on_done([&, group](const kolo::Status&) {
        try {
          again = kolo::allreduce_async({group, "y"}, kolo::view(y), ReduceOp::sum);
        } catch (const kolo::Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::shut_down);
        }
      });
      if (kolo::rank() == 0) {
        leaves = true;
        leaves.notify_all();
      }
      context.shutdown();
      EXPECT_EQ(x[0], 2.0F);
      if (!again.valid() || !again.done()) return;
      const ErrorCode code = again.status()->code();
      EXPECT_TRUE(code == ErrorCode::ok || code == ErrorCode::shut_down || code == ErrorCode::rank_lost)
          << again.status()->message();
    });
  }
}

/// The place of a group that was dropped is free for the next one, however fast it follows.
TEST(GroupOf, AsManyAsThereMayBeOneAfterAnother) {
  run_in(2, {{"KOLO_GROUPS", "1"}}, [] {
    for (int round = 0; round < 500; ++round) {
      const Group group = Group::of({0, 1});
      if (round % 2 == 0) kolo::barrier(group);
    }
    const Group last = Group::of({0, 1});
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument,
                          [] {
                            (void)Group::of({1, 0});
                          }),
              "the group of ranks 0 and 1 cannot be made: rank 0 is in 1 group already, and can be in no more "
              "(KOLO_GROUPS); drop those that are not used any more");
  });
}

/// Threads of one rank make and use groups of the same ranks at once.
TEST(GroupOf, ByThreads) {
  kolo::run_local(2, [] {
    kolo::Context& context = kolo::current_context();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&context, thread] {
        const kolo::ContextGuard guard(context);
        for (int round = 0; round < 50; ++round) {
          const Group own = Group::of({0, 1}, "thread " + std::to_string(thread));
          EXPECT_EQ(kolo::allreduce(own, thread, ReduceOp::sum), 2 * thread);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

/// Groups that share no rank do not wait for each other: 0 and 1 come to their end while 2 waits for 3, which waits for
/// 0 and 1.
TEST(GroupOf, DisjointOnesDoNotWaitForEachOther) {
  std::atomic<bool> over{false};
  kolo::run_local(4, [&over] {
    const Group pair = kolo::world().split(kolo::rank() / 2);
    if (kolo::rank() < 2) {
      for (int round = 0; round < 100; ++round) {
        std::vector<float> x(10000, 1.0F);
        kolo::allreduce({pair, "x"}, kolo::view(x), ReduceOp::sum);
        EXPECT_EQ(x[9999], 2.0F);
      }
      kolo::barrier(pair);
      over = true;
      over.notify_all();
    } else if (kolo::rank() == 3) {
      over.wait(false);
    }
    kolo::barrier(pair);
  });
}

/// The root, which puts all batches in order, is no member, and its engine sleeps.
TEST(GroupOf, NeedsNothingOfARootThatIsIdle) {
  std::atomic<int> done{0};
  run_in(3, {{"KOLO_TIMEOUT_S", "20"}}, [&] {
    if (kolo::rank() == 0) {
      for (int seen = 0; seen < 2; seen = done.load()) done.wait(seen);
      return;
    }
    const Group pair = Group::of({1, 2});
    for (int step = 0; step < 100; ++step) {
      std::vector<int> x(10, step);
      kolo::allreduce({pair, "x"}, kolo::view(x), ReduceOp::sum);
      EXPECT_EQ(x, std::vector<int>(10, 2 * step));
    }
    done.fetch_add(1);
    done.notify_all();
  });
}

TEST(GroupOf, TrainsInAGroup) {
  kolo::run_local(4, [] {
    const Group pair = kolo::world().split(kolo::rank() % 2);
    std::vector<float> value(3, static_cast<float>(kolo::rank())), gradient(3, static_cast<float>(kolo::rank()));
    std::vector<kolo::Parameter> parameters{{"w", kolo::view(value), kolo::view(gradient)}};
    kolo::broadcast_parameters(pair, parameters, 1);
    EXPECT_EQ(value[0], static_cast<float>(kolo::rank() % 2 + 2));
    kolo::Sgd sgd(parameters, {1.0});
    kolo::DistributedOptimizer optimizer(pair, sgd, parameters);
    for (int step = 0; step < 5; ++step) {
      std::fill(gradient.begin(), gradient.end(), static_cast<float>(kolo::rank()));
      optimizer.step();
    }
    EXPECT_EQ(value[0], static_cast<float>(kolo::rank() % 2 + 2) - 5.0F * static_cast<float>(kolo::rank() % 2 + 1));
  });
}

}  // namespace
