// SPDX-License-Identifier: Apache-2.0
#include "api/assemble.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include <sys/random.h>

#include "base/cpu.hpp"
#include "base/fields.hpp"
#include "base/settings.hpp"
#include "base/system_error.hpp"
#include "hierarchy/cpu_backend.hpp"
#include "net/control_tree.hpp"
#include "shm/slot_ring.hpp"
#ifdef KOLO_HAS_CUDA
#include "cuda/cuda_backend.hpp"
#endif

namespace kolo::api {
namespace {

/// Slots are cut into cache lines.
constexpr std::size_t kSlotAlignment = 64;
constexpr std::size_t kSmallestSlot = 256;
constexpr std::int64_t kFewestSlots = 2;
#ifdef KOLO_HAS_CUDA
/// Of the process: contexts of several worlds may be on one GPU.
std::shared_ptr<cuda::Tenants> tenants() {
  static const auto all = std::make_shared<cuda::Tenants>();
  return all;
}
#endif

/// Data planes in the segment: the CPU's, and with CUDA the device's own.
#ifdef KOLO_HAS_CUDA
constexpr std::size_t kRings = 2;
#else
constexpr std::size_t kRings = 1;
#endif

std::string random_key() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) base::throw_errno("getrandom", errno);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string key;
  for (const unsigned char byte : bytes) {
    key += kDigits[byte >> 4];
    key += kDigits[byte & 15];
  }
  return key;
}

/// Loads the settings, and lets every rank fail if one does: nobody waits for a rank that has given up.
base::Settings agree_on_settings(core::Bootstrap& bootstrap, const Options& options, std::string& job_key,
                                 std::vector<std::string>& warnings) {
  base::Settings settings;
  Status failure;
  try {
    settings = base::load_settings(base::process_environment(), options.settings);
  } catch (const Error& error) {
    failure = error.status();
  }
  const bool root = bootstrap.rank() == 0;
  const std::string mine =
      base::join_fields({KOLO_VERSION_STRING, failure.message(), root ? random_key() : std::string(),
                         root && failure.ok() ? base::encode_shared(settings) : std::string()});
  const std::vector<std::string> all = bootstrap.allgather(mine);
  if (!failure.ok()) throw Error(failure);
  std::vector<std::string> of_root;
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    std::vector<std::string> fields = base::split_fields(all[static_cast<std::size_t>(rank)]);
    if (fields.size() != 4 || fields[0] != KOLO_VERSION_STRING) {
      throw Error(ErrorCode::transport, "rank " + std::to_string(rank) + " runs Kolo " +
                                            (fields.empty() ? "of another release" : fields[0]) + ", rank " +
                                            std::to_string(bootstrap.rank()) + " runs " KOLO_VERSION_STRING);
    }
    if (!fields[1].empty()) {
      throw Error(ErrorCode::invalid_setting, "rank " + std::to_string(rank) + ": " + fields[1]);
    }
    if (rank == 0) of_root = std::move(fields);
  }
  job_key = of_root[2];
  const std::map<std::string, base::SettingSource, std::less<>> chosen_here = settings.sources;
  for (const base::DifferingSetting& setting : base::adopt_shared(settings, of_root[3])) {
    if (chosen_here.count(setting.name) == 0) continue;  // nobody chose the default that rank 0 overrides
    warnings.push_back(setting.name + " is " + setting.here + " on this rank and " + setting.on_root +
                       " on rank 0, whose value is used");
  }
  return settings;
}

std::shared_ptr<base::Logger> make_logger(const base::Settings& settings, const Options& options, int rank,
                                          const std::vector<std::string>& warnings) {
  auto logger = std::make_shared<base::Logger>(settings.log_level, rank, options.log_sink);
  for (const std::string& warning : warnings) KOLO_LOG(*logger, warning) << warning;
  if (rank == 0) {
    for (const std::string& warning : base::unknown_variables(base::environment_names())) {
      KOLO_LOG(*logger, warning) << warning;
    }
    if (settings.print_settings) {
      for (const base::SettingReport& setting : base::report(settings)) {
        logger->write(LogLevel::info,
                      setting.name + "=" + setting.value + " (" + std::string(base::to_string(setting.source)) + ")");
      }
    }
  }
  return logger;
}

