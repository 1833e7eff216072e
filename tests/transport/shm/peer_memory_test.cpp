// SPDX-License-Identifier: Apache-2.0
//
// Ranks that read each other's memory: what they find, what they are told when there is nothing to be read, and that
// one rank that cannot is enough for none to do it.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "core/topology.hpp"
#include "tests/support/meeting.hpp"
#include "tests/support/processes.hpp"
#include "transport/shm/peer_memory.hpp"

namespace kolo::shm::test {
namespace {

constexpr std::size_t kBytes = 3 * 4096 + 5;

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

std::vector<unsigned char> contents(int rank) {
  std::vector<unsigned char> bytes(kBytes);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(rank * 3));
  return bytes;
}

TEST(PeerMemory, ProcessesReadWhatTheOthersHave) {
  constexpr int kRanks = 3;
  const std::vector<int> statuses = testing::run_processes(kRanks, [&](bootstrap::Bootstrap& bootstrap) {
    const core::Topology topology = test_support::topology_on_one_machine(bootstrap);
    const auto peers =
        read_between_processes(topology, [&](const std::string& mine) { return test_support::meet(bootstrap, mine); });
    ASSERT_NE(peers, nullptr);
    const std::vector<unsigned char> own = contents(bootstrap.rank());
    const std::vector<std::string> addresses = test_support::meet(bootstrap, std::to_string(address_of(own.data())));
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<unsigned char> found(kBytes, 0xee);
      const auto* from = reinterpret_cast<const void*>(std::stoull(addresses[static_cast<std::size_t>(rank)]));
      const Status status = peers->read(rank, found.data(), from, kBytes);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(found, contents(rank));
    }
    test_support::meet(bootstrap);  // nobody's memory goes while it is read
  });
  EXPECT_EQ(statuses, std::vector<int>(kRanks, 0));
}

TEST(PeerMemory, WhatCannotBeReadIsSaid) {
  const std::vector<int> statuses = testing::run_processes(2, [&](bootstrap::Bootstrap& bootstrap) {
    const core::Topology topology = test_support::topology_on_one_machine(bootstrap);
    const auto peers =
        read_between_processes(topology, [&](const std::string& mine) { return test_support::meet(bootstrap, mine); });
    ASSERT_NE(peers, nullptr);
    // Two pages that can be read, and one behind them that cannot.
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    auto* memory =
        static_cast<std::byte*>(::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    std::memset(memory, 1, 3 * page);
    ASSERT_EQ(::mprotect(memory + 2 * page, page, PROT_NONE), 0);
    const std::vector<std::string> addresses = test_support::meet(bootstrap, std::to_string(address_of(memory)));
    const int peer = 1 - bootstrap.rank();
    const auto from = std::stoull(addresses[static_cast<std::size_t>(peer)]);
    std::vector<std::byte> found(3 * page);
    EXPECT_TRUE(peers->read(peer, found.data(), reinterpret_cast<const void*>(from), 2 * page).ok());
    const Status status = peers->read(peer, found.data(), reinterpret_cast<const void*>(from), 3 * page);
    EXPECT_EQ(status.code(), ErrorCode::transport);
    EXPECT_NE(status.message().find("local rank " + std::to_string(peer)), std::string::npos) << status.message();
    test_support::meet(bootstrap);
  });
  EXPECT_EQ(statuses, std::vector<int>(2, 0));
}

TEST(PeerMemory, APeerWhoseProcessHasEndedIsLost) {
  const std::vector<int> statuses = testing::run_processes(2, [&](bootstrap::Bootstrap& bootstrap) {
    const core::Topology topology = test_support::topology_on_one_machine(bootstrap);
    const auto peers =
        read_between_processes(topology, [&](const std::string& mine) { return test_support::meet(bootstrap, mine); });
    ASSERT_NE(peers, nullptr);
    const std::byte mine{7};
    const std::vector<std::string> processes = test_support::meet(bootstrap, std::to_string(::getpid()));
    const base::UniqueFd peer(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(processes[1]), 0)));
    ASSERT_GE(peer.get(), 0);
    const std::vector<std::string> addresses = test_support::meet(bootstrap, std::to_string(address_of(&mine)));
    if (bootstrap.rank() == 1) return;
    ASSERT_TRUE(testing::is_readable(peer.get(), -1)) << "it has ended";
    std::byte found{};
    const Status status = peers->read(1, &found, reinterpret_cast<const void*>(std::stoull(addresses[1])), 1);
    EXPECT_EQ(status.code(), ErrorCode::rank_lost);
    EXPECT_EQ(status.message(), "its process has ended");
  });
  EXPECT_EQ(statuses, std::vector<int>(2, 0));
}

TEST(PeerMemory, OneThatCannotReadIsEnoughForNoneToDoSo) {
  const std::vector<int> statuses = testing::run_processes(3, [&](bootstrap::Bootstrap& bootstrap) {
    const core::Topology topology = test_support::topology_on_one_machine(bootstrap);
    int meeting = 0;
    const auto peers = read_between_processes(topology, [&](const std::string& mine) {
      std::vector<std::string> all = test_support::meet(bootstrap, mine);
      // Rank 1 looks for another number than rank 2 has.
      if (meeting++ == 0 && bootstrap.rank() == 1) all[2].back() = all[2].back() == '1' ? '2' : '1';
      return all;
    });
    EXPECT_EQ(peers, nullptr);
    EXPECT_EQ(meeting, 2);
  });
  EXPECT_EQ(statuses, std::vector<int>(3, 0));
}

}  // namespace
}  // namespace kolo::shm::test
