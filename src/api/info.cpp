// SPDX-License-Identifier: Apache-2.0
#include <kolo/info.hpp>

#include "api/access.hpp"
#include "api/context_impl.hpp"
#include "api/info.hpp"
#include "api/launch.hpp"
#include "base/text.hpp"
#include "data/kernels/reduction.hpp"
#include "mpi/library/opening.hpp"
#ifdef KOLO_HAS_CUDA
#include "data/cuda/cuda_api.hpp"
#include "data/cuda/nccl_api.hpp"
#endif
#ifdef KOLO_HAS_UCX
#include "transport/ucx/ucx_api.hpp"
#endif

namespace kolo {
namespace {

std::string compiler() {
#if defined(__clang__)
  return "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#elif defined(__GNUC__)
  return "GCC " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#else
  return "an unknown compiler";
#endif
}

std::string describe_nodes(const core::Topology& topology) {
  base::Text text;
  for (int node = 0; node < topology.node_count(); ++node) {
    const std::vector<int>& ranks = topology.nodes[static_cast<std::size_t>(node)];
    text << "  node " << node << ": rank" << (ranks.size() == 1 ? " " : "s ");
    for (std::size_t i = 0; i < ranks.size(); ++i) text << (i == 0 ? "" : ", ") << ranks[i];
    text << "\n";
  }
  return text.str();
}

}  // namespace

const char* version() noexcept { return KOLO_VERSION_STRING; }

BuildInfo built_with() {
  BuildInfo info;
  info.version = version();
  info.compiler = compiler();
  info.mpi = mpi::describe_opened();
#ifdef KOLO_HAS_UCX
  info.ucx = "UCX " + ucx::built_version();
#endif
#ifdef KOLO_HAS_CUDA
  info.cuda = "CUDA " + cuda::runtime_version() + ", " + cuda::describe_nccl();
#endif
  info.simd = kernels::instruction_set();
  return info;
}

std::vector<Setting> settings(const Group& group) { return base::report(api::impl_of(group).engine().settings()); }

std::vector<std::string> explain_start(const Options& options) { return api::explain_start(options); }

std::string describe(const Group& group) {
  const engine::Engine& engine = api::impl_of(group).engine();
  const core::Topology& topology = engine.topology();
  const std::string& carrier = api::impl_of(group).describe_carrier();
  base::Text text;
  text << "Kolo " << version() << ", rank " << topology.rank << " of " << topology.size << "\n"
       << "bootstrap: " << api::impl_of(group).describe_bootstrap() << "\n"
       << "place: local rank " << topology.local_rank << " of " << topology.local_size() << " on node " << topology.node
       << " of " << topology.node_count() << "\n"
       << describe_nodes(topology)  //
       << "control: shared memory within a node" << (topology.node_count() > 1 ? ", TCP between nodes" : "") << "\n"
       << (carrier.empty() ? "" : "between nodes: " + carrier + "\n")  //
       << "CPU backend: " << engine.world()->plane << "\n"
       << "routes inside a node, as KOLO_ROUTES gives them; slots take the rest:\n"
       << api::impl_of(group).describe_routes();
  if (engine.device() != nullptr) text << "CUDA backend: " << engine.device()->describe() << "\n";
  return text.str();
}

detail::Counters detail::counters(const Group& group) { return api::counters_of(api::impl_of(group).engine()); }
Metrics metrics(const Group& group) {
  const detail::Counters counters = detail::counters(group);
  const Metrics& of_the_user = counters;
  return of_the_user;
}
std::string metrics_prometheus(const Group& group) {
  engine::Engine& engine = api::impl_of(group).engine();
  return api::prometheus_of(api::counters_of(engine), engine.topology().rank);
}

detail::Counters api::counters_of(engine::Engine& engine) {
  detail::Counters metrics = engine.metrics();
  if (engine.device() == nullptr) return metrics;
  const data::DeviceUsage usage = engine.device()->usage();
  metrics.device_buffer_bytes = usage.buffer_bytes;
  metrics.device_arena_bytes = usage.arena_bytes;
  metrics.device_communicators = usage.communicators;
  metrics.device_batches = usage.batches;
  metrics.device_portions = usage.portions;
  metrics.device_bytes_packed = usage.bytes_packed;
  metrics.device_bytes_in_place = usage.bytes_in_place;
  metrics.device_calls = usage.collective_calls;
  metrics.device_exchanges = usage.exchanges;
  return metrics;
}

}  // namespace kolo
