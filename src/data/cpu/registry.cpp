// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/registry.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "data/cpu/allgather.hpp"
#include "data/cpu/allreduce.hpp"
#include "data/cpu/alltoall.hpp"
#include "data/cpu/broadcast.hpp"
#include "data/cpu/gather.hpp"
#include "data/cpu/reduce_scatter.hpp"
#include "data/cpu/scatter.hpp"

namespace kolo::data::cpu {

namespace {

using core::CollectiveKind;

template <class OnOneNode, class BetweenNodes = OnOneNode>
std::unique_ptr<Collective> make(Site& site) {
  if (site.one_node()) return std::make_unique<OnOneNode>(site);
  return std::make_unique<BetweenNodes>(site);
}

struct Row {
  CollectiveKind kind;
  std::unique_ptr<Collective> (*make)(Site& site);
  MeshBytes (*mesh_bytes)(const core::Topology& topology, std::size_t slot_bytes) noexcept = nullptr;
  const SmallPart* small = nullptr;
};

constexpr Row kRows[] = {
    {CollectiveKind::allreduce, make<Allreduce>, nullptr, &Allreduce::kSmall},
    {CollectiveKind::broadcast, make<Broadcast>, nullptr, &Broadcast::kSmall},
    {CollectiveKind::allgather, make<Allgather, AllgatherBetweenNodes>, nullptr, &Allgather::kSmall},
    {CollectiveKind::alltoall, make<Alltoall>, Alltoall::mesh_bytes, &Alltoall::kSmall},
    {CollectiveKind::alltoall_splits, make<AlltoallSplits>, Alltoall::mesh_bytes},
    {CollectiveKind::reduce_scatter, make<ReduceScatter>, ReduceScatter::mesh_bytes, &ReduceScatter::kSmall},
    {CollectiveKind::reduce, make<Allreduce>, nullptr, &Allreduce::kSmallToRoot},
    {CollectiveKind::gather, make<Gather>, Alltoall::mesh_bytes, &Gather::kSmall},
    {CollectiveKind::scatter, make<Scatter>, Alltoall::mesh_bytes, &Scatter::kSmall},
    {CollectiveKind::allgather_equal, make<Allgather, AllgatherBetweenNodes>},
    {CollectiveKind::alltoall_known, make<AlltoallSplits>, Alltoall::mesh_bytes},
    {CollectiveKind::message, make<Broadcast>},
};

}  // namespace

MeshBytes mesh_bytes(const core::Topology& topology, std::size_t slot_bytes) noexcept {
  MeshBytes most;
  for (const Row& row : kRows) {
    if (row.mesh_bytes == nullptr) continue;
    const MeshBytes bytes = row.mesh_bytes(topology, slot_bytes);
    most.outgoing = std::max(most.outgoing, bytes.outgoing);
    most.incoming = std::max(most.incoming, bytes.incoming);
  }
  return most;
}

const SmallPart* small_part(CollectiveKind kind) noexcept {
  for (const Row& row : kRows)
    if (row.kind == kind) return row.small;
  return nullptr;
}

Collectives::Collectives(Site& site) : site_(site) {
  for (const Row& row : kRows) give_back(row.kind, lend(row.kind));
}

Collective& Collectives::lend(CollectiveKind kind) {
  Pool& pool = pools_[static_cast<std::size_t>(kind)];
  if (pool.idle.empty()) {
    pool.all.push_back(make(kind));
    pool.idle.push_back(pool.all.back().get());
  }
  Collective& collective = *pool.idle.back();
  pool.idle.pop_back();
  return collective;
}

void Collectives::give_back(CollectiveKind kind, Collective& collective) {
  pools_[static_cast<std::size_t>(kind)].idle.push_back(&collective);
}

std::unique_ptr<Collective> Collectives::make(CollectiveKind kind) {
  for (const Row& row : kRows)
    if (row.kind == kind) return row.make(site_);
  KOLO_UNREACHABLE(core::to_string(kind));
}

}  // namespace kolo::data::cpu