std::string encode_cpus(const std::vector<int>& cpus) {
  std::string text;
  for (const int cpu : cpus) text += std::to_string(cpu) + " ";
  return text;
}

std::vector<int> decode_cpus(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream numbers(text);
  for (int cpu = 0; numbers >> cpu;) cpus.push_back(cpu);
  return cpus;
}

hierarchy::Tuning tuning_of(const base::Settings& settings) {
  hierarchy::Tuning tuning;
  tuning.flat_bytes = static_cast<std::size_t>(settings.flat_bytes);
  tuning.least_chunk_bytes = static_cast<std::size_t>(settings.chunk_bytes);
  tuning.past_cache_bytes = static_cast<std::size_t>(settings.past_cache_bytes);
  tuning.step_bytes = static_cast<std::size_t>(settings.step_bytes);
  return tuning;
}

/// Everything on the way to an engine, in the order in which ranks must take the steps together.
class Assembly {
 public:
  Assembly(core::Bootstrap& bootstrap, const Options& options, std::shared_ptr<core::Regions> regions)
      : bootstrap_(bootstrap), regions_(std::move(regions)) {
    std::vector<std::string> warnings;
    parts_.settings = agree_on_settings(bootstrap, options, job_key_, warnings);
    parts_.logger = make_logger(parts_.settings, options, bootstrap.rank(), warnings);
    machines_ = bootstrap.machines();
    parts_.topology =
        core::make_topology(bootstrap.rank(), machines_, static_cast<int>(parts_.settings.ranks_per_node));
  }

  engine::EngineParts take() {
    connect();
    make_backend();
    return std::move(parts_);
  }

 private:
  void connect() {
    const core::Topology& topology = parts_.topology;
    const bool talks = topology.node_count() > 1 && topology.is_leader();
    std::optional<net::Listener> listener;
    if (talks) listener.emplace(parts_.settings.interface);
    const std::vector<std::string> said = bootstrap_.allgather(
        base::join_fields({talks ? listener->announcement() : std::string(), encode_cpus(base::affinity()),
                           std::to_string(base::private_cache_bytes()), base::system_name()}));
    std::vector<std::string> announcements;
    std::vector<base::RankCpus> cpus;
    std::size_t cache = std::numeric_limits<std::size_t>::max();
    for (const std::string& one : said) {
      std::vector<std::string> fields = base::split_fields(one);
      if (fields.size() != 4) throw Error(ErrorCode::transport, "a rank said something else at bootstrap");
      announcements.push_back(std::move(fields[0]));
      cpus.push_back({decode_cpus(fields[1]), machines_[cpus.size()], std::move(fields[3])});
      cache = std::min<std::size_t>(cache, std::stoull(fields[2]));
    }
    const bool one_machine =
        std::adjacent_find(machines_.begin(), machines_.end(), std::not_equal_to<>()) == machines_.end();
    slot_bytes_ = slot_bytes(cache, one_machine);
    slots_ = parts_.settings.slots == 0 ? hierarchy::choose_slots(one_machine)
                                        : std::max<std::int64_t>(parts_.settings.slots, kFewestSlots);
    const base::CpuShare share = base::cpu_share(cpus, static_cast<std::size_t>(topology.rank), base::usable_cpus());
    parts_.wait_policy = base::choose_wait_policy(share.cpus, share.ranks, parts_.settings.spin_us);
    parts_.link = bootstrap_.join_node(topology, engine_bytes() + kRings * slot_memory(), job_key_);
    if (talks) {
      const auto timeout =
          std::chrono::duration_cast<std::chrono::milliseconds>(base::from_seconds(parts_.settings.connect_timeout_s));
      parts_.control =
          net::TcpControlChannel::connect(std::move(*listener), topology, static_cast<int>(parts_.settings.tree_fanout),
                                          announcements, job_key_, timeout);
    }
  }

