// SPDX-License-Identifier: Apache-2.0
#include "api/assemble.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/node_carrier.hpp"
#include "base/cpu.hpp"
#include "base/fields.hpp"
#include "base/machine.hpp"
#include "base/mutex.hpp"
#include "base/proof.hpp"
#include "base/quote.hpp"
#include "base/settings.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"
#include "control/tcp/control_tree.hpp"
#include "control/tcp/interfaces.hpp"
#include "data/cpu/cpu_backend.hpp"
#include "data/cpu/cpu_distance.hpp"
#include "data/cpu/routes.hpp"
#include "data/cpu/small.hpp"
#include "recorder/directory.hpp"
#include "recorder/process.hpp"
#include "transport/shm/slot_ring.hpp"
#ifdef KOLO_HAS_CUDA
#include "data/cuda/cuda_backend.hpp"
#include "data/cuda/visibility.hpp"
#endif

namespace kolo::api {
namespace {

/// A slot's size is a multiple of a cache line.
constexpr std::size_t kSlotAlignment = 64;
constexpr std::size_t kSmallestSlot = 256;
constexpr std::int64_t kFewestSlots = 2;
/// How long the measurement waits for another rank, at most. If it takes longer, the ranks share a CPU, or the CPU is
/// busy.
constexpr std::chrono::milliseconds kMostOfDistances{20};
#ifdef KOLO_HAS_CUDA
/// One for the process: contexts of several worlds may use the same GPU.
std::shared_ptr<cuda::Tenants> tenants() {
  static const auto all = std::make_shared<cuda::Tenants>();
  return all;
}

/// Keeps what a device may still use, until the process ends.
void keep(std::shared_ptr<void> left) {
  static auto* const mutex = new base::Mutex;
  static auto* const all = new std::vector<std::shared_ptr<void>>;
  const base::MutexLock lock(*mutex);
  all->push_back(std::move(left));
}
#endif

/// The data planes in the segment: the CPU's, and with CUDA one for tensors of the device.
#ifdef KOLO_HAS_CUDA
constexpr std::size_t kRings = 2;
#else
constexpr std::size_t kRings = 1;
#endif

/// The result of the first step: the settings and machines of all ranks.
struct Agreement {
  base::Settings settings;
  std::string job_key;
  std::string job;            // its name for a person; another rank's text
  std::vector<int> machines;  // by rank
  std::vector<std::string> warnings;
};

/// The first of this machine's addresses that KOLO_INTERFACE allows.
std::string own_address(const std::string& interface) {
  std::vector<tcp::LocalAddress> addresses = tcp::local_addresses();
  if (!interface.empty()) addresses = tcp::select_addresses(addresses, interface);
  return addresses.empty() ? "127.0.0.1" : addresses.front().address.to_string();
}

/// Loads the settings; rank 0's shared settings hold for all ranks.
Agreement agree(bootstrap::Bootstrap& bootstrap, const Options& options) {
  Agreement agreed;
  const std::vector<std::string> all = bootstrap::take_step(bootstrap, "settings", connect_patience(options), [&] {
    show_devices(options);
    agreed.settings = base::load_settings(base::process_environment(), options.settings);
    // Checked in this step, so that all ranks fail; also on one node, which needs no network.
    const std::string& wanted = agreed.settings.interface;
    if (!wanted.empty()) tcp::select_addresses(tcp::local_addresses(), wanted);
    const data::cpu::RouteTable check(agreed.settings.routes);
    const bool root = bootstrap.rank() == 0;
    return base::join_fields(
        {KOLO_VERSION_STRING, base::machine_name(), root ? base::hex_of(base::random_word()) : std::string(),
         root ? base::encode_shared(agreed.settings) : std::string(), root ? recorder::new_job() : std::string()});
  });
  std::vector<std::string> machines;
  std::vector<std::string> of_root;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::vector<std::string> fields = base::split_fields(all[rank]);
    if (fields.size() != 5 || fields[0] != KOLO_VERSION_STRING) {
      throw Error(ErrorCode::transport, "rank " + std::to_string(rank) + " runs Kolo " +
                                            (fields.empty() ? "of another release" : fields[0]) + ", rank " +
                                            std::to_string(bootstrap.rank()) +
                                            " runs " KOLO_VERSION_STRING "; all ranks must run the same release");
    }
    machines.push_back(fields[1]);
    if (rank == 0) of_root = std::move(fields);
  }
  agreed.machines = core::number_machines(machines);
  agreed.job_key = bootstrap.key_from(of_root[2]);
  agreed.job = of_root[4];
  const std::map<std::string, base::SettingSource, std::less<>> chosen_here = agreed.settings.sources;
  for (const base::DifferingSetting& setting : base::adopt_shared(agreed.settings, of_root[3])) {
    if (chosen_here.count(setting.name) == 0) continue;  // no warning: this rank had the default
    agreed.warnings.push_back(setting.name + " is " + setting.here + " on this rank and " + setting.on_root +
                              " on rank 0, whose value is used");
  }
  return agreed;
}

std::shared_ptr<base::Logger> make_logger(const base::Settings& settings, const Options& options, int rank,
                                          const std::vector<std::string>& warnings) {
  auto logger = std::make_shared<base::Logger>(settings.log_level, rank, options.log_sink);
  for (const std::string& warning : warnings) KOLO_LOG(*logger, warning) << warning;
  if (rank == 0) {
    for (const std::string& warning : base::unknown_variables(base::environment_names())) {
      KOLO_LOG(*logger, warning) << warning;
    }
    const std::string ignored = base::is_privileged() ? base::ignored_variables(base::environment_names()) : "";
    if (!ignored.empty()) KOLO_LOG(*logger, warning) << ignored;
    if (settings.print_settings) {
      for (const Setting& setting : base::report(settings)) {
        logger->write(LogLevel::info, setting.name + "=" + setting.value + " (" + setting.source + ")");
      }
    }
  }
  return logger;
}

/// The recorder of this rank; one that records nothing if it is off, or has no place. The first rank of a node says so,
/// and removes old jobs.
std::shared_ptr<recorder::Recorder> make_recorder(const engine::EngineParts& parts, const std::string& job) {
  const std::string& setting = parts.settings.recorder;
  const core::Topology& topology = parts.topology;
  if (recorder::is_off(setting)) return std::make_shared<recorder::Recorder>();
  const std::string directory = recorder::directory_of(setting, base::process_environment());
  recorder::Identity identity{job, topology.rank, topology.size, topology.node, {}, base::host_name()};
  identity.nodes.resize(static_cast<std::size_t>(topology.size));
  for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
    for (const int rank : topology.nodes[node]) identity.nodes[static_cast<std::size_t>(rank)] = static_cast<int>(node);
  }
  try {
    if (!setting.empty()) recorder::make_parents(directory);
    const std::string file = recorder::file_for(directory, job, topology.rank);  // refuses others' directories
    if (topology.is_leader()) recorder::remove_old(directory);
    return std::make_shared<recorder::Recorder>(file, identity);
  } catch (const Error& error) {
    if (topology.is_leader()) {
      KOLO_LOG(*parts.logger, warning) << "nothing is recorded for kolo-why (KOLO_RECORDER): "
                                       << error.status().message();
    }
    return std::make_shared<recorder::Recorder>();
  }
}

