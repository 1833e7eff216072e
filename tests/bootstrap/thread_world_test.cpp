// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/thread_world.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <thread>

#include "tests/support/meeting.hpp"
#include "tests/support/processes.hpp"

namespace kolo::bootstrap::test {
namespace {

void run_threads(ThreadWorld& world, int size, const std::function<void(Bootstrap&)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { body(*world.bootstrap(rank)); });
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadWorld, GathersByRankAgainAndAgain) {
  ThreadWorld world(4);
  run_threads(world, 4, [](Bootstrap& bootstrap) {
    for (int round = 0; round < 200; ++round) {
      const auto said = [&](int rank) { return std::to_string(rank) + "/" + std::to_string(round); };
      const std::vector<std::string> all = test_support::meet(bootstrap, said(bootstrap.rank()));
      ASSERT_EQ(all, (std::vector<std::string>{said(0), said(1), said(2), said(3)}));
    }
  });
}

/// What a call throws.
Status failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return {};
}

TEST(ThreadWorld, NamesTheRanksThatDoNotComeToThoseThatDo) {
  ThreadWorld world(5);
  run_threads(world, 3, [](Bootstrap& bootstrap) {
    for (int call = 0; call < 2; ++call) {  // the world has ended: nobody is waited for a second time
      const Status status = failure_of([&] { bootstrap.exchange("test", "", base::from_seconds(0.02)); });
      EXPECT_EQ(status.code(), ErrorCode::transport);
      EXPECT_EQ(status.message(), "ranks 3 and 4 did not reach the step \"test\" of the start within 0.02 s "
                                  "(KOLO_CONNECT_TIMEOUT_S): a process has not joined yet, is stopped, or has ended");
    }
  });
}

TEST(Start, AStepThatFailsOnOneRankFailsAlikeOnAll) {
  ThreadWorld world(3);
  run_threads(world, 3, [](Bootstrap& bootstrap) {
    const auto take = [&](const std::function<std::string()>& part) {
      return take_step(bootstrap, "test", test_support::kPatience, part);
    };
    const std::string own = std::to_string(bootstrap.rank());
    EXPECT_EQ(take([&] { return own; }), (std::vector<std::string>{"0", "1", "2"}));
    const Status status = failure_of([&] {
      take([&]() -> std::string {
        if (bootstrap.rank() == 0) throw Error(ErrorCode::timeout, "waited in vain");  // for the one that failed
        if (bootstrap.rank() == 2) throw Error(ErrorCode::invalid_setting, "a bad value");
        return own;
      });
    });
    EXPECT_EQ(status.code(), ErrorCode::invalid_setting);
    EXPECT_EQ(status.message(), "rank 2: a bad value");
    const Status vain = failure_of([&] {
      take([&]() -> std::string {
        if (bootstrap.rank() == 1) throw std::runtime_error("no room");
        return own;
      });
    });
    EXPECT_EQ(vain.code(), ErrorCode::transport);
    EXPECT_EQ(vain.message(), "rank 1: no room");
  });
}

TEST(Start, AloneThereIsNobodyToName) {
  ThreadWorld world(1);
  const auto bootstrap = world.bootstrap(0);
  const Status status = failure_of([&] {
    take_step(*bootstrap, "test", test_support::kPatience,
              []() -> std::string { throw Error(ErrorCode::invalid_setting, "a bad value"); });
  });
  EXPECT_EQ(status.message(), "a bad value");
}

TEST(ThreadWorld, AbortFreesWhoWaitsAndWhoComesLater) {
  ThreadWorld world(3);
  const auto expect_the_reason = [](const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::transport);
      EXPECT_EQ(error.status().message(), "rank 2 has had enough");
    }
  };
  run_threads(world, 3, [&](Bootstrap& bootstrap) {
    const auto inter = bootstrap.inter_node({}, test_support::kPatience);
    if (bootstrap.rank() == 2) {
      world.abort("rank 2 has had enough");
      world.abort("a later reason");
    }
    expect_the_reason([&] { test_support::meet(bootstrap); });
    expect_the_reason([&] { test_support::meet(bootstrap); });
    expect_the_reason([&] { inter->send(0, 0, nullptr, 0); });
  });
}

TEST(ThreadWorld, NodesShareMemoryAndBells) {
  ThreadWorld world(5);
  run_threads(world, 5, [](Bootstrap& bootstrap) {
    const core::Topology topology = test_support::topology_on_one_machine(bootstrap, 2);
    for (int again = 0; again < 2; ++again) {  // a second engine in the same world gets memory of its own
      const auto link = bootstrap.join_node(topology, 8192, "key", test_support::kPatience);
      ASSERT_EQ(link->bytes(), 8192u);
      EXPECT_EQ(link->memory()[100], std::byte{0});
      EXPECT_TRUE(link->liveness().empty());
      test_support::meet(bootstrap);
      if (topology.is_leader()) {
        link->memory()[100] = static_cast<std::byte>(topology.node + 1);
        if (topology.local_size() > 1) link->wake(1);
      } else {
        EXPECT_TRUE(testing::is_readable(link->wake_fd(), 20000));
      }
      test_support::meet(bootstrap);
      EXPECT_EQ(link->memory()[100], static_cast<std::byte>(topology.node + 1));
      EXPECT_EQ(testing::is_readable(link->wake_fd(), 0), !topology.is_leader());
      test_support::meet(bootstrap);
    }
  });
}

