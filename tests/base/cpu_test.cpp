// SPDX-License-Identifier: Apache-2.0
#include "base/cpu.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace {
std::atomic<int> yields{0};
}

/// The system's, counted: std::this_thread::yield calls this one.
extern "C" int sched_yield() noexcept {
  ++yields;
  return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace kolo::base {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(Cpu, AffinityIsTheThreadsOwn) {
  const std::vector<int> cpus = affinity();
  ASSERT_FALSE(cpus.empty());
  EXPECT_TRUE(std::is_sorted(cpus.begin(), cpus.end()));
  std::vector<int> bound;
  std::thread thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpus.back()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    bound = affinity();
    EXPECT_EQ(usable_cpus(), 1);
  });
  thread.join();
  EXPECT_EQ(bound, std::vector<int>{cpus.back()});
  EXPECT_EQ(affinity(), cpus);
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_LE(usable_cpus(), static_cast<int>(cpus.size()));
}

class CgroupTree : public testing::Test {
 protected:
  CgroupTree() : root_(fs::path(testing::TempDir()) / ("kolo_cgroup_" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~CgroupTree() override { fs::remove_all(root_); }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  fs::path root_;
};

TEST_F(CgroupTree, VersionTwoText) {
  const auto quota = [&](const char* text) {
    put("cpu.max", text);
    return cgroup_cpu_quota("0::/", root_);
  };
  EXPECT_EQ(quota("200000 100000\n"), 2.0);
  EXPECT_EQ(quota("150000 100000"), 1.5);
  EXPECT_EQ(quota("max 100000\n"), std::nullopt);
  EXPECT_EQ(quota(""), std::nullopt);
  EXPECT_EQ(quota("200000"), std::nullopt);
  EXPECT_EQ(quota("200000 0"), std::nullopt);
  EXPECT_EQ(quota("20x 100"), std::nullopt);
}

TEST_F(CgroupTree, VersionOneText) {
  const auto quota = [&](const char* quota_us, const char* period_us) {
    put("cpu.cfs_quota_us", quota_us);
    put("cpu.cfs_period_us", period_us);
    return cgroup_cpu_quota("0::/", root_);
  };
  EXPECT_EQ(quota("400000\n", "100000\n"), 4.0);
  EXPECT_EQ(quota("-1\n", "100000\n"), std::nullopt);
  EXPECT_EQ(quota("", "100000"), std::nullopt);
}

TEST_F(CgroupTree, NoQuotaAnywhere) {
  EXPECT_EQ(cgroup_cpu_quota("0::/a\n", root_), std::nullopt);
  EXPECT_EQ(cgroup_cpu_quota("", root_), std::nullopt);
  EXPECT_EQ(cgroup_cpu_quota("nonsense\n1:cpu\n", root_), std::nullopt);
}

TEST_F(CgroupTree, VersionTwoTakesTheSmallestOfTheAncestors) {
  put("cpu.max", "max 100000\n");
  put("a/cpu.max", "300000 100000\n");
  put("a/b/cpu.max", "800000 100000\n");
  put("a/b/c/cpu.max", "max 100000\n");
  put("other/cpu.max", "100000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/a/b/c\n", root_), 3.0);
  EXPECT_EQ(cgroup_cpu_quota("0::/\n", root_), std::nullopt);
}

TEST_F(CgroupTree, InAContainerThePathMayLieOutside) {
  put("cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/system/docker-1234\n", root_), 2.5);
  EXPECT_EQ(cgroup_cpu_quota("0::/../../other\n", root_), 2.5);
}

TEST_F(CgroupTree, WhatCannotBeReadIsNoQuota) {
  fs::create_directories(root_ / "job" / "cpu.max");
  EXPECT_EQ(cgroup_cpu_quota("0::/job\n", root_), std::nullopt);
  fs::create_directory(root_ / "cpu.max");
  put("job/cpu.cfs_quota_us", "300000\n");
  put("job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/job\n", root_), 3.0);
  using namespace std::string_literals;
  EXPECT_EQ(cgroup_cpu_quota("0::/\0/cpu\n"s, root_), std::nullopt);  // ends a name of the system's: a folder
}