std::string encode_cpus(const std::vector<int>& cpus) {
  std::string text;
  for (const int cpu : cpus) text += std::to_string(cpu) + " ";
  return text;
}

template <class Number>
Number decode_number(const std::string& text) {
  const std::optional<Number> number = base::parse_number<Number>(text);
  if (!number) base::throw_unreadable();
  return *number;
}

std::vector<int> decode_cpus(const std::string& text) {
  std::vector<int> cpus;
  for (const std::string& cpu : base::words(text)) cpus.push_back(decode_number<int>(cpu));
  return cpus;
}

data::cpu::Tuning tuning_of(const base::Settings& settings, int local_ranks, kernels::PeerCopy to_peers) {
  data::cpu::Tuning tuning;
  tuning.to_peers = to_peers;
  tuning.least_chunk_bytes = static_cast<std::size_t>(settings.chunk_bytes);
  tuning.past_cache_bytes = static_cast<std::size_t>(settings.past_cache_bytes);
  tuning.copied_past_cache_bytes =
      data::cpu::copied_past_cache_bytes(tuning.past_cache_bytes, base::shared_cache_bytes(), local_ranks);
  tuning.step_bytes = static_cast<std::size_t>(settings.step_bytes);
  return tuning;
}

/// Logs what was found and chosen, on rank 0.
void tell(const engine::Engine& engine, const bootstrap::Bootstrap& bootstrap, const std::string& carrier,
          bool reads_peers) {
  const core::Topology& topology = engine.topology();
  base::Logger& logger = engine.logger();
  if (topology.rank != 0 || !logger.enabled(LogLevel::info)) return;
  std::string nodes;
  for (const std::vector<int>& node : topology.nodes)
    nodes += (nodes.empty() ? "" : ", ") + std::to_string(node.size());
  KOLO_LOG(logger, info) << "Kolo " KOLO_VERSION_STRING << ", " << topology.size
                         << (topology.size == 1 ? " rank" : " ranks") << " on " << topology.node_count()
                         << (topology.node_count() == 1 ? " node" : " nodes") << " (" << nodes
                         << "); ranks meet by: " << bootstrap.describe();
  if (!carrier.empty()) KOLO_LOG(logger, info) << "between nodes: " << carrier;
  KOLO_LOG(logger, info) << "CPU tensors: " << engine.world()->plane;
  if (engine.device() != nullptr) KOLO_LOG(logger, info) << "GPU tensors: " << engine.device()->describe();
  if (topology.size > 1 && topology.node_count() == 1) {
    KOLO_LOG(logger, info) << "peers' memory: " << (reads_peers ? "may be read" : "not read");
  }
}

