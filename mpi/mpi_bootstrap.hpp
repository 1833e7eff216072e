// SPDX-License-Identifier: Apache-2.0
//
// Ranks find one another by MPI.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "mpi/abi/mpi.hpp"
#include "mpi/library/abi.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {

class MpiExchange;

/// MPI must be initialised, and must outlive this object and the transports that it made. MPI's thread level decides
/// two things.
///
/// Which threads may call this: with MULTIPLE any thread; with SERIALIZED any thread while the program keeps all others
/// out of MPI; with FUNNELED and SINGLE only the thread that initialised MPI, and others get an Error (unsupported).
///
/// Whether MPI may carry data: only with MULTIPLE on every rank, because the engine calls the transport from several
/// threads. Below that Kolo does not call MPI once the start is over (`close`).
class MpiBootstrap final : public bootstrap::Bootstrap {
 public:
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
  /// Frees the communicator here, so that the end of a context does not call MPI.
  void close() noexcept override;

 private:
  std::unique_ptr<MpiExchange> exchange_;  // null once the start is over
  const int rank_;
  const int size_;
  NodeJoiner joiner_;
};

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