TEST_F(CgroupTree, VersionOneByItsControllers) {
  put("cpu,cpuacct/jobs/cpu.cfs_quota_us", "600000\n");
  put("cpu,cpuacct/jobs/cpu.cfs_period_us", "100000\n");
  put("memory/jobs/cpu.cfs_quota_us", "100000\n");
  put("memory/jobs/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota("9:memory:/jobs\n4:cpu,cpuacct:/jobs\n1:cpuset:/\n0::/\n", root_), 6.0);
  put("cpu/jobs/cpu.cfs_quota_us", "200000\n");
  put("cpu/jobs/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota("4:cpuacct,cpu:/jobs", root_), 2.0);
}

TEST_F(CgroupTree, VersionTwoBesideVersionOne) {
  put("unified/jobs/cpu.max", "100000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/jobs\n", root_), 1.0);
}

TEST_F(CgroupTree, TheSecondLevelCacheIsACoresOwn) {
  EXPECT_EQ(private_cache_bytes(root_), 1U << 20);  // nobody tells
  put("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
  put("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
  put("sys/devices/system/cpu/cpu0/cache/index2/level", "2\n");
  put("sys/devices/system/cpu/cpu0/cache/index2/size", "nonsense\n");
  EXPECT_EQ(private_cache_bytes(root_), 1U << 20);
  put("sys/devices/system/cpu/cpu0/cache/index2/size", "2048K\n");
  EXPECT_EQ(private_cache_bytes(root_), 2U << 20);
  EXPECT_GT(private_cache_bytes(), 0U);
}

TEST_F(CgroupTree, TheThirdLevelCacheIsShared) {
  EXPECT_EQ(shared_cache_bytes(root_), 0U) << "nobody tells";
  put("sys/devices/system/cpu/cpu0/cache/index2/level", "2\n");
  put("sys/devices/system/cpu/cpu0/cache/index2/size", "2048K\n");
  EXPECT_EQ(shared_cache_bytes(root_), 0U);
  put("sys/devices/system/cpu/cpu0/cache/index3/level", "3\n");
  put("sys/devices/system/cpu/cpu0/cache/index3/size", "491520K\n");
  EXPECT_EQ(shared_cache_bytes(root_), 480U << 20);
}

TEST_F(CgroupTree, ASystemHasANameOrNone) {
  EXPECT_EQ(system_name(root_), "");
  put("proc/sys/kernel/random/boot_id", "0b1f-22\n");
  EXPECT_EQ(system_name(root_), "0b1f-22");
}

TEST_F(CgroupTree, AMachineIsARunningSystemANetworkAndAHost) {
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  EXPECT_EQ(machine_name(root_), std::string("  ") + host.data());
  put("proc/sys/kernel/random/boot_id", "0b1f-22\n");
  std::filesystem::create_directories(root_ / "proc/self/ns");
  std::filesystem::create_symlink("net:[4026531840]", root_ / "proc/self/ns/net");
  EXPECT_EQ(machine_name(root_), std::string("0b1f-22 net:[4026531840] ") + host.data());
}

TEST(CpuShare, RanksOfOneMachineShareTheUnionOfTheirCpus) {
  const std::vector<RankCpus> bound = {{{0}, 0, "", 1}, {{1}, 0, "", 1}, {{0, 1, 2, 3}, 1, "", 4}};
  EXPECT_EQ(cpu_share(bound, 0).cpus, 2);
  EXPECT_EQ(cpu_share(bound, 0).ranks, 2);
  EXPECT_EQ(cpu_share(bound, 2).cpus, 4);
  EXPECT_EQ(cpu_share(bound, 2).ranks, 1);
}

TEST(CpuShare, ContainersOfOneSystemShareItsCpus) {
  const std::vector<RankCpus> ranks = {
      {{0, 1}, 0, "a", 2}, {{0, 1}, 0, "a", 2}, {{0, 1}, 1, "a", 2}, {{0, 1}, 2, "b", 2}};
  EXPECT_EQ(cpu_share(ranks, 0).ranks, 3);
  EXPECT_EQ(cpu_share(ranks, 2).ranks, 3);
  EXPECT_EQ(cpu_share(ranks, 2).cpus, 2);
  EXPECT_EQ(cpu_share(ranks, 3).ranks, 1);
}

TEST(CpuShare, AQuotaIsItsMachinesAlone) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto share_of_first = [&all](int usable) {
    return cpu_share({{all, 0, "a", usable}, {all, 0, "a", 8}, {all, 1, "a", 8}, {all, 1, "a", 8}}, 0);
  };
  EXPECT_EQ(share_of_first(8).cpus, 8);
  EXPECT_EQ(share_of_first(8).ranks, 4);
  EXPECT_EQ(share_of_first(2).cpus, 2) << "one each: less than the two each of the system";
  EXPECT_EQ(share_of_first(2).ranks, 2);
  EXPECT_EQ(share_of_first(6).cpus, 8) << "three each: more";
}

/// What every rank finds.
template <class Value>
std::vector<Value> by_rank(const std::vector<RankCpus>& ranks, Value CpuShare::*what) {
  std::vector<Value> found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) found.push_back(cpu_share(ranks, rank).*what);
  return found;
}

/// How a reduce is cut depends on it, so that the ranks of a machine must not differ.
TEST(CpuShare, AllRanksOfAMachineAgree) {
  const std::vector<RankCpus> bound = {{{0}, 0, "a", 1}, {{1}, 0, "a", 1}, {{0}, 1, "b", 1}, {{0}, 1, "b", 1}};
  EXPECT_EQ(by_rank(bound, &CpuShare::ranks_a_cpu), (std::vector<int>{1, 1, 2, 2}));

  // One rank has a quota of one CPU for the two ranks of its machine.
  const std::vector<RankCpus> quota = {{{0, 1}, 0, "a", 2}, {{0, 1}, 0, "a", 1}, {{0, 1}, 1, "b", 2}};
  EXPECT_EQ(by_rank(quota, &CpuShare::ranks_a_cpu), (std::vector<int>{1, 1, 0}));

  const std::vector<RankCpus> pairs = {{{0}, 0, "a", 1}, {{1}, 0, "a", 1}, {{0}, 0, "a", 1}, {{1}, 0, "a", 1}};
  EXPECT_EQ(by_rank(pairs, &CpuShare::ranks_a_cpu), (std::vector<int>{2, 2, 2, 2}));

  // The ranks of machine 0 call their system differently, or cannot tell; each name has a rank elsewhere.
  const std::vector<RankCpus> named = {
      {{0, 1}, 0, "a", 2}, {{0, 1}, 0, "b", 2}, {{0, 1}, 0, "", 2}, {{0, 1}, 1, "a", 2}, {{2, 3}, 2, "b", 2}};
  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_EQ(cpu_share(named, rank).ranks, cpu_share(named, 0).ranks);
    EXPECT_EQ(cpu_share(named, rank).ranks_a_cpu, cpu_share(named, 0).ranks_a_cpu);
  }
}