/// Makes an engine in steps that all ranks take together (bootstrap/bootstrap.hpp). Code that may fail on one rank
/// alone runs inside a step.
class Assembly {
 public:
  Assembly(bootstrap::Bootstrap& bootstrap, const Options& options, std::shared_ptr<transport::Regions> regions)
      : bootstrap_(bootstrap), regions_(std::move(regions)) {
    Agreement agreed = agree(bootstrap, options);
    parts_.settings = std::move(agreed.settings);
    routes_.emplace(parts_.settings.routes);
    parts_.logger = make_logger(parts_.settings, options, bootstrap.rank(), agreed.warnings);
    parts_.topology =
        core::make_topology(bootstrap.rank(), agreed.machines, static_cast<int>(parts_.settings.ranks_per_node));
    parts_.recorder = recorder_ = make_recorder(parts_, agreed.job);
    job_key_ = std::move(agreed.job_key);
    machines_ = std::move(agreed.machines);
    patience_ = base::from_seconds(parts_.settings.connect_timeout_s);
  }

  /// Used once. The recorder is told of an error.
  std::shared_ptr<detail::ContextImpl> start(std::unique_ptr<bootstrap::Bootstrap>&& bootstrap) {
    try {
      return start_in_steps(std::move(bootstrap));
    } catch (const Error& error) {
      recorder_->at(base::now());
      recorder_->record(recorder::Kind::fault, 0, 0, 0, 0, static_cast<std::uint8_t>(error.code()));
      recorder_->sentence(error.status().message());
      recorder_->set_state(recorder::State::faulted);
      throw;
    }
  }

