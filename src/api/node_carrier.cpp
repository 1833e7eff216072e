// SPDX-License-Identifier: Apache-2.0
#include "api/node_carrier.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/check.hpp"

#ifdef KOLO_HAS_UCX
#include <filesystem>
#include <system_error>

#include "base/fields.hpp"
#include "base/text.hpp"
#include "control/tcp/interfaces.hpp"
#include "transport/ucx/ucx_api.hpp"
#include "transport/ucx/ucx_inter_node.hpp"
#endif

namespace kolo::api {
namespace {

#ifdef KOLO_HAS_UCX

/// One for the process, never destroyed, because UCX has threads of its own. After a failure the next call tries again.
const ucx::Library& ucx_library() {
  static const ucx::Library& instance = *new ucx::Library;
  return instance;
}

std::string listed(const std::vector<std::string>& words, const char* between) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : between) + word;
  return joined;
}

/// "mlx5_0:1", as UCX calls them.
std::vector<std::string> rdma_devices() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none))
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", none))
      names.push_back(device.path().filename().string() + ":" + port.path().filename().string());
  return names;
}

/// The devices that UCX may use (UCX_NET_DEVICES): those of KOLO_INTERFACE, else the interfaces that are known to reach
/// other machines. Others may not reach them (a bridge of containers, a private network). If none is known: all.
struct Devices {
  std::string list;  ///< separated by commas; empty: all
  std::vector<std::string> interfaces;
};

