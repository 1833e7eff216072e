// SPDX-License-Identifier: Apache-2.0
#include "engine/spread.hpp"

#include <algorithm>
#include <cstddef>

#include <sched.h>

#include <kolo/error.hpp>

#include "base/cpu.hpp"

namespace kolo::engine {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1};
/// What others say of themselves may be as old as their last call.
constexpr std::chrono::milliseconds kAfterMove{10};

/// False where the system does not let us.
bool run_on(const std::vector<int>& cpus) {
  const int most = *std::max_element(cpus.begin(), cpus.end());
  std::vector<cpu_set_t> set(static_cast<std::size_t>(most) / (8 * sizeof(cpu_set_t)) + 1);
  const std::size_t bytes = set.size() * sizeof(cpu_set_t);
  CPU_ZERO_S(bytes, set.data());
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.data());
  return ::sched_setaffinity(0, bytes, set.data()) == 0;
}

}  // namespace

std::optional<int> better_cpu(const std::vector<int>& cpus, int self, const std::vector<int>& allowed) {
  const auto ranks_on = [&](int cpu) { return std::count(cpus.begin(), cpus.end(), cpu); };
  const int own = cpus[static_cast<std::size_t>(self)];
  if (own < 0 || allowed.empty() || std::find(cpus.begin() + self + 1, cpus.end(), own) != cpus.end()) return {};
  const int emptiest =
      *std::min_element(allowed.begin(), allowed.end(), [&](int a, int b) { return ranks_on(a) < ranks_on(b); });
  if (ranks_on(own) < ranks_on(emptiest) + 2) return {};
  return emptiest;
}

void Spread::look(control::Express& express) noexcept {
  if (off_) return;
  const base::Time now = base::now();
  if (now < next_) return;
  next_ = now + kBetweenLooks;
  try {
    look_around(express, now);
  } catch (const std::exception&) {
    off_ = true;  // it is an optimisation
  }
}

void Spread::look_around(control::Express& express, base::Time now) {
  const int own = ::sched_getcpu();
  off_ = own < 0;
  if (off_) return;
  express.say_cpu(own);
  cpus_.resize(static_cast<std::size_t>(express.ranks()));
  for (int rank = 0; rank < express.ranks(); ++rank) cpus_[static_cast<std::size_t>(rank)] = express.cpu_of(rank);
  const int self = express.local_rank();
  // The affinity costs a system call: not before the others leave something to be moved for.
  if (std::count(cpus_.begin(), cpus_.end(), own) < 2) return;
  if (std::find(cpus_.begin() + self + 1, cpus_.end(), own) != cpus_.end()) return;
  const std::vector<int> allowed = base::affinity();
  const std::optional<int> better = better_cpu(cpus_, self, allowed);
  if (!better) return;
  off_ = !run_on({*better});
  // Should this fail, the set of CPUs that may be used has changed meanwhile, and the system has done so already.
  run_on(allowed);
  express.say_cpu(::sched_getcpu());
  next_ = now + kAfterMove;
}

}  // namespace kolo::engine
