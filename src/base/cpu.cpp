// SPDX-License-Identifier: Apache-2.0
#include "base/cpu.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <unistd.h>

#include "base/system_error.hpp"
#include "base/text.hpp"

namespace kolo::base {
namespace {

/// The size of the first CPU's cache of this level; 0: the system does not tell.
std::size_t cache_bytes(const std::filesystem::path& root, int wanted) {
  const std::filesystem::path caches = root / "sys/devices/system/cpu/cpu0/cache";
  for (int index = 0; index < 8; ++index) {
    const std::filesystem::path cache = caches / ("index" + std::to_string(index));
    std::string level, size;
    if (!(std::ifstream(cache / "level") >> level) || parse_number<int>(level) != wanted) continue;
    if (!(std::ifstream(cache / "size") >> size) || size.back() != 'K') continue;
    size.pop_back();
    if (const std::optional<std::size_t> kibibytes = parse_number<std::size_t>(size)) return *kibibytes << 10;
  }
  return 0;
}

}  // namespace

std::vector<int> affinity() {
  // The kernel needs a set as large as its own, and returns EINVAL for a smaller one.
  for (std::size_t words = 1; words <= 1024; words *= 2) {
    std::vector<cpu_set_t> set(words);
    const std::size_t bytes = words * sizeof(cpu_set_t);
    CPU_ZERO_S(bytes, set.data());
    if (::sched_getaffinity(0, bytes, set.data()) != 0) {
      if (errno == EINVAL) continue;
      throw_errno("sched_getaffinity", errno);
    }
    std::vector<int> cpus;
    for (std::size_t cpu = 0; cpu < 8 * bytes; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.data())) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
  }
  throw_errno("sched_getaffinity", EINVAL);
}

int openmp_threads() {
  std::vector<std::string> runtimes;
  const auto note = [](dl_phdr_info* info, std::size_t /*size*/, void* found) {
    const std::string path(info->dlpi_name);
    const std::string name = path.substr(path.rfind('/') + 1);
    for (const char* const one : {"libgomp", "libomp", "libiomp5"}) {
      if (name.rfind(one, 0) == 0) static_cast<std::vector<std::string>*>(found)->push_back(path);
    }
    return 0;
  };
  ::dl_iterate_phdr(note, &runtimes);
  int threads = 1;
  for (const std::string& path : runtimes) {
    void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;  // it has been closed meanwhile
    const auto ask = reinterpret_cast<int (*)()>(::dlsym(library, "omp_get_max_threads"));
    if (ask != nullptr) threads = std::max(threads, ask());
    ::dlclose(library);
  }
  return threads;
}

int usable_cpus() {
  const int allowed = static_cast<int>(affinity().size());
  const std::optional<double> quota = process_cpu_quota();
  // A fraction of a CPU does not keep another thread busy.
  const int granted = quota && *quota < allowed ? static_cast<int>(*quota) : allowed;
  return std::max(granted, 1);
}

std::size_t private_cache_bytes(const std::filesystem::path& root) {
  constexpr std::size_t kUsual = std::size_t{1} << 20;
  const std::size_t found = cache_bytes(root, 2);
  return found > 0 ? found : kUsual;
}

std::size_t shared_cache_bytes(const std::filesystem::path& root) { return cache_bytes(root, 3); }

std::string system_name(const std::filesystem::path& root) {
  std::string name;
  std::ifstream(root / "proc/sys/kernel/random/boot_id") >> name;
  return name;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) throw_errno("gethostname", errno);
  return name.data();
}

std::string machine_name(const std::filesystem::path& root) {
  std::error_code unreadable;  // then the other parts of the name must distinguish machines
  const std::filesystem::path network = std::filesystem::read_symlink(root / "proc/self/ns/net", unreadable);
  return system_name(root) + " " + network.string() + " " + host_name();
}

CpuShare cpu_share(const std::vector<RankCpus>& ranks, std::size_t self) {
  std::set<std::string> systems;  // the systems of this rank's machine, so that all its ranks count the same
  for (const RankCpus& rank : ranks) {
    if (rank.machine == ranks[self].machine && !rank.system.empty()) systems.insert(rank.system);
  }
  std::set<int> cpus;
  CpuShare system, machine;
  for (const RankCpus& rank : ranks) {
    const bool one_machine = rank.machine == ranks[self].machine;
    if (!one_machine && systems.count(rank.system) == 0) continue;
    for (CpuShare* const share : {&system, &machine}) {
      if (share == &machine && !one_machine) continue;
      ++share->ranks;
      share->threads += rank.threads;
    }
    cpus.insert(rank.cpus.begin(), rank.cpus.end());
  }
  system.cpus = static_cast<int>(cpus.size());
  const auto share_of = [&](const RankCpus& rank) {
    if (rank.usable >= static_cast<int>(rank.cpus.size())) return system;
    const CpuShare granted{rank.usable, machine.ranks, machine.threads};
    return std::int64_t{granted.cpus} * system.ranks < std::int64_t{system.cpus} * granted.ranks ? granted : system;
  };
  CpuShare share = share_of(ranks[self]);
  share.ranks_a_cpu = std::numeric_limits<int>::max();
  for (const RankCpus& rank : ranks) {
    if (rank.machine != ranks[self].machine) continue;
    const CpuShare one = share_of(rank);
    share.ranks_a_cpu = std::min(share.ranks_a_cpu, one.ranks / std::max(one.cpus, 1));
  }
  return share;
}