Devices ucx_devices(const std::string& wanted, const std::vector<std::string>& reaching) {
  if (const std::optional<std::string> named = base::process_environment()("UCX_NET_DEVICES"))
    return {*named, base::words(*named, ',')};
  Devices devices{{}, reaching};
  if (!wanted.empty()) {
    devices.interfaces.clear();
    for (const tcp::LocalAddress& local : tcp::select_addresses(tcp::local_addresses(), wanted)) {
      const std::string name = local.interface.substr(0, local.interface.find(':'));  // an alias is no device
      std::vector<std::string>& names = devices.interfaces;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::vector<std::string> names = devices.interfaces;
  if (wanted.empty() && !names.empty()) {
    for (std::string& device : rdma_devices()) names.push_back(std::move(device));
  }
  devices.list = listed(names, ",");
  return devices;
}

/// "eth0 10.77.0.1", or the devices given to UCX if they are no interfaces. For messages.
std::string addresses_of(const std::vector<std::string>& interfaces) {
  std::vector<std::string> texts;
  for (const tcp::LocalAddress& local : tcp::local_addresses()) {
    const bool is_used = interfaces.empty()
                             ? !local.address.is_loopback()
                             : std::find(interfaces.begin(), interfaces.end(), local.interface) != interfaces.end();
    if (is_used) texts.push_back(local.interface + " " + local.address.to_string());
  }
  return listed(texts.empty() ? interfaces : texts, ", ");
}

/// Sends a message from each leader to each other one. If a network does not connect them, all ranks fail here, within
/// the start's deadline.
void try_connections(bootstrap::Bootstrap& bootstrap, ucx::UcxInterNode& transport, const core::Topology& topology,
                     const std::vector<std::string>& places, base::Duration patience) {
  bootstrap::take_step(bootstrap, "data connections", bootstrap::after_waiting(patience), [&]() -> std::string {
    if (!topology.is_leader()) return {};
    std::vector<int> leaders;
    for (int node = 0; node < topology.node_count(); ++node)
      if (node != topology.node) leaders.push_back(topology.leader_of(node));
    const std::vector<int> missing = transport.meet(leaders, base::now() + patience);
    if (missing.empty()) return {};
    const auto name = [&](int rank) {
      return "rank " + std::to_string(rank) + " (" + places[static_cast<std::size_t>(rank)] + ")";
    };
    std::vector<std::string> names;
    names.reserve(missing.size());
    for (const int rank : missing) names.push_back(name(rank));
    throw Error(ErrorCode::transport, "no data comes by UCX from " + listed(names, ", ") + " to " +
                                          name(topology.rank) + " within " +
                                          base::spell(base::to_seconds(patience), 4) +
                                          " s (KOLO_CONNECT_TIMEOUT_S): a firewall, or a network that does not connect "
                                          "these hosts; set KOLO_INTERFACE or UCX_NET_DEVICES to one that does");
  });
}

Carrier connect_by_ucx(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
                       const std::vector<std::string>& interfaces, base::Duration patience) {
  std::unique_ptr<ucx::Worker> worker;
  Devices devices;
  const std::vector<std::string> said = bootstrap::take_step(bootstrap, "UCX", patience, [&] {
    devices = ucx_devices(settings.interface, interfaces);
    worker = std::make_unique<ucx::Worker>(ucx_library(), devices.list);
    return base::join_fields({worker->address(), addresses_of(devices.interfaces)});
  });
  std::vector<std::string> addresses;
  std::vector<std::string> places;
  for (const std::string& one : said) {
    std::vector<std::string> fields = base::split_fields(one);
    if (fields.size() != 2) base::throw_unreadable();
    const bool is_here = topology.node_of[addresses.size()] == topology.node;
    addresses.push_back(is_here ? std::string() : std::move(fields[0]));
    places.push_back(std::move(fields[1]));
  }
  Carrier carrier;
  carrier.description = "UCX " + worker->library().version() + (devices.list.empty() ? "" : " over " + devices.list);
  const auto transport = std::make_shared<ucx::UcxInterNode>(std::move(worker), bootstrap.rank(), addresses);
  try_connections(bootstrap, *transport, topology, places, patience);
  carrier.transport = transport;
  return carrier;
}

/// Why this rank could not use UCX; empty: it could.
std::string what_ucx_lacks() {
  try {
    ucx_library().check_not_forked();
    return {};
  } catch (const Error& error) {
    return error.status().message();
  }
}

#else

std::string what_ucx_lacks() {
  return "this build of Kolo has no UCX part: build it where UCX's headers are (Debian: libucx-dev)";
}

Carrier connect_by_ucx(bootstrap::Bootstrap& bootstrap, const base::Settings& /*settings*/,
                       const core::Topology& /*topology*/, const std::vector<std::string>& /*interfaces*/,
                       base::Duration patience) {
  bootstrap::take_step(bootstrap, "UCX", patience, []() -> std::string {
    throw Error(ErrorCode::unsupported,
                "KOLO_TRANSPORT=ucx, but this build of Kolo has no UCX part: build it where UCX's headers are (Debian: "
                "libucx-dev), or let MPI carry the data (mpirun, MPI_THREAD_MULTIPLE and KOLO_TRANSPORT=mpi)");
  });
  return {};
}

#endif

/// The transport of the start. Throws Error (unsupported) if the start has none that can carry data.
Carrier connect_by_start(bootstrap::Bootstrap& bootstrap, const core::Topology& topology, base::Duration patience) {
  Carrier carrier;
  bootstrap::take_step(bootstrap, "transport", bootstrap::after_waiting(patience), [&] {
    carrier.transport = bootstrap.inter_node(topology, patience);
    return std::string();
  });
  carrier.description = carrier.transport->name();
  return carrier;
}

/// The reason of the first rank that cannot use UCX; empty: all can. Collective.
std::string why_not_ucx(bootstrap::Bootstrap& bootstrap, base::Duration patience) {
  const std::vector<std::string> lacks = bootstrap::take_step(bootstrap, "UCX library", patience, what_ucx_lacks);
  const auto first = std::find_if(lacks.begin(), lacks.end(), [](const std::string& one) { return !one.empty(); });
  return first == lacks.end() ? std::string() : "rank " + std::to_string(first - lacks.begin()) + ": " + *first;
}

/// Chooses for KOLO_TRANSPORT=auto. Between machines UCX: it was measured to be as fast as MPI over TCP with large
/// tensors, faster with small ones, and to need less CPU time on a slow link (docs/performance.md). Between virtual
/// nodes of one machine, which are for experiments, the start's own. UCX also if the start has none that can carry
/// data: MPI below MPI_THREAD_MULTIPLE, or no MPI.
Carrier choose_freely(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
                      bool spans_machines, const std::vector<std::string>& interfaces, base::Duration patience,
                      std::string& why) {
  std::string no_ucx;
  if (spans_machines) {
    no_ucx = why_not_ucx(bootstrap, patience);
    if (no_ucx.empty()) {
      why = ": between machines it is faster than MPI with small tensors, and waits with less CPU time";
      return connect_by_ucx(bootstrap, settings, topology, interfaces, patience);
    }
  }
  std::string no_start;
  try {
    Carrier carrier = connect_by_start(bootstrap, topology, patience);
    why = ": what comes with the start";
    if (!no_ucx.empty()) why += ", for UCX cannot be used (" + no_ucx + ")";
    return carrier;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    no_start = error.status().message();
  }
  if (!spans_machines) no_ucx = why_not_ucx(bootstrap, patience);
  if (!no_ucx.empty()) throw Error(ErrorCode::unsupported, no_start + "; UCX cannot be used here (" + no_ucx + ")");
  why = ": what comes with the start cannot carry data";
  return connect_by_ucx(bootstrap, settings, topology, interfaces, patience);
}

Carrier choose(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
               bool spans_machines, const std::vector<std::string>& interfaces, base::Duration patience,
               std::string& why) {
  switch (settings.transport) {
  case base::Transport::automatic:
    return choose_freely(bootstrap, settings, topology, spans_machines, interfaces, patience, why);
  case base::Transport::ucx:
    return connect_by_ucx(bootstrap, settings, topology, interfaces, patience);
  case base::Transport::mpi:
    return connect_by_start(bootstrap, topology, patience);
  }
  KOLO_UNREACHABLE();
}

}  // namespace

Carrier choose_carrier(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
                       bool spans_machines, const std::vector<std::string>& interfaces, base::Duration patience) {
  std::string why;
  Carrier carrier = choose(bootstrap, settings, topology, spans_machines, interfaces, patience, why);
  carrier.description += " (KOLO_TRANSPORT=" + std::string(base::to_string(settings.transport)) + why + ")";
  return carrier;
}

}  // namespace kolo::api
