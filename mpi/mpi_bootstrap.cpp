// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_bootstrap.hpp"

#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "mpi/mpi_api.hpp"
#include "mpi/mpi_borrow.hpp"
#include "mpi/mpi_exchange.hpp"
#include "mpi/mpi_inter_node.hpp"

namespace kolo::mpi {
namespace {

void require_usable_mpi() {
  if (is_finalized()) throw Error(ErrorCode::transport, "MPI has been finalised: no job can be joined any more");
  if (!is_initialized()) throw Error(ErrorCode::transport, "MPI is not initialised: call MPI_Init_thread first");
  const ThreadLevel level = thread_level();
  if (level < ThreadLevel::serialized && !is_main_thread()) {
    throw Error(ErrorCode::unsupported,
                "MPI was initialised with thread level " + std::string(to_string(level)) +
                    ": only the thread that did may join a job; ask MPI_Init_thread for MPI_THREAD_MULTIPLE");
  }
}

}  // namespace

std::unique_ptr<MpiBootstrap> borrow(MPI_Comm theirs, NodeJoiner joiner, base::Duration patience) {
  require_usable_mpi();
  if (theirs == MPI_COMM_NULL) {
    throw Error(ErrorCode::invalid_argument,
                "the communicator is MPI_COMM_NULL: this process is not among its ranks, and cannot be in its world");
  }
  if (is_intercommunicator(theirs)) {
    throw Error(ErrorCode::invalid_argument, "the communicator joins two groups; merge them by MPI_Intercomm_merge");
  }
  roll_call(theirs, patience);
  return std::make_unique<MpiBootstrap>(std::make_unique<MpiExchange>(Communicator::duplicate(theirs, patience)),
                                        std::move(joiner));
}

std::unique_ptr<MpiBootstrap> MpiBootstrap::of_world(NodeJoiner joiner, base::Duration patience) {
  return borrow(MPI_COMM_WORLD, std::move(joiner), patience);
}

MpiBootstrap::MpiBootstrap(std::unique_ptr<MpiExchange> exchange, NodeJoiner joiner)
    : exchange_(std::move(exchange)), joiner_(std::move(joiner)) {}

MpiBootstrap::~MpiBootstrap() = default;

int MpiBootstrap::rank() const noexcept { return exchange_->rank(); }
int MpiBootstrap::size() const noexcept { return exchange_->size(); }

std::vector<std::string> MpiBootstrap::exchange(std::string_view label, const std::string& mine,
                                                base::Duration patience) {
  return exchange_->exchange(label, mine, patience);
}

std::shared_ptr<core::NodeLink> MpiBootstrap::join_node(const core::Topology& topology, std::size_t bytes,
                                                        const std::string& job_key, base::Duration patience) {
  return joiner_(*this, topology, bytes, job_key, patience);
}

std::shared_ptr<core::InterNode> MpiBootstrap::inter_node(const core::Topology& topology, base::Duration patience) {
  KOLO_CHECK(topology.size == size()) << "a topology of " << topology.size << " ranks for a world of " << size();
  return std::make_shared<MpiInterNode>(exchange_->duplicate(patience));
}

std::string MpiBootstrap::describe() const {
  return "MPI (" + library_version() + ", thread level " + std::string(to_string(thread_level())) + ")";
}

}  // namespace kolo::mpi