std::string crowding(const std::vector<RankCpus>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const CpuShare share = cpu_share(ranks, rank);
    if (share.threads <= share.cpus || share.threads <= share.ranks) continue;
    const std::string fitting = std::to_string(std::max(1, share.cpus / share.ranks));
    return "the ranks of rank " + std::to_string(rank) + "'s machine (" + std::to_string(share.ranks) + ") have " +
           std::to_string(share.threads) + " threads of OpenMP together for " + std::to_string(share.cpus) +
           " CPUs, and these threads wait for each other: a step can take many times as long. Set OMP_NUM_THREADS=" +
           fitting + " (kolo-run does)";
  }
  return {};
}

WaitPolicy choose_wait_policy(int cpus, int local_ranks, std::int64_t spin_us) {
  using std::chrono::microseconds;
  // A pause takes 10 to 50 ns, so these are 7 to 35 us: a peer with a CPU of its own answers within that time. The
  // active times cover some round trips of sleeping and waking (about 50 us). A thread that yields looks longer,
  // because that takes no time from others.
  constexpr WaitPolicy kOwnCpu{700, microseconds(200)};
  constexpr int kBackgroundPauses = 300;
  constexpr WaitPolicy kSharedCpu{0, microseconds(1000)};
  WaitPolicy policy = cpus >= local_ranks ? kOwnCpu : kSharedCpu;
  if (cpus >= 2 * local_ranks) policy.background_pauses = kBackgroundPauses;
  if (spin_us >= 0) policy.active = microseconds(spin_us);
  return policy;
}

void Waiter::look() noexcept {
  const Time time = now();
  if (!looked_) {
    looked_ = true;
    begin_ = time;
  }
  exhausted_ = exhausted_ || time - begin_ >= policy_.active;
}

namespace {

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || (b && *b < *a)) return b;
  return a;
}

/// Of "max" and -1, which are none, and of what does not parse: nothing.
std::optional<double> quota_of(const std::string& quota_us, const std::string& period_us) {
  const auto quota = parse_number<std::int64_t>(quota_us);
  const auto period = parse_number<std::int64_t>(period_us);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// A file may not be there, may go while it is read, and may be a folder.
std::optional<double> quota_in(const std::filesystem::path& folder) {
  std::optional<double> found;
  std::string quota, period;
  if (std::ifstream(folder / "cpu.max") >> quota >> period) found = quota_of(quota, period);
  if (std::ifstream(folder / "cpu.cfs_quota_us") >> quota && std::ifstream(folder / "cpu.cfs_period_us") >> period) {
    found = smaller(found, quota_of(quota, period));
  }
  return found;
}

/// From mount/path up to mount itself.
std::optional<double> smallest_quota(const std::filesystem::path& mount, const std::filesystem::path& path) {
  std::optional<double> quota = quota_in(mount);
  std::filesystem::path folder = mount;
  for (const auto& part : path.relative_path()) {
    if (part == "..") break;  // outside the part that this process sees
    folder /= part;
    quota = smaller(quota, quota_in(folder));
  }
  return quota;
}

/// One line: "hierarchy:controllers:path"; version 2 has hierarchy 0 and no controllers.
std::optional<double> quota_of_line(const std::string& line, const std::filesystem::path& root) {
  const std::size_t first = line.find(':');
  if (first == std::string::npos) return std::nullopt;
  const std::size_t second = line.find(':', first + 1);
  if (second == std::string::npos) return std::nullopt;
  const std::string controllers = line.substr(first + 1, second - first - 1);
  const std::filesystem::path path(line.substr(second + 1));
  if (controllers.empty()) return smaller(smallest_quota(root, path), smallest_quota(root / "unified", path));
  const std::vector<std::string> all = words(controllers, ',');
  if (std::find(all.begin(), all.end(), "cpu") == all.end()) return std::nullopt;
  return smaller(smallest_quota(root / controllers, path), smallest_quota(root / "cpu", path));
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::string& memberships, const std::filesystem::path& root) {
  std::optional<double> quota;
  for (const std::string& line : words(memberships, '\n')) quota = smaller(quota, quota_of_line(line, root));
  return quota;
}

std::optional<double> process_cpu_quota() {
  std::string memberships;
  std::ifstream file("/proc/self/cgroup");
  std::getline(file, memberships, '\0');
  return cgroup_cpu_quota(memberships, "/sys/fs/cgroup");
}

}  // namespace kolo::base
