// SPDX-License-Identifier: Apache-2.0
//
// How ranks find one another, once, before anything else works. MPI implements it for processes (`mpi/`), shared
// memory of the process for ranks as threads (`src/shm/`), and a world of one needs none of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/inter_node.hpp"
#include "core/node_link.hpp"
#include "core/topology.hpp"

namespace kolo::core {

/// Calls are collective: every rank makes the same calls in the same order, from one thread. All of them block; a
/// failure is an `Error` (transport). Not needed any more once the engine runs, except to be destroyed after it.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// A number for the machine of every rank, by rank; equal for ranks that can share memory.
  virtual std::vector<int> machines() = 0;
  /// Everyone's contribution, by rank.
  virtual std::vector<std::string> allgather(const std::string& mine) = 0;
  /// The node's shared memory (`bytes` of it, zeroed), wake-ups and liveness, among the ranks of one node of
  /// `topology`. `job_key` is the same random string on every rank and authenticates the handover.
  virtual std::shared_ptr<NodeLink> join_node(const Topology& topology, std::size_t bytes,
                                              const std::string& job_key) = 0;
  /// Bulk transport between nodes; called only when there is more than one node.
  virtual std::shared_ptr<InterNode> inter_node(const Topology& topology) = 0;
  /// "MPI (Open MPI 4.1.4, thread level MULTIPLE)": for describe() and kolo-info.
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace kolo::core
