// SPDX-License-Identifier: Apache-2.0
#include "api/carrier.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

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

std::string what_ucx_lacks() { return "this build of Kolo has no UCX part"; }

Carrier connect_by_ucx(bootstrap::Bootstrap& bootstrap, const base::Settings& /*settings*/,
                       const core::Topology& /*topology*/, base::Duration patience) {
  bootstrap::take_step(bootstrap, "UCX", patience, []() -> std::string {
    throw Error(
        ErrorCode::unsupported,
        "data between nodes has to go by UCX here, but this build of Kolo has no UCX part: build it where UCX's "
        "headers are (Debian: libucx-dev), or start the ranks by mpirun with KOLO_TRANSPORT=auto");
  });
  return {};
}

#endif

/// A transport that is null: this start brings none, and `may_lack` it.
Carrier connect_by_start(bootstrap::Bootstrap& bootstrap, const core::Topology& topology, base::Duration patience,
                         bool may_lack) {
  constexpr const char* kLacks = "none";
  Carrier carrier;
  const std::vector<std::string> found =
      bootstrap::take_step(bootstrap, "transport", bootstrap::after_waiting(patience), [&]() -> std::string {
        try {
          carrier.transport = bootstrap.inter_node(topology, patience);
        } catch (const Error& error) {
          if (!may_lack || error.code() != ErrorCode::unsupported) throw;
          return kLacks;
        }
        return {};
      });
  if (std::find(found.begin(), found.end(), kLacks) != found.end()) return {};
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
/// to try things out, the start's own is taken; UCX also where the start brings none.
Carrier choose(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
               bool spans_machines, base::Duration patience, std::string& why) {
  const bool is_free = settings.transport == base::Transport::automatic;
  if (settings.transport == base::Transport::ucx) return connect_by_ucx(bootstrap, settings, topology, patience);
  if (is_free) why = ": what comes with the start";
  if (is_free && spans_machines) {
    const std::string lack = why_not_ucx(bootstrap, patience);
    if (lack.empty()) {
      why = ": between machines it is faster than MPI with small tensors, and waits with less CPU time";
      return connect_by_ucx(bootstrap, settings, topology, patience);
    }
    why += ", for UCX cannot be used (" + lack + ")";
  }
  Carrier carrier = connect_by_start(bootstrap, topology, patience, is_free);
  if (carrier.transport != nullptr) return carrier;
  why = ": nothing comes with the start";
  return connect_by_ucx(bootstrap, settings, topology, patience);
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
