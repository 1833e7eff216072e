// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/handover.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "core/topology.hpp"
#include "tests/support/meeting.hpp"
#include "tests/support/processes.hpp"

namespace kolo::bootstrap::test {
namespace {

constexpr std::size_t kBytes = 1 << 20;

core::Topology topology_of(Bootstrap& bootstrap, int ranks_per_node = 0) {
  return test_support::topology_on_one_machine(bootstrap, ranks_per_node);
}

void drain(int fd) {
  std::uint64_t count = 0;
  EXPECT_EQ(::read(fd, &count, sizeof count), static_cast<ssize_t>(sizeof count));
}

TEST(Handover, ProcessesShareOneZeroedSegmentAndWakeEachOther) {
  for (const int size : {1, 2, 5}) {
    const std::vector<int> statuses = testing::run_processes(size, [&](Bootstrap& bootstrap) {
      const core::Topology topology = topology_of(bootstrap);
      const auto link = join_node(bootstrap, topology, kBytes, "a key");
      ASSERT_EQ(link->bytes(), kBytes);
      auto* words = reinterpret_cast<std::uint64_t*>(link->memory());
      for (std::size_t i = 0; i < kBytes / sizeof(std::uint64_t); ++i) ASSERT_EQ(words[i], 0u);
      test_support::meet(bootstrap);
      words[1000 + bootstrap.rank()] = static_cast<std::uint64_t>(bootstrap.rank()) + 1;
      test_support::meet(bootstrap);
      for (int r = 0; r < size; ++r) EXPECT_EQ(words[1000 + r], static_cast<std::uint64_t>(r) + 1);

      EXPECT_FALSE(testing::is_readable(link->wake_fd(), 0));
      test_support::meet(bootstrap);
      link->wake((bootstrap.rank() + 1) % size);
      EXPECT_TRUE(testing::is_readable(link->wake_fd(), 20000));
      test_support::meet(bootstrap);
      drain(link->wake_fd());
      EXPECT_FALSE(testing::is_readable(link->wake_fd(), 0));
      test_support::meet(bootstrap);
    });
    EXPECT_EQ(statuses, std::vector<int>(static_cast<std::size_t>(size), 0));
  }
}

TEST(Handover, VirtualNodesShareNothing) {
  const std::vector<int> statuses = testing::run_processes(5, [&](Bootstrap& bootstrap) {
    const core::Topology topology = topology_of(bootstrap, 2);
    const auto link = join_node(bootstrap, topology, kBytes, "a key");
    if (topology.is_leader()) *link->memory() = static_cast<std::byte>(topology.node + 1);
    test_support::meet(bootstrap);
    EXPECT_EQ(*link->memory(), static_cast<std::byte>(topology.node + 1));
    test_support::meet(bootstrap);
  });
  EXPECT_EQ(statuses, std::vector<int>(5, 0));
}

TEST(Handover, TheEndOfAProcessIsSeenEvenIfAChildOfItLivesOn) {
  const std::vector<int> statuses = testing::run_processes(3, [&](Bootstrap& bootstrap) {
    const core::Topology topology = topology_of(bootstrap);
    const auto link = join_node(bootstrap, topology, kBytes, "a key");
    const auto peers = link->liveness();
    ASSERT_EQ(peers.size(), bootstrap.rank() == 0 ? 4u : 2u);  // a socket and a process each
    for (const auto& peer : peers) EXPECT_FALSE(testing::is_readable(peer.fd, 0));
    test_support::meet(bootstrap);
    if (bootstrap.rank() == 2) {
      if (::fork() == 0) {  // holds copies of all its descriptors
        ::alarm(3);
        ::pause();
      }
      ::raise(SIGKILL);
    }
    if (bootstrap.rank() == 0) {
      int process = -1;  // the second of the peer's two descriptors
      for (const auto& peer : peers)
        if (peer.local_rank == 2) process = peer.fd;
      EXPECT_TRUE(testing::is_readable(process, 20000));
      for (const auto& peer : peers) EXPECT_FALSE(peer.local_rank == 1 && testing::is_readable(peer.fd, 0));
      link->wake(2);  // nobody there: no harm
      link->wake(1);
    } else {
      EXPECT_TRUE(testing::is_readable(link->wake_fd(), 20000));
    }
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_EQ(statuses[1], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[2]) && WTERMSIG(statuses[2]) == SIGKILL);
}

TEST(Handover, TheLeadersEndIsSeenByAll) {
  const std::vector<int> statuses = testing::run_processes(3, [&](Bootstrap& bootstrap) {
    const auto link = join_node(bootstrap, topology_of(bootstrap), kBytes, "a key");
    if (bootstrap.rank() == 0) return;
    for (const auto& peer : link->liveness()) {
      EXPECT_EQ(peer.local_rank, 0);
      EXPECT_TRUE(testing::is_readable(peer.fd, 20000));
    }
  });
  EXPECT_EQ(statuses, std::vector<int>(3, 0));
}

TEST(Handover, AForkedChildHasNoSegment) {
  const std::vector<int> statuses = testing::run_processes(1, [&](Bootstrap& bootstrap) {
    const auto link = join_node(bootstrap, topology_of(bootstrap), kBytes, "a key");
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGSEGV, SIG_DFL);
      *const_cast<volatile std::byte*>(link->memory()) = std::byte{1};
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(*link->memory(), std::byte{0});
  });
  EXPECT_EQ(statuses, std::vector<int>(1, 0));
}

std::string message_of(ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.status().message();
  }
  return "no error";
}

TEST(Handover, AnotherJobsKeyIsTurnedAwayAndEveryoneHearsOfIt) {
  const std::vector<int> statuses = testing::run_processes(3, [&](Bootstrap& bootstrap) {
    const std::string key = bootstrap.rank() == 2 ? "another key" : "a key";
    const std::string message = message_of(ErrorCode::transport, [&] {
      join_node(bootstrap, topology_of(bootstrap), kBytes, key, base::from_seconds(0.5));
    });
    EXPECT_EQ(message, "sharing memory: rank 2 did not join the node's shared memory within 0.5 s");
  });
  EXPECT_EQ(statuses, std::vector<int>(3, 0));
}

TEST(Handover, AnImpossibleSizeFailsForAllWithTheLeadersReason) {
  const std::vector<int> statuses = testing::run_processes(2, [&](Bootstrap& bootstrap) {
    constexpr std::size_t kTooMuch = std::size_t{1} << 62;
    const std::string message =
        message_of(ErrorCode::out_of_memory, [&] { join_node(bootstrap, topology_of(bootstrap), kTooMuch, "a key"); });
    EXPECT_NE(message.find("rank 0 cannot share memory with its node: "), std::string::npos) << message;
    EXPECT_NE(message.find("4611686018427387904 bytes"), std::string::npos) << message;
  });
  EXPECT_EQ(statuses, std::vector<int>(2, 0));
}

/// As batch systems set it. The system would end the leader by a signal.
TEST(Handover, ALimitOfFileSizesFailsForAllWithTheLeadersReason) {
  const std::vector<int> statuses = testing::run_processes(2, [&](Bootstrap& bootstrap) {
    rlimit limit{kBytes - 1, kBytes - 1};
    if (bootstrap.rank() == 0) {
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
    const auto join = [&](std::size_t bytes) { return join_node(bootstrap, topology_of(bootstrap), bytes, "a key"); };
    EXPECT_EQ(message_of(ErrorCode::transport, [&] { join(kBytes); }),
              "rank 0 cannot share memory with its node: sizing a shared segment to 1048576 bytes: files may have "
              "1048575 bytes at most, shared memory too: raise that limit (ulimit -f)");
    EXPECT_EQ(join(kBytes / 2)->bytes(), kBytes / 2);
  });
  EXPECT_EQ(statuses, std::vector<int>(2, 0));
}

}  // namespace
}  // namespace kolo::bootstrap::test