 private:
  std::shared_ptr<detail::ContextImpl> start_in_steps(std::unique_ptr<bootstrap::Bootstrap>&& bootstrap) {
    begin_step("addresses");
    introduce();
    begin_step("shared memory");
    parts_.layout = engine::node_layout(parts_.settings, parts_.topology,
                                        shm::SlotRing::column_bytes(slot_bytes_, static_cast<std::uint64_t>(slots_)),
                                        kRings, routes_->longest_small(parts_.topology.local_size()));
    parts_.link = bootstrap_.join_node(parts_.topology, parts_.layout.bytes(), job_key_, patience_);
    begin_step("distances of CPUs");
    find_distances();
    begin_step("connections");
    connect();
    begin_step("engine");
    const std::shared_ptr<transport::NodeLink> link = parts_.link;
    const std::shared_ptr<base::Logger> logger = parts_.logger;
    // Made before the engine, which may close these descriptors.
    auto connections = std::make_unique<const ClosedInChildren>(list_connections());
    std::shared_ptr<engine::Engine> engine;
    bootstrap::take_step(bootstrap_, "engine", patience_, [&]() -> std::string {
      parts_.make_small_calls = [table = *routes_, to_peers = parts_.to_peers](core::ShortcutMemory memory) {
        const data::cpu::Routes routes(table, memory.ranks());
        return std::make_unique<data::cpu::CpuSmallCalls>(std::move(memory), routes, to_peers);
      };
      parts_.make_plane = [make = plane_maker(0)](const engine::PlaneSite& site) { return make(site)(); };
#ifdef KOLO_HAS_CUDA
      make_device_backend();
#endif
      engine = engine::Engine::make(std::move(parts_));
      tell(*engine, bootstrap_, carrier_, reads_peers_);
      return {};
    });
    recorder_->at(base::now());
    recorder_->record(recorder::Kind::started, 0, 0);
    recorder_->set_state(recorder::State::running);
    end_step();
    KOLO_LOG(*logger, debug) << "milliseconds of the start, behind the meeting:" << times_;
    engine->begin();
    bootstrap->close();
    auto impl = std::make_shared<detail::ContextImpl>(std::move(bootstrap), std::move(engine), link, regions_,
                                                      std::move(connections), carrier_, describe_routes());
    impl->know_machines(std::move(machines_), std::move(addresses_));
    return impl;
  }

  void begin_step(std::string_view step) {
    end_step();
    step_ = step;
    recorder_->at(base::now());
    recorder_->record(recorder::Kind::start_step, 0, recorder_->text(step));
  }
  void end_step() {
    const base::Time now = base::now();
    const auto tenths = std::chrono::duration_cast<std::chrono::microseconds>(now - step_began_).count() / 100;
    times_ += (times_.empty() ? " " : ", ") + std::string(step_) + " " + std::to_string(tenths / 10) + "." +
              std::to_string(tenths % 10);
    step_began_ = now;
  }
  /// A line a collective.
  [[nodiscard]] std::string describe_routes() const {
    std::string text;
    for (const std::string& one : routes_->describe(bootstrap_.size(), reads_peers_)) text += "  " + one + "\n";
    return text;
  }
  [[nodiscard]] bool talks() const { return parts_.topology.node_count() > 1 && parts_.topology.is_leader(); }

  [[nodiscard]] std::vector<int> list_connections() const {
    std::vector<int> all = parts_.control ? parts_.control->descriptors() : std::vector<int>{};
    for (const transport::NodeLink::Liveness& peer : parts_.link->liveness()) all.push_back(peer.fd);
    return all;
  }

  /// Exchanges what ranks must know before memory is shared: addresses, CPUs, caches.
  void introduce() {
    const std::vector<std::string> said = bootstrap::take_step(bootstrap_, "addresses", patience_, [this] {
      if (talks()) listener_.emplace(parts_.settings.interface);
      return base::join_fields({listener_ ? listener_->addresses() : std::string(), encode_cpus(base::affinity()),
                                std::to_string(base::private_cache_bytes()), base::system_name(),
                                base::join_process_barriers() ? "1" : "0", std::to_string(base::usable_cpus()),
                                own_address(parts_.settings.interface), std::to_string(base::openmp_threads())});
    });
    std::vector<base::RankCpus> cpus;
    std::size_t cache = std::numeric_limits<std::size_t>::max();
    parts_.has_barriers = true;
    for (const std::string& one : said) {
      std::vector<std::string> fields = base::split_fields(one);
      if (fields.size() != 8) base::throw_unreadable();
      leader_addresses_.push_back(std::move(fields[0]));
      cpus.push_back({decode_cpus(fields[1]), machines_[cpus.size()], std::move(fields[3]),
                      decode_number<int>(fields[5]), decode_number<int>(fields[7])});
      cache = std::min<std::size_t>(cache, decode_number<std::size_t>(fields[2]));
      parts_.has_barriers = parts_.has_barriers && fields[4] == "1";
      addresses_.push_back(std::move(fields[6]));
    }
    slot_bytes_ = slot_bytes(cache, is_one_machine());
    slots_ = parts_.settings.slots == 0 ? data::cpu::choose_slots(is_one_machine())
                                        : std::max<std::int64_t>(parts_.settings.slots, kFewestSlots);
    const auto rank = static_cast<std::size_t>(parts_.topology.rank);
    const std::string crowded = rank == 0 ? base::crowding(cpus) : std::string();
    if (!crowded.empty()) KOLO_LOG(*parts_.logger, warning) << crowded;
    const base::CpuShare share = base::cpu_share(cpus, rank);
    ranks_a_cpu_ = share.ranks_a_cpu;
    parts_.wait_policy = base::choose_wait_policy(share.cpus, share.ranks, parts_.settings.spin_us);
  }

