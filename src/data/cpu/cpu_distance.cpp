// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/cpu_distance.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/machine.hpp"
#include "data/kernels/copy.hpp"

namespace kolo::data::cpu {
namespace {

using Counter = std::atomic<std::uint64_t>;
using kernels::PeerCopy;

constexpr std::size_t kCounterBytes = 64;
constexpr std::size_t kMostBytes = 64 << 10;
constexpr std::size_t kLeastBytes = 16 << 10;  // shorter writes say little
constexpr std::size_t kRounds = 8;             // of each kind, on two CPUs; the first does not count

/// Of the chunk: 0 counts what its rank has written, 1 what it has read.
Counter& counter(const transport::IntraNode& intra, int rank, std::uint64_t chunk) {
  return *reinterpret_cast<Counter*>(intra.slot(rank, chunk));
}

/// The CPU on which a rank has last written its slot. Its counter follows.
std::atomic<int>& cpu_of(const transport::IntraNode& intra, int rank) {
  return *reinterpret_cast<std::atomic<int>*>(intra.slot(rank, 0) + sizeof(Counter));
}

/// Gives the CPU away from time to time: the peer may need it.
bool wait_for(const Counter& counter, std::uint64_t round, base::Time until) {
  for (unsigned looks = 1; counter.load(std::memory_order_acquire) < round; ++looks) {
    base::cpu_relax();
    if (looks % 64 != 0) continue;
    if (base::now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

CpuDistance judge_cpu_distance(base::Duration through_cache, base::Duration past_cache) noexcept {
  // The reader pays for what goes past a cache that it shares. Measured ratios: 1 to 1.5 near, 5 and more far.
  constexpr double kFar = 2.3;
  const std::chrono::duration<double> past = past_cache;
  return through_cache > kFar * past ? CpuDistance::far : CpuDistance::near;
}

CpuDistance measure_cpu_distance(const transport::IntraNode& intra, base::Duration patience) {
  const base::Time until = base::now() + patience;
  const int own = intra.local_rank();
  const int peer = own ^ 1;
  if (peer >= intra.local_size() || intra.slot_bytes() < kCounterBytes + kLeastBytes) return CpuDistance::unknown;
  const std::size_t bytes = std::min(intra.slot_bytes() - kCounterBytes, kMostBytes);
  std::vector<std::byte> memory(bytes);
  std::array<std::array<base::Duration, kRounds>, 2> took{};  // by kind of stores
  // Both ranks read the same two CPUs, so they agree on which rounds count.
  for (std::uint64_t round = 0, counted = 0; counted < 2 * kRounds; ++round) {
    const auto stores = static_cast<PeerCopy::Stores>(counted % 2);
    const base::Time begun = base::now();
    PeerCopy{stores}(intra.slot(own, 0) + kCounterBytes, memory.data(), static_cast<std::int64_t>(bytes));
    took[counted % 2][counted / 2] = base::now() - begun;
    const int cpu = ::sched_getcpu();
    cpu_of(intra, own).store(cpu, std::memory_order_relaxed);
    counter(intra, own, 0).store(round + 1, std::memory_order_release);
    if (!wait_for(counter(intra, peer, 0), round + 1, until)) return CpuDistance::unknown;
    kernels::copy(memory.data(), intra.slot(peer, 0) + kCounterBytes, static_cast<std::int64_t>(bytes));
    if (cpu_of(intra, peer).load(std::memory_order_relaxed) != cpu) ++counted;
    counter(intra, own, 1).store(round + 1, std::memory_order_release);
    if (!wait_for(counter(intra, peer, 1), round + 1, until)) return CpuDistance::unknown;
  }
  for (auto& times : took) std::sort(times.begin() + 1, times.end());
  return judge_cpu_distance(took[0][kRounds / 2], took[1][kRounds / 2]);
}

}  // namespace kolo::data::cpu
