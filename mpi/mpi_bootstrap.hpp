// SPDX-License-Identifier: Apache-2.0
//
// Ranks find one another by MPI. This header brings in no <mpi.h>.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "transport/gated_inter_node.hpp"

namespace kolo::mpi {

class MpiExchange;

/// Makes the node's shared memory, given a bootstrap whose `exchange` works: shared memory is another module's.
using NodeJoiner = std::function<std::shared_ptr<transport::NodeLink>(
    bootstrap::Bootstrap& bootstrap, const core::Topology& topology, std::size_t bytes, const std::string& job_key,
    base::Duration patience)>;

/// MPI must be initialised, and outlive it and the transports that it made. Who may call it, and its transport, follows
/// from MPI's thread level:
///
///   MULTIPLE           any thread
///   SERIALIZED         a thread that is inside a call of Kolo's, one at a time in the whole process: they pass the
///                      process's gate, and the program promises that it does not call MPI itself meanwhile
///   FUNNELED, SINGLE   the thread that initialised MPI, while it is inside a call of Kolo's
///
/// So below MULTIPLE nothing moves between nodes while the program computes.
class MpiBootstrap final : public bootstrap::Bootstrap {
 public:
  /// All ranks of the job: `borrow(MPI_COMM_WORLD)`, see mpi_borrow.hpp.
  /// `gate`: the process's, which all contexts share; without one this world has a gate of its own.
  static std::unique_ptr<MpiBootstrap> of_world(NodeJoiner joiner, base::Duration patience,
                                                std::shared_ptr<transport::CallerGate> gate = nullptr);
  MpiBootstrap(std::unique_ptr<MpiExchange> exchange, std::shared_ptr<transport::CallerGate> gate, NodeJoiner joiner);
  ~MpiBootstrap() override;

  [[nodiscard]] int rank() const noexcept override;
  [[nodiscard]] int size() const noexcept override;
  std::vector<std::string> exchange(std::string_view label, const std::string& mine, base::Duration patience,
                                    base::Time begun = base::now()) override;
  std::shared_ptr<transport::NodeLink> join_node(const core::Topology& topology, std::size_t bytes,
                                                 const std::string& job_key, base::Duration patience) override;
  std::shared_ptr<transport::InterNode> inter_node(const core::Topology& topology, base::Duration patience) override;
  [[nodiscard]] std::string describe() const override;

 private:
  [[nodiscard]] std::optional<transport::CallRule> call_rule() const;

  std::unique_ptr<MpiExchange> exchange_;
  const std::shared_ptr<transport::CallerGate> gate_;
  NodeJoiner joiner_;
};

}  // namespace kolo::mpi