  /// Decides whether data for peers of this node is written past the cache, or stays in a cache that they share: by a
  /// majority of the ranks that could measure it. A rank that shares its CPU with others cannot.
  void find_distances() {
    using data::cpu::CpuDistance;
    const std::vector<std::vector<int>>& nodes = parts_.topology.nodes;
    if (std::none_of(nodes.begin(), nodes.end(), [](const std::vector<int>& node) { return node.size() > 1; })) return;
    const std::vector<std::string> said = bootstrap::take_step(bootstrap_, "distances of CPUs", patience_, [this] {
      if (ranks_a_cpu_ > 1) return std::string();
      const engine::NodeLayout& layout = parts_.layout;
      const shm::SlotRing slots(layout.ring(world_columns(), 0), parts_.topology.local_rank, slot_bytes_,
                                static_cast<std::uint64_t>(slots_), shm::SlotRing::Pages::when_used);
      const CpuDistance found = data::cpu::measure_cpu_distance(slots, kMostOfDistances);
      return std::string(found == CpuDistance::far ? "far" : found == CpuDistance::near ? "near" : "");
    });
    int votes = 0;  // for "far", minus those for "near"
    for (const int rank : nodes[static_cast<std::size_t>(parts_.topology.node)]) {
      const std::string& one = said[static_cast<std::size_t>(rank)];
      votes += one == "far" ? 1 : one == "near" ? -1 : 0;
    }
    if (votes > 0) parts_.to_peers = kernels::PeerCopy(kernels::PeerCopy::Stores::past_cache);
    if (votes < 0) routes_.emplace(parts_.settings.routes, base::shared_cache_bytes());
  }

  /// The world's columns in the memory of the node.
  [[nodiscard]] base::Columns world_columns() const {
    const engine::NodeLayout& layout = parts_.layout;
    return base::Columns::in_a_row(layout.column(parts_.link->memory(), 0, 0), layout.column_bytes(),
                                   parts_.topology.local_size());
  }

  /// Makes the control tree, the transport between nodes, and the access to peers' memory.
  void connect() {
    if (parts_.topology.node_count() > 1) {
      const std::vector<std::string> said = bootstrap::take_step(
          bootstrap_, "control connections", bootstrap::after_waiting(patience_), [this]() -> std::string {
            if (!talks()) return {};
            auto control = tcp::TcpControlChannel::connect(
                std::move(*listener_), parts_.topology, static_cast<int>(parts_.settings.tree_fanout),
                leader_addresses_, job_key_, std::chrono::duration_cast<std::chrono::milliseconds>(patience_));
            std::vector<std::string> interfaces = control->interfaces();
            interfaces.insert(interfaces.begin(), over_loopback(*control));
            parts_.control = std::move(control);
            return base::join_fields(interfaces);
          });
      warn_of_loopback(said);
      Carrier carrier = choose_carrier(bootstrap_, parts_.settings, parts_.topology, !is_one_machine(),
                                       interfaces_of_machine(said), patience_);
      inter_ = parts_.inter = std::move(carrier.transport);
      carrier_ = std::move(carrier.description);
    }
    const auto has_peers = [](const std::vector<int>& node) { return node.size() > 1; };
    const std::vector<std::vector<int>>& nodes = parts_.topology.nodes;
    const std::optional<std::uint64_t> read_above = routes_->messages_read_above(parts_.topology.size);
    if (read_above && std::any_of(nodes.begin(), nodes.end(), has_peers)) {
      parts_.read_above = *read_above;
      parts_.peers = parts_.link->peer_memory(
          [this](const std::string& mine) { return bootstrap_.exchange("peer memory", mine, patience_); });
    }
    reads_peers_ = parts_.peers != nullptr;
  }

