// SPDX-License-Identifier: Apache-2.0
#include "shm/thread_world.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "processes.hpp"

namespace kolo::shm::test {
namespace {

void run_threads(ThreadWorld& world, int size, const std::function<void(core::Bootstrap&)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { body(*world.bootstrap(rank)); });
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadWorld, GathersByRankAgainAndAgain) {
  ThreadWorld world(4);
  run_threads(world, 4, [](core::Bootstrap& bootstrap) {
    EXPECT_EQ(bootstrap.machines(), std::vector<int>(4, 0));
    for (int round = 0; round < 200; ++round) {
      const auto said = [&](int rank) { return std::to_string(rank) + "/" + std::to_string(round); };
      const std::vector<std::string> all = bootstrap.allgather(said(bootstrap.rank()));
      ASSERT_EQ(all, (std::vector<std::string>{said(0), said(1), said(2), said(3)}));
    }
  });
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
  run_threads(world, 3, [&](core::Bootstrap& bootstrap) {
    const auto inter = bootstrap.inter_node({});
    if (bootstrap.rank() == 2) {
      world.abort("rank 2 has had enough");
      world.abort("a later reason");
    }
    expect_the_reason([&] { bootstrap.allgather(""); });
    expect_the_reason([&] { bootstrap.allgather(""); });
    expect_the_reason([&] { inter->send(0, 0, nullptr, 0); });
  });
}

TEST(ThreadWorld, NodesShareMemoryAndBells) {
  ThreadWorld world(5);
  run_threads(world, 5, [](core::Bootstrap& bootstrap) {
    const core::Topology topology = core::make_topology(bootstrap.rank(), bootstrap.machines(), 2);
    for (int again = 0; again < 2; ++again) {  // a second engine in the same world gets memory of its own
      const auto link = bootstrap.join_node(topology, 8192, "key");
      ASSERT_EQ(link->bytes(), 8192u);
      EXPECT_EQ(link->memory()[100], std::byte{0});
      EXPECT_TRUE(link->liveness().empty());
      bootstrap.allgather("");
      if (topology.is_leader()) {
        link->memory()[100] = static_cast<std::byte>(topology.node + 1);
        if (topology.local_size() > 1) link->wake(1);
      } else {
        EXPECT_TRUE(is_readable(link->wake_fd(), 20000));
      }
      bootstrap.allgather("");
      EXPECT_EQ(link->memory()[100], static_cast<std::byte>(topology.node + 1));
      EXPECT_EQ(is_readable(link->wake_fd(), 0), !topology.is_leader());
      bootstrap.allgather("");
    }
  });
}

bool finish(core::InterNode& inter, core::InterNode::Operation operation) {
  while (!inter.test(operation)) std::this_thread::yield();
  return true;
}

TEST(ThreadInterNode, MatchesBySenderAndTagInOrder) {
  ThreadWorld world(3);
  run_threads(world, 3, [](core::Bootstrap& bootstrap) {
    const auto inter = bootstrap.inter_node({});
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
        std::vector<core::InterNode::Operation> operations;
        for (int k = 0; k < 4; ++k) {
          memory[k] = -1;
          operations.push_back(inter->receive(k % 2, k / 2, reinterpret_cast<std::byte*>(memory + k), sizeof(int)));
        }
        for (int k = 3; k >= 0; --k) EXPECT_TRUE(finish(*inter, operations[static_cast<std::size_t>(k)]));
        for (int k = 0; k < 4; ++k) ASSERT_EQ(memory[k], 10000 * (k % 2) + 1000 * (k / 2) + i);
      }
    }
    bootstrap.allgather("");
  });
}

TEST(ThreadInterNode, WhoLeavesIsWrittenToNoMore) {
  ThreadWorld world(2);
  run_threads(world, 2, [](core::Bootstrap& bootstrap) {
    auto inter = bootstrap.inter_node({});
    std::byte* memory = inter->staging(64);
    if (bootstrap.rank() == 0) {
      static_cast<void>(inter->receive(1, 0, memory, 64));
      inter.reset();  // and its memory with it
    }
    bootstrap.allgather("");
    if (bootstrap.rank() == 1) finish(*inter, inter->send(0, 0, memory, 64));
  });
}

}  // namespace
}  // namespace kolo::shm::test
