// SPDX-License-Identifier: Apache-2.0
#include "api/carrier.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/check.hpp"

#ifdef KOLO_HAS_UCX
#include "control/tcp/interfaces.hpp"
#include "transport/ucx/ucx_api.hpp"
#include "transport/ucx/ucx_inter_node.hpp"
#endif

namespace kolo::api {
namespace {

#ifdef KOLO_HAS_UCX

/// The process's, and never destroyed: UCX has threads of its own. A failure is tried again by the next one who asks.
const ucx::Library& ucx_library() {
  static const ucx::Library& instance = *new ucx::Library;
  return instance;
}

/// The interfaces that KOLO_INTERFACE stands for, as UCX wants them; empty: all. UCX_NET_DEVICES wins.
std::string ucx_devices(const std::string& wanted) {
  if (const std::optional<std::string> named = base::process_environment()("UCX_NET_DEVICES")) return *named;
  if (wanted.empty()) return {};
  std::vector<std::string> names;
  for (const tcp::LocalAddress& address : tcp::select_addresses(tcp::local_addresses(), wanted)) {
    const std::string name = address.interface.substr(0, address.interface.find(':'));  // an alias is no device
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string devices;
  for (const std::string& name : names) devices += (devices.empty() ? "" : ",") + name;
  return devices;
}

Carrier connect_by_ucx(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
                       base::Duration patience) {
  std::unique_ptr<ucx::Worker> worker;
  std::string devices;
  std::vector<std::string> addresses = bootstrap::take_step(bootstrap, "UCX", patience, [&] {
    devices = ucx_devices(settings.interface);
    worker = std::make_unique<ucx::Worker>(ucx_library(), devices);
    return worker->address();
  });
  for (int rank = 0; rank < topology.size; ++rank) {
    if (topology.node_of[static_cast<std::size_t>(rank)] == topology.node)
      addresses[static_cast<std::size_t>(rank)].clear();
  }
  Carrier carrier;
  carrier.description = "UCX " + worker->library().version() + (devices.empty() ? "" : " over " + devices);
  carrier.transport = std::make_shared<ucx::UcxInterNode>(std::move(worker), bootstrap.rank(), addresses);
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
                       const core::Topology& /*topology*/, base::Duration patience) {
  bootstrap::take_step(bootstrap, "UCX", patience, []() -> std::string {
    throw Error(ErrorCode::unsupported,
                "KOLO_TRANSPORT=ucx, but this build of Kolo has no UCX part: build it where UCX's headers are (Debian: "
                "libucx-dev), or let MPI carry the data (mpirun, MPI_THREAD_MULTIPLE and KOLO_TRANSPORT=mpi)");
  });
  return {};
}

#endif

/// What comes with the start. Where it brings nothing that can carry data this throws; or, with `lack`, says there why,
/// and the transport is null.
Carrier connect_by_start(bootstrap::Bootstrap& bootstrap, const core::Topology& topology, base::Duration patience,
                         std::string* lack = nullptr) {
  Carrier carrier;
  const std::vector<std::string> lacks =
      bootstrap::take_step(bootstrap, "transport", bootstrap::after_waiting(patience), [&]() -> std::string {
        try {
          carrier.transport = bootstrap.inter_node(topology, patience);
        } catch (const Error& error) {
          if (lack == nullptr || error.code() != ErrorCode::unsupported) throw;
          return error.status().message();
        }
        return {};
      });
  const auto first = std::find_if(lacks.begin(), lacks.end(), [](const std::string& one) { return !one.empty(); });
  if (first != lacks.end()) {
    *lack = *first;
    return {};
  }
  carrier.description = carrier.transport->name();
  return carrier;
}

/// Of the first rank that cannot use UCX; empty: all can. Collective.
std::string why_not_ucx(bootstrap::Bootstrap& bootstrap, base::Duration patience) {
  const std::vector<std::string> lacks = bootstrap::take_step(bootstrap, "UCX library", patience, what_ucx_lacks);
  const auto first = std::find_if(lacks.begin(), lacks.end(), [](const std::string& one) { return !one.empty(); });
  return first == lacks.end() ? std::string() : "rank " + std::to_string(first - lacks.begin()) + ": " + *first;
}

/// Between machines UCX was measured to be as fast as MPI over TCP with large tensors, faster with small ones, and to
/// wait for a slow link with less CPU time (docs/performance.md). Between virtual nodes of one machine, which are there
/// to try things out, the start's own is taken. UCX also where the start brings none that can carry data: MPI below
/// MPI_THREAD_MULTIPLE, or no MPI.
Carrier choose_freely(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
                      bool spans_machines, base::Duration patience, std::string& why) {
  std::string no_ucx;
  if (spans_machines) {
    no_ucx = why_not_ucx(bootstrap, patience);
    if (no_ucx.empty()) {
      why = ": between machines it is faster than MPI with small tensors, and waits with less CPU time";
      return connect_by_ucx(bootstrap, settings, topology, patience);
    }
  }
  std::string no_start;
  Carrier carrier = connect_by_start(bootstrap, topology, patience, &no_start);
  if (carrier.transport != nullptr) {
    why = ": what comes with the start";
    if (!no_ucx.empty()) why += ", for UCX cannot be used (" + no_ucx + ")";
    return carrier;
  }
  if (!spans_machines) no_ucx = why_not_ucx(bootstrap, patience);
  if (!no_ucx.empty()) throw Error(ErrorCode::unsupported, no_start + "; UCX cannot be used here (" + no_ucx + ")");
  why = ": what comes with the start cannot carry data";
  return connect_by_ucx(bootstrap, settings, topology, patience);
}

Carrier choose(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
               bool spans_machines, base::Duration patience, std::string& why) {
  switch (settings.transport) {
  case base::Transport::automatic:
    return choose_freely(bootstrap, settings, topology, spans_machines, patience, why);
  case base::Transport::ucx:
    return connect_by_ucx(bootstrap, settings, topology, patience);
  case base::Transport::mpi:
    return connect_by_start(bootstrap, topology, patience);
  }
  KOLO_UNREACHABLE();
}

}  // namespace

Carrier choose_carrier(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
                       bool spans_machines, base::Duration patience) {
  std::string why;
  Carrier carrier = choose(bootstrap, settings, topology, spans_machines, patience, why);
  carrier.description += " (KOLO_TRANSPORT=" + std::string(base::to_string(settings.transport)) + why + ")";
  return carrier;
}

}  // namespace kolo::api