  /// The interfaces by which control connections of this machine reach other machines.
  [[nodiscard]] std::vector<std::string> interfaces_of_machine(const std::vector<std::string>& said) const {
    std::vector<std::string> all;
    for (std::size_t rank = 0; rank < said.size(); ++rank) {
      if (machines_[rank] != machines_[static_cast<std::size_t>(parts_.topology.rank)]) continue;
      std::vector<std::string> fields = base::split_fields(said[rank]);
      for (std::size_t i = 1; i < fields.size(); ++i)
        if (std::find(all.begin(), all.end(), fields[i]) == all.end()) all.push_back(std::move(fields[i]));
    }
    return all;
  }

  /// A rank of another machine that this leader has met over the loopback interface; empty: there is none.
  [[nodiscard]] std::string over_loopback(const tcp::TcpControlChannel& control) const {
    for (const int node : control.loopback_nodes()) {
      const int rank = parts_.topology.leader_of(node);
      if (machines_[static_cast<std::size_t>(rank)] != machines_[static_cast<std::size_t>(parts_.topology.rank)])
        return std::to_string(rank);
    }
    return {};
  }

  /// Once, on rank 0. `said`: by rank what `over_loopback` has found, and interfaces.
  void warn_of_loopback(const std::vector<std::string>& said) const {
    if (parts_.topology.rank != 0) return;
    for (std::size_t rank = 0; rank < said.size(); ++rank) {
      const std::vector<std::string> fields = base::split_fields(said[rank]);
      if (fields.empty() || fields.front().empty()) continue;
      KOLO_LOG(*parts_.logger, warning)
          << "ranks " << rank << " and " << decode_number<int>(fields.front())
          << " count as of different hosts, but have met over a loopback interface: they are on one, and share no "
             "memory, because its containers have host names of their own. Give them one host name (docker run "
             "--uts=host), or networks of their own";
      return;
    }
  }

  /// A function that makes a process set's data plane: the first (0) for tensors of the CPU, the second (1) for tensors
  /// of a device. The engine keeps it.
  [[nodiscard]] engine::MakeLatePlane plane_maker(std::size_t which) const {
    return [which, regions = regions_, inter = inter_, table = *routes_,
            tuning = tuning_of(parts_.settings, parts_.topology.local_size(), parts_.to_peers),
            slot_bytes = slot_bytes_, slots = slots_](const engine::PlaneSite& site) {
      const bool is_world = site.number == 0;
      auto ring = std::make_shared<shm::SlotRing>(
          site.columns, site.topology.local_rank, slot_bytes, static_cast<std::uint64_t>(slots),
          is_world && which == 0 ? shm::SlotRing::Pages::at_once : shm::SlotRing::Pages::when_used);
      data::cpu::CpuBackendOptions options;
      if (which == 0) options.regions = regions;
      options.tuning = tuning;
      options.routes = data::cpu::Routes(table, site.topology.size);
      options.first_tag = static_cast<int>(kRings * site.number + which) * static_cast<int>(slots);
      if (!is_world) {
        options.members = site.members;
        options.local_ranks = site.local_ranks;
      }
      return [topology = site.topology, ring = std::move(ring), inter, options = std::move(options)] {
        const bool one_node = topology.node_count() == 1;
        return std::unique_ptr<data::Backend>(
            std::make_unique<data::cpu::CpuBackend>(topology, ring, one_node ? nullptr : inter, options));
      };
    };
  }

  [[nodiscard]] bool is_one_machine() const {
    return std::adjacent_find(machines_.begin(), machines_.end(), std::not_equal_to<>()) == machines_.end();
  }

