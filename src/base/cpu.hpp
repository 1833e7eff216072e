// SPDX-License-Identifier: Apache-2.0
//
// How many CPUs there are to use, and how a thread waits on them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/cpu_relax.hpp"

namespace kolo::base {

/// The CPUs that the calling thread may run on, ascending. Throws Error(transport).
std::vector<int> affinity();

/// How many CPUs this process can keep busy: its affinity, cut down to the quota of its control groups
/// (cgroup.hpp); at least 1.
int usable_cpus();

/// The size of the cache that a core has to itself beyond the first level, in bytes; where the system does not tell
/// (some virtual machines), 1 MiB. `root` is the file system's, for tests.
std::size_t private_cache_bytes(const std::filesystem::path& root = "/");

/// The size of the third-level cache, which cores share, in bytes; 0 where the system does not tell.
std::size_t shared_cache_bytes(const std::filesystem::path& root = "/");

/// Names the running system whose CPUs these are: the same in all containers of a machine, which may share CPUs though
/// they share nothing else. Empty where the system does not tell. `root` is the file system's, for tests.
std::string system_name(const std::filesystem::path& root = "/");

/// Names the machine for the purpose of sharing memory: equal for processes that can hand descriptors to each other by
/// an abstract socket. So it is made of the running system, the network namespace, which such sockets live in, and the
/// host's name, which tells copies of one virtual machine apart. `root` is the file system's, for tests.
std::string machine_name(const std::filesystem::path& root = "/");

/// How a thread waits for something that should come soon: it looks again and again, and sleeps after a while. Between
/// looks it pauses, or, where ranks share CPUs, yields its CPU.
struct WaitPolicy {
  int pauses = 0;                      ///< for how long a peer with a CPU of its own is looked for; 0: ranks share CPUs
  std::chrono::nanoseconds active{0};  ///< how long to look before sleeping; 0 sleeps at once
  int background_pauses = 0;           ///< how long a thread looks that is there beside one that computes

  friend bool operator==(const WaitPolicy&, const WaitPolicy&) = default;
};

/// What there is to know of a rank's CPUs.
struct RankCpus {
  std::vector<int> cpus;  ///< its affinity
  int machine = 0;        ///< as the launcher takes them: its virtual nodes are one
  std::string system;     ///< system_name(): its containers are one
  int usable;             ///< its usable_cpus()
};

/// CPUs, and the ranks that take turns on them.
struct CpuShare {
  int cpus = 0;
  int ranks = 0;
  int ranks_a_cpu = 0;  ///< ranks for each CPU, rounded down; the fewest that any rank of this one's machine has
};

/// The CPUs that rank `self` shares with others: the distinct ones of all ranks of its running system (mpirun binds
/// each rank to one: ask all of them). A launcher takes containers for hosts with CPUs of their own; so do the ranks in
/// them, unless they look at the system. Where control groups grant a rank fewer CPUs than its affinity has, so many
/// are what its machine's ranks share, if that is less for each.
CpuShare cpu_share(const std::vector<RankCpus>& ranks, std::size_t self);

/// The policy for a rank that waits for its peers, `local_ranks` of which, itself among them, share `cpus`. With a CPU
/// each it never yields: if other programs compute on that CPU, a yield gives them whole time slices, and ranks that
/// yield to them hardly ever run at the same time. A rank that pauses is taken off its CPU when its share is used up,
/// and one that sleeps comes back soon. With fewer CPUs than ranks a rank yields, for the awaited peer may need this
/// very CPU. `spin_us` is KOLO_SPIN_US: it replaces the active time unless negative.
WaitPolicy choose_wait_policy(int cpus, int local_ranks, std::int64_t spin_us = -1);

/// One wait:
///   Waiter waiter(policy);
///   while (!ready()) {
///     if (waiter.exhausted()) sleep until ready;
///     waiter.step();
///   }
/// Costs no clock reading until the wait lasts. One thread's.
class Waiter {
 public:
  explicit Waiter(const WaitPolicy& policy) noexcept : policy_(policy) { reset(); }

  /// Begins a new wait, say because there was progress.
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
    // A yield takes ten times as long as a pause, or a time slice: the clock is looked at more often.
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

/// How long a thread sleeps before it looks again for something that rings no bell. The times double from one look in
/// vain to the next: short waits are noticed soon, and long ones cost few looks. One thread's.
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
