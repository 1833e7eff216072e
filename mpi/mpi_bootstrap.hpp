// SPDX-License-Identifier: Apache-2.0
//
// Ranks find one another by MPI. This header brings in no <mpi.h>.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.hpp"

namespace kolo::mpi {

class MpiExchange;

/// Makes the node's shared memory, given a bootstrap whose `exchange` works: shared memory is another module's.
using NodeJoiner = std::function<std::shared_ptr<transport::NodeLink>(
    bootstrap::Bootstrap& bootstrap, const core::Topology& topology, std::size_t bytes, const std::string& job_key,
    base::Duration patience)>;

/// MPI must be initialised, and outlive it and the transports that it made. MPI's thread level decides two things.
///
/// Who may call this: any thread with MULTIPLE; with SERIALIZED any thread while the program keeps all others out of
/// MPI, as around a call of MPI of its own; with FUNNELED and SINGLE the thread that initialised MPI, and others get an
/// Error (unsupported).
///
/// Whether MPI may carry data: with MULTIPLE on every rank alone, because the engine calls the transport from threads
/// of its own. Below that nothing calls MPI once the start is over (`close`).
class MpiBootstrap final : public bootstrap::Bootstrap {
 public:
  /// All ranks of the job: `borrow(MPI_COMM_WORLD)`, see mpi_borrow.hpp.
  static std::unique_ptr<MpiBootstrap> of_world(NodeJoiner joiner, base::Duration patience);
  MpiBootstrap(std::unique_ptr<MpiExchange> exchange, NodeJoiner joiner);
  ~MpiBootstrap() override;

  [[nodiscard]] int rank() const noexcept override;
  [[nodiscard]] int size() const noexcept override;
  std::vector<std::string> exchange(std::string_view label, const std::string& mine, base::Duration patience,
                                    base::Time begun = base::now()) override;
  std::shared_ptr<transport::NodeLink> join_node(const core::Topology& topology, std::size_t bytes,
                                                 const std::string& job_key, base::Duration patience) override;
  std::shared_ptr<transport::InterNode> inter_node(const core::Topology& topology, base::Duration patience) override;
  [[nodiscard]] std::string describe() const override;
  /// Frees the communicator: the end of a context makes no call of MPI.
  void close() noexcept override;

 private:
  std::unique_ptr<MpiExchange> exchange_;  // null once the start is over
  const int rank_;
  const int size_;
  NodeJoiner joiner_;
};

}  // namespace kolo::mpi