  void make_backend() {
    const core::Topology& topology = parts_.topology;
    auto intra =
        std::make_shared<shm::SlotRing>(parts_.link->memory() + engine_bytes(), slot_memory(), topology.local_rank,
                                        topology.local_size(), slot_bytes_, static_cast<std::uint64_t>(slots_));
    std::shared_ptr<core::InterNode> inter;
    if (topology.node_count() > 1) {
      inter = bootstrap_.inter_node(topology);
      parts_.must_drive = [inter] { return !inter->usable_here(false) && inter->usable_here(true); };
    }
    hierarchy::CpuBackendOptions options;
    options.regions = regions_;
    options.tuning = tuning_of(parts_.settings);
    if (engine::express_shape(parts_.settings, topology).ranks > 1 && parts_.settings.direct_bytes > 0)
      parts_.peers = parts_.link->peer_memory([this](const std::string& mine) { return bootstrap_.allgather(mine); });
    parts_.backend = std::make_unique<hierarchy::CpuBackend>(topology, std::move(intra), inter, options);
#ifdef KOLO_HAS_CUDA
    make_device_backend(std::move(inter));
#endif
  }

  /// The same on all ranks of the world, whose chunks are cut alike: by the smallest cache and the largest node.
  [[nodiscard]] std::size_t slot_bytes(std::size_t cache, bool one_machine) const {
    std::size_t bytes = static_cast<std::size_t>(parts_.settings.slot_bytes);
    if (bytes == 0) {
      std::size_t largest = 0;
      for (const std::vector<int>& node : parts_.topology.nodes) largest = std::max(largest, node.size());
      bytes = hierarchy::choose_slot_bytes(cache, static_cast<int>(largest), one_machine);
    }
    return std::max(kSmallestSlot, (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment);
  }

#ifdef KOLO_HAS_CUDA
  /// The device has a data plane of the CPU for itself: a ring of its own (pages that nobody touches cost nothing), and
  /// its own tags between nodes.
  void make_device_backend(std::shared_ptr<core::InterNode> inter) {
    const core::Topology& topology = parts_.topology;
    const base::Settings& settings = parts_.settings;
    auto intra = std::make_shared<shm::SlotRing>(parts_.link->memory() + engine_bytes() + slot_memory(), slot_memory(),
                                                 topology.local_rank, topology.local_size(), slot_bytes_,
                                                 static_cast<std::uint64_t>(slots_));
    hierarchy::CpuBackendOptions plane;
    plane.tuning = tuning_of(settings);
    plane.first_tag = static_cast<int>(slots_);
    cuda::CudaBackendOptions options;
    options.rank = topology.rank;
    options.size = topology.size;
    options.local_rank = topology.local_rank;
    options.staged = settings.gpu_backend == base::GpuBackend::staged;
    options.share_device = settings.share_device;
    options.slots = static_cast<std::size_t>(settings.gpu_slots);
    options.slot_bytes = cuda::slot_bytes_for(settings.fusion_threshold_bytes, topology.size, options.staged);
    options.direct_bytes = static_cast<std::size_t>(settings.gpu_direct_bytes);
    options.tenants = tenants();
    options.ring = [link = parts_.link, rank = topology.local_rank] { link->wake(rank); };
    parts_.device = std::make_unique<cuda::CudaBackend>(
        std::move(options),
        std::make_unique<hierarchy::CpuBackend>(topology, std::move(intra), std::move(inter), std::move(plane)));
  }
#endif

  [[nodiscard]] std::size_t engine_bytes() const { return engine::shared_bytes(parts_.settings, parts_.topology); }
  [[nodiscard]] std::size_t slot_memory() const {
    return shm::SlotRing::required_bytes(parts_.topology.local_size(), slot_bytes_, static_cast<std::uint64_t>(slots_));
  }

  core::Bootstrap& bootstrap_;
  const std::shared_ptr<core::Regions> regions_;
  engine::EngineParts parts_;
  std::string job_key_;
  std::vector<int> machines_;
  std::size_t slot_bytes_ = 0;
  std::int64_t slots_ = 0;
};

}  // namespace

std::shared_ptr<detail::ContextImpl> assemble(std::unique_ptr<core::Bootstrap> bootstrap, const Options& options) {
  auto regions = std::make_shared<core::Regions>();
  engine::EngineParts parts = Assembly(*bootstrap, options, regions).take();
  std::shared_ptr<core::NodeLink> link = parts.link;
  return std::make_shared<detail::ContextImpl>(std::move(bootstrap), engine::Engine::start(std::move(parts)),
                                               std::move(link), std::move(regions));
}

}  // namespace kolo::api