bool finish(transport::InterNode& inter, transport::InterNode::Operation operation) {
  while (!inter.test(operation)) std::this_thread::yield();
  return true;
}

TEST(ThreadInterNode, MatchesBySenderAndTagInOrder) {
  ThreadWorld world(3);
  run_threads(world, 3, [](Bootstrap& bootstrap) {
    const auto inter = bootstrap.inter_node({}, test_support::kPatience);
    auto* memory = reinterpret_cast<int*>(inter->staging(4096));
    if (bootstrap.rank() < 2) {
      for (int i = 0; i < 100; ++i) {
        for (int tag = 0; tag < 2; ++tag) {
          memory[0] = 10000 * bootstrap.rank() + 1000 * tag + i;
          finish(*inter, inter->send(2, tag, reinterpret_cast<std::byte*>(memory), sizeof(int)));
        }
      }
    } else {
      for (int i = 0; i < 100; ++i) {
        std::vector<transport::InterNode::Operation> operations;
        for (int k = 0; k < 4; ++k) {
          memory[k] = -1;
          operations.push_back(inter->receive(k % 2, k / 2, reinterpret_cast<std::byte*>(memory + k), sizeof(int)));
        }
        for (int k = 3; k >= 0; --k) EXPECT_TRUE(finish(*inter, operations[static_cast<std::size_t>(k)]));
        for (int k = 0; k < 4; ++k) ASSERT_EQ(memory[k], 10000 * (k % 2) + 1000 * (k / 2) + i);
      }
    }
    test_support::meet(bootstrap);
  });
}

/// Who has armed it is rung by the next message that it waits for, and not armed over one that has come.
TEST(ThreadInterNode, RingsWhoHasArmedIt) {
  ThreadWorld world(2);
  run_threads(world, 2, [](Bootstrap& bootstrap) {
    const auto inter = bootstrap.inter_node({}, test_support::kPatience);
    std::byte* memory = inter->staging(64);
    if (bootstrap.rank() == 1) {
      for (int meetings = 0; meetings < 3; ++meetings) {
        test_support::meet(bootstrap);
        finish(*inter, inter->send(0, 0, memory, 8));
        test_support::meet(bootstrap);
      }
      return;
    }
    const auto first = inter->receive(1, 0, memory, 8);
    EXPECT_TRUE(inter->arm());
    EXPECT_FALSE(testing::is_readable(inter->event_fd(), 0));
    test_support::meet(bootstrap);
    EXPECT_TRUE(testing::is_readable(inter->event_fd(), 10'000));
    test_support::meet(bootstrap);
    EXPECT_FALSE(inter->arm()) << "a message has come";
    EXPECT_TRUE(inter->test(first));
    EXPECT_TRUE(inter->arm()) << "told once";
    EXPECT_FALSE(testing::is_readable(inter->event_fd(), 0)) << "the last ring is forgotten";
    test_support::meet(bootstrap);
    test_support::meet(bootstrap);
    EXPECT_FALSE(testing::is_readable(inter->event_fd(), 0)) << "a message that nobody has asked for";
    finish(*inter, inter->receive(1, 0, memory, 8));
    EXPECT_FALSE(inter->arm()) << "served at once";
    EXPECT_TRUE(inter->arm());
    const auto third = inter->receive(1, 0, memory, 8);
    test_support::meet(bootstrap);
    test_support::meet(bootstrap);
    EXPECT_TRUE(testing::is_readable(inter->event_fd(), 0));
    EXPECT_TRUE(inter->test(third));
  });
}

TEST(ThreadInterNode, WhoLeavesIsWrittenToNoMore) {
  ThreadWorld world(2);
  run_threads(world, 2, [](Bootstrap& bootstrap) {
    auto inter = bootstrap.inter_node({}, test_support::kPatience);
    std::byte* memory = inter->staging(64);
    if (bootstrap.rank() == 0) {
      static_cast<void>(inter->receive(1, 0, memory, 64));
      inter.reset();  // and its memory with it
    }
    test_support::meet(bootstrap);
    if (bootstrap.rank() == 1) finish(*inter, inter->send(0, 0, memory, 64));
  });
}

}  // namespace
}  // namespace kolo::bootstrap::test
