// SPDX-License-Identifier: Apache-2.0
//
// Regions between processes and between threads: every rank reaches every other's part, until its owner takes it back.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/machine.hpp"
#include "bootstrap/handover.hpp"
#include "bootstrap/thread_world.hpp"
#include "core/topology.hpp"
#include "tests/support/meeting.hpp"
#include "tests/support/processes.hpp"
#include "transport/regions.hpp"

namespace kolo::shm::test {
namespace {

constexpr std::size_t kBytes = 64 << 10;

/// What every rank does; the link is a process's or a thread's.
void share_detach_and_release(bootstrap::Bootstrap& bootstrap, const core::Topology& topology,
                              transport::NodeLink& link) {
  const int size = bootstrap.size();
  const int rank = bootstrap.rank();
  const auto meet = [&](const std::string& mine) { return test_support::meet(bootstrap, mine); };
  const std::shared_ptr<transport::SharedRegion> region =
      link.share(transport::Sharers::all(topology), kBytes, meet, [] {});
  ASSERT_EQ(region->bytes(), kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(region->own()[i], std::byte{0});
  test_support::meet(bootstrap);

  // Everybody writes a byte of everybody's.
  for (int peer = 0; peer < size; ++peer)
    region->of(peer)[static_cast<std::size_t>(rank) * 5000] = static_cast<std::byte>(10 * peer + rank + 1);
  test_support::meet(bootstrap);
  for (int peer = 0; peer < size; ++peer)
    ASSERT_EQ(region->own()[static_cast<std::size_t>(peer) * 5000], static_cast<std::byte>(10 * rank + peer + 1));
  test_support::meet(bootstrap);

  // Rank 0 takes its part back: what it holds stays, what peers write is not seen, and it is not seen by them.
  if (rank == 0) region->detach();
  test_support::meet(bootstrap);
  if (rank == 1) std::memset(region->of(0), 77, kBytes);
  test_support::meet(bootstrap);
  if (rank == 0) {
    for (int peer = 0; peer < size; ++peer)
      ASSERT_EQ(region->own()[static_cast<std::size_t>(peer) * 5000], static_cast<std::byte>(peer + 1));
    ASSERT_EQ(region->own()[1], std::byte{0});
    region->own()[1] = std::byte{5};
  }
  test_support::meet(bootstrap);
  if (rank != 0) {
    ASSERT_EQ(region->of(0)[1], std::byte{77});
  }
  test_support::meet(bootstrap);

  // Its memory goes; the others' parts stay in reach, and what is written to its part harms nobody.
  if (rank == 0) region->release_own();
  test_support::meet(bootstrap);
  ASSERT_EQ(region->own() == nullptr, rank == 0);
  if (rank != 0) {
    ASSERT_EQ(region->of(0)[1], std::byte{0});
  }
  test_support::meet(bootstrap);
  if (rank != 0) region->of(0)[static_cast<std::size_t>(rank)] = std::byte{1};
  ASSERT_EQ(region->of(size - 1)[0], static_cast<std::byte>(10 * (size - 1) + 1));
  test_support::meet(bootstrap);
}

TEST(Region, BetweenProcesses) {
  for (const int size : {2, 4}) {
    const std::vector<int> statuses = testing::run_processes(size, [&](bootstrap::Bootstrap& bootstrap) {
      const core::Topology topology = test_support::topology_on_one_machine(bootstrap);
      const auto link = bootstrap::join_node(bootstrap, topology, 4096, "a key");
      share_detach_and_release(bootstrap, topology, *link);
    });
    EXPECT_EQ(statuses, std::vector<int>(static_cast<std::size_t>(size), 0));
  }
}

/// How many bytes this process has in memory.
std::size_t resident() {
  std::size_t all = 0;
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> all >> pages;
  return pages * base::kPageBytes;
}

TEST(Region, WhatWasNeverTouchedTakesNoMemoryWhenItIsTakenBack) {
  constexpr std::size_t kLarge = std::size_t{1} << 30;
  constexpr std::size_t kFar = kLarge / 2 + 12345;
  const std::vector<int> statuses = testing::run_processes(2, [&](bootstrap::Bootstrap& bootstrap) {
    const core::Topology topology = test_support::topology_on_one_machine(bootstrap);
    const auto link = bootstrap::join_node(bootstrap, topology, 4096, "a key");
    const auto meet = [&](const std::string& mine) { return test_support::meet(bootstrap, mine); };
    const auto region = link->share(transport::Sharers::all(topology), kLarge, meet, [] {});
    region->own()[0] = region->own()[kFar] = region->own()[kLarge - 1] = std::byte{1};
    test_support::meet(bootstrap);
    const std::size_t before = resident();
    region->detach();
    ASSERT_LT(resident(), before + kLarge / 4);
    test_support::meet(bootstrap);
    for (const std::size_t at : {std::size_t{0}, kFar, kLarge - 1}) region->of(1 - bootstrap.rank())[at] = std::byte{2};
    test_support::meet(bootstrap);
    for (const std::size_t at : {std::size_t{0}, kFar, kLarge - 1}) ASSERT_EQ(region->own()[at], std::byte{1});
    test_support::meet(bootstrap);
  });
  EXPECT_EQ(statuses, std::vector<int>(2, 0));
}

TEST(Region, BetweenThreads) {
  for (const int size : {2, 4}) {
    bootstrap::ThreadWorld world(size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto bootstrap = world.bootstrap(rank);
        const core::Topology topology = test_support::topology_on_one_machine(*bootstrap);
        const auto link = bootstrap->join_node(topology, 4096, "a key", test_support::kPatience);
        share_detach_and_release(*bootstrap, topology, *link);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Region, PlacesAreFoundByAddressUntilRetired) {
  bootstrap::ThreadWorld world(1);
  const auto bootstrap = world.bootstrap(0);
  const core::Topology topology = test_support::topology_on_one_machine(*bootstrap);
  const auto link = bootstrap->join_node(topology, 4096, "a key", test_support::kPatience);
  const transport::Sharers sharers = transport::Sharers::all(topology);
  const auto meet = [&](const std::string& mine) { return test_support::meet(*bootstrap, mine); };
  const auto regions = std::make_shared<transport::Regions>();
  transport::RegionTable table(regions);
  EXPECT_TRUE(table.empty());
  const std::shared_ptr<transport::SharedRegion> first = link->share(sharers, kBytes, meet, [] {});
  const std::shared_ptr<transport::SharedRegion> second = link->share(sharers, kBytes, meet, [] {});
  const transport::Regions::Id id{1, regions->new_serial(0)};
  const transport::Regions::Id other{2, regions->new_serial(0)};
  ASSERT_TRUE(regions->reserve(id) && regions->reserve(other));
  regions->add(id, first, sharers.members);
  regions->add(other, second, sharers.members);
  std::byte elsewhere{};
  EXPECT_EQ(table.find(&elsewhere, 1), transport::kNowhere);
  for (const auto& region : {first, second}) {
    EXPECT_EQ(table.at(0, table.find(region->own() + 100, 5)), region->own() + 100);
    EXPECT_NE(table.find(region->own(), kBytes), transport::kNowhere);
    EXPECT_EQ(table.find(region->own() + 1, kBytes), transport::kNowhere) << "beyond its end";
  }
  const std::byte* own = first->own();
  regions->retire(id, true);
  EXPECT_EQ(table.find(own, 1), transport::kNowhere);
  EXPECT_FALSE(table.empty());
  EXPECT_EQ(transport::Regions::first_free({regions->taken()}), 3);
}

}  // namespace
}  // namespace kolo::shm::test