TEST(Crowding, IsSaidOfTheFirstMachineWhoseThreadsOutnumberItsCpus) {
  const std::vector<int> two = {0, 1};
  EXPECT_EQ(crowding({{two, 0, "a", 2, 1}, {two, 0, "a", 2, 1}}), "");
  EXPECT_EQ(crowding({{two, 0, "a", 2, 1}, {two, 0, "a", 2, 1}, {two, 0, "a", 2, 1}}), "")
      << "more ranks than CPUs, as somebody has asked for";
  EXPECT_EQ(crowding({{two, 0, "a", 2, 2}}), "");
  EXPECT_EQ(
      crowding({{two, 0, "a", 2, 1}, {{0, 1, 2, 3}, 1, "b", 4, 2}, {{0, 1, 2, 3}, 1, "b", 4, 3}}),
      "the ranks of rank 1's machine (2) have 5 threads of OpenMP together for 4 CPUs, and these threads wait for "
      "each other: a step can take many times as long. Set OMP_NUM_THREADS=2 (kolo-run does)");
  EXPECT_EQ(
      crowding({{two, 0, "a", 1, 2}}),
      "the ranks of rank 0's machine (1) have 2 threads of OpenMP together for 1 CPUs, and these threads wait for "
      "each other: a step can take many times as long. Set OMP_NUM_THREADS=1 (kolo-run does)")
      << "a quota of one CPU";
}