  /// The slot's size, the same on all ranks of the world, because all cut the same chunks: by the smallest cache and
  /// the largest node.
  [[nodiscard]] std::size_t slot_bytes(std::size_t cache, bool one_machine) const {
    std::size_t bytes = static_cast<std::size_t>(parts_.settings.slot_bytes);
    if (bytes == 0) {
      std::size_t largest = 0;
      for (const std::vector<int>& node : parts_.topology.nodes) largest = std::max(largest, node.size());
      bytes = data::cpu::choose_slot_bytes(cache, static_cast<int>(largest), one_machine);
    }
    return std::max(kSmallestSlot, base::round_up(bytes, kSlotAlignment));
  }

#ifdef KOLO_HAS_CUDA
  /// For tensors of a device each set has a second data plane of the CPU, with a ring of its own (untouched pages take
  /// no memory) and its own tags between nodes.
  void make_device_backend() {
    const core::Topology& topology = parts_.topology;
    const base::Settings& settings = parts_.settings;
    parts_.make_device_plane = plane_maker(1);
    data::DeviceSet world;
    world.rank = topology.rank;
    world.size = topology.size;
    world.make_plane =
        parts_.make_device_plane({topology, world.members, {}, parts_.layout.ring(world_columns(), 1), 0});
    cuda::CudaBackendOptions options;
    const auto mine = machines_.begin() + topology.rank;
    options.machine_rank = static_cast<int>(std::count(machines_.begin(), mine, *mine));
    options.staged = settings.gpu_backend == base::GpuBackend::staged;
    options.share_device = settings.share_device;
    options.buffers = static_cast<std::size_t>(settings.gpu_buffers);
    options.buffer_bytes = cuda::buffer_bytes_for(settings.fusion_threshold_bytes, topology.size, options.staged);
    options.direct_bytes = static_cast<std::size_t>(settings.gpu_direct_bytes);
    options.memory_limit = static_cast<std::uint64_t>(settings.gpu_memory_limit_bytes);
    options.connecting = base::from_seconds(settings.timeout_s / 2);
    options.tenants = tenants();
    options.leave_behind = [logger = parts_.logger](std::shared_ptr<void> left, const std::string& sentence) {
      KOLO_LOG(*logger, error) << sentence;
      keep(std::move(left));
    };
    options.ring = [link = parts_.link, rank = topology.local_rank] { link->wake(rank); };
    parts_.device = std::make_unique<cuda::CudaBackend>(std::move(options), std::move(world));
  }
#endif

  bootstrap::Bootstrap& bootstrap_;
  const std::shared_ptr<transport::Regions> regions_;
  engine::EngineParts parts_;
  std::shared_ptr<recorder::Recorder> recorder_;  // that of the parts
  std::string job_key_;
  std::vector<int> machines_;                  // by rank
  std::vector<std::string> addresses_;         // by rank
  std::vector<std::string> leader_addresses_;  // by rank; empty for ranks that are no leaders
  base::Duration patience_{};
  std::optional<tcp::Listener> listener_;
  std::shared_ptr<transport::InterNode> inter_;
  std::string carrier_;  // the transport's description; empty with one node
  std::size_t slot_bytes_ = 0;
  std::int64_t slots_ = 0;
  int ranks_a_cpu_ = 0;
  std::optional<data::cpu::RouteTable> routes_;
  bool reads_peers_ = false;
  std::string_view step_ = "settings";  // that is being taken
  base::Time step_began_ = base::now();
  std::string times_;  // of the steps before
};

}  // namespace

base::Duration connect_patience(const Options& options) {
  base::Settings settings;
  try {
    settings = base::load_settings(base::process_environment(), options.settings);
  } catch (const Error&) {
    // Use the default; the first step of the start reports the error to all ranks.
  }
  return base::from_seconds(settings.connect_timeout_s);
}

void show_devices(const Options& options) {
  if (!options.visible_devices) return;
#ifdef KOLO_HAS_CUDA
  // One for the process, because the environment is.
  static base::Mutex mutex;
  const base::MutexLock lock(mutex);
  cuda::make_visible(*options.visible_devices);
#else
  throw Error(ErrorCode::unsupported, "Options::visible_devices is " + base::quoted(*options.visible_devices) +
                                          ", but this build of Kolo has no CUDA part");
#endif
}

std::shared_ptr<detail::ContextImpl> assemble(std::unique_ptr<bootstrap::Bootstrap> bootstrap, const Options& options) {
  auto regions = std::make_shared<transport::Regions>();
  Assembly assembly(*bootstrap, options, std::move(regions));
  return assembly.start(std::move(bootstrap));
}

}  // namespace kolo::api
