// SPDX-License-Identifier: Apache-2.0
//
// How many CPUs there are to use, and how a thread waits on them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/machine.hpp"

namespace kolo::base {

/// The CPUs that the calling thread may run on, ascending. Throws Error(transport).
std::vector<int> affinity();

/// How many CPUs this process can keep busy: its affinity, cut down to the quota of its control groups; at least 1.
int usable_cpus();

/// How many threads OpenMP would start at once for the calling thread: PyTorch and others compute with so many. 1 where
/// no runtime of OpenMP (GCC's, LLVM's, Intel's) is loaded.
int openmp_threads();

/// The smallest quota, in CPUs, of a process's control groups and their ancestors: version 2's `cpu.max` ("200000
/// 100000" is 2; "max" is none), version 1's cpu.cfs_quota_us and cpu.cfs_period_us (-1 is none). `memberships` is the
/// text of /proc/self/cgroup, `root` where control groups are mounted. In a container the path may lie outside the
/// mount; the parts of it that exist count, and their ancestors.
std::optional<double> cgroup_cpu_quota(const std::string& memberships, const std::filesystem::path& root);
/// The same for this process, mounted in /sys/fs/cgroup.
std::optional<double> process_cpu_quota();

/// The size of a core's private cache beyond the first level, in bytes; 1 MiB if the system does not tell (some virtual
/// machines). `root` is the file system's, for tests.
std::size_t private_cache_bytes(const std::filesystem::path& root = "/");

/// The size of the third-level cache, which cores share, in bytes; 0 where the system does not tell.
std::size_t shared_cache_bytes(const std::filesystem::path& root = "/");

/// Names the running system that has these CPUs (its boot): the same in all containers of a machine, which may share
/// CPUs and nothing else. Empty if the system does not tell. `root` is the file system's, for tests.
std::string system_name(const std::filesystem::path& root = "/");

/// The machine's own name. Throws Error(transport).
std::string host_name();
/// Names the machine for sharing memory: equal for processes that can pass descriptors to each other by an abstract
/// socket. It consists of the running system, the network namespace (abstract sockets belong to one), and the host's
/// name, which distinguishes copies of one virtual machine. `root` is the file system's, for tests.
std::string machine_name(const std::filesystem::path& root = "/");

/// How a thread waits for an event that should come soon: it looks repeatedly, and sleeps after a while. Between looks
/// it pauses, or yields its CPU if ranks share CPUs.
struct WaitPolicy {
  int pauses = 0;                      ///< how many pauses to wait for a peer that has a CPU of its own; 0: ranks share
                                       ///< CPUs
  std::chrono::nanoseconds active{0};  ///< how long to look before sleeping; 0 sleeps at once
  int background_pauses = 0;           ///< how many pauses a thread waits that runs beside one that computes

  friend bool operator==(const WaitPolicy&, const WaitPolicy&) = default;
};

/// A rank's CPUs.
struct RankCpus {
  std::vector<int> cpus;  ///< its affinity
  int machine = 0;        ///< as the launcher counts machines: virtual nodes of one are the same machine
  std::string system;     ///< system_name(): containers of one system have the same
  int usable;             ///< its usable_cpus()
  int threads = 1;        ///< its openmp_threads()
};

/// CPUs, and the ranks that share them.
struct CpuShare {
  int cpus = 0;
  int ranks = 0;
  int threads = 0;      ///< of OpenMP, all ranks together
  int ranks_a_cpu = 0;  ///< ranks for each CPU, rounded down; the smallest such number of a rank of this machine
};

/// The CPUs that rank `self` shares with others: all CPUs of the ranks of its running system. (mpirun binds each rank
/// to one, so the CPUs of all ranks must be combined. Launchers treat containers of one system as hosts with CPUs of
/// their own; their ranks may share CPUs all the same.) If control groups grant a rank fewer CPUs than its affinity,
/// and that leaves fewer for each rank, the granted ones are what its machine's ranks share.
CpuShare cpu_share(const std::vector<RankCpus>& ranks, std::size_t self);

/// The warning that the threads of ranks that share CPUs outnumber these; of several machines the first is named. Empty
/// where they do not, or where each rank has one thread.
std::string crowding(const std::vector<RankCpus>& ranks);

/// The policy of a rank that waits for its peers; `local_ranks`, including itself, share `cpus`. If each rank has a
/// CPU, it never yields: with other programs on that CPU a yield gives them whole time slices, and ranks that yield to
/// them hardly ever run at the same time. A rank that pauses is preempted when its share is used up, and one that
/// sleeps gets the CPU back soon. With fewer CPUs than ranks a rank yields, because the awaited peer may need this CPU.
/// `spin_us` is KOLO_SPIN_US: it replaces the active time unless negative.
WaitPolicy choose_wait_policy(int cpus, int local_ranks, std::int64_t spin_us = -1);

/// One wait:
///   Waiter waiter(policy);
///   while (!ready()) {
///     if (waiter.exhausted()) sleep until ready;
///     waiter.step();
///   }
/// Reads the clock only when the wait is long. For one thread.
class Waiter {
 public:
  explicit Waiter(const WaitPolicy& policy) noexcept : policy_(policy) { reset(); }

  /// Begins a new wait, for example because there was progress.
  void reset() noexcept {
    steps_ = 0;
    looked_ = false;
    exhausted_ = policy_.active <= std::chrono::nanoseconds(0);
  }

  /// Passes a little time: a pause or a yield.
  void step() noexcept {
    const bool pausing = policy_.pauses > 0;
    if (pausing) {
      cpu_relax();
    } else {
      std::this_thread::yield();
    }
    ++steps_;
    // A yield takes ten times as long as a pause, or a time slice, so the clock is read more often.
    if (steps_ % (pausing ? kPausesPerLook : kYieldsPerLook) == 0) look();
  }

  /// True once the active time has passed.
  [[nodiscard]] bool exhausted() const noexcept { return exhausted_; }

 private:
  static constexpr std::int64_t kPausesPerLook = 64;
  static constexpr std::int64_t kYieldsPerLook = 8;

  void look() noexcept;

  WaitPolicy policy_;
  std::int64_t steps_ = 0;
  Time begin_{};
  bool looked_ = false;
  bool exhausted_ = false;
};

/// How long a thread sleeps before it polls again for an event that has no descriptor. The times double with each
/// fruitless look: a short wait ends soon, and a long one costs few looks. For one thread.
class Backoff {
 public:
  Backoff(std::chrono::nanoseconds shortest, std::chrono::nanoseconds longest) noexcept
      : shortest_(shortest), longest_(longest), next_(shortest) {}

  /// Begins a new wait, because there was progress.
  void reset() noexcept { next_ = shortest_; }
  [[nodiscard]] std::chrono::nanoseconds next() noexcept { return std::exchange(next_, std::min(2 * next_, longest_)); }

 private:
  std::chrono::nanoseconds shortest_;
  std::chrono::nanoseconds longest_;
  std::chrono::nanoseconds next_;
};

}  // namespace kolo::base