TEST(OpenmpThreads, AreThoseOfTheRuntimeThatIsLoaded) {
  EXPECT_EQ(openmp_threads(), 1) << "none is";
  void* const runtime = ::dlopen("libgomp.so.1", RTLD_NOW);
  ASSERT_NE(runtime, nullptr) << ::dlerror();
  const auto set = reinterpret_cast<void (*)(int)>(::dlsym(runtime, "omp_set_num_threads"));
  ASSERT_NE(set, nullptr);
  set(3);
  EXPECT_EQ(openmp_threads(), 3);
}

TEST(WaitPolicy, FollowsTheCpusThereAre) {
  EXPECT_GT(choose_wait_policy(2, 2).pauses, 0);
  EXPECT_EQ(choose_wait_policy(2, 2), choose_wait_policy(15, 8));
  EXPECT_EQ(choose_wait_policy(2, 2).background_pauses, 0) << "no CPU for a second thread of each rank";
  EXPECT_GT(choose_wait_policy(4, 2).background_pauses, 0);
  EXPECT_EQ(choose_wait_policy(2, 3).pauses, 0);
  EXPECT_GT(choose_wait_policy(2, 3).active, nanoseconds(0));
  EXPECT_EQ(choose_wait_policy(2, 2, 7).active, microseconds(7));
  EXPECT_EQ(choose_wait_policy(1, 2, 0).active, nanoseconds(0));
}

/// If other programs compute on its CPU, each yield would give them a time slice.
TEST(Waiter, YieldsToRanksAlone) {
  Waiter beside_strangers(choose_wait_policy(2, 2));
  yields = 0;
  for (int i = 0; i < 10000; ++i) beside_strangers.step();
  EXPECT_EQ(yields, 0);
  Waiter beside_ranks(choose_wait_policy(2, 3));
  for (int i = 0; i < 100; ++i) beside_ranks.step();
  EXPECT_EQ(yields, 100);
}

TEST(Waiter, WithoutActiveTimeSleepsAtOnce) {
  const Waiter waiter(WaitPolicy{100, nanoseconds(0)});
  EXPECT_TRUE(waiter.exhausted());
}

TEST(Waiter, IsExhaustedInTheEndWhateverThePolicy) {
  for (const int pauses : {0, 10, 1000}) {
    Waiter waiter(WaitPolicy{pauses, microseconds(50)});
    for (int wait = 0; wait < 2; ++wait) {
      EXPECT_FALSE(waiter.exhausted());
      const Time begin = now();
      while (!waiter.exhausted()) waiter.step();
      EXPECT_GE(now() - begin, microseconds(50));
      waiter.reset();
    }
  }
}

TEST(Waiter, KeepsLookingWithinItsTime) {
  Waiter waiter(WaitPolicy{100, std::chrono::hours(1)});
  for (int i = 0; i < 10000; ++i) waiter.step();
  EXPECT_FALSE(waiter.exhausted());
}

TEST(Backoff, DoublesUpToTheLongestAndBeginsAgain) {
  Backoff backoff(microseconds(20), microseconds(100));
  for (int wait = 0; wait < 2; ++wait) {
    for (const int expected : {20, 40, 80, 100, 100}) EXPECT_EQ(backoff.next(), microseconds(expected));
    backoff.reset();
  }
}

}  // namespace
}  // namespace kolo::base
