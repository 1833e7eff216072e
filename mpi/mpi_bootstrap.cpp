// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_bootstrap.hpp"

#include <exception>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "mpi/mpi_api.hpp"
#include "mpi/mpi_exchange.hpp"
#include "mpi/mpi_inter_node.hpp"
#include "transport/polled_inter_node.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {
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

/// A rank that cannot make the communicator does not know which rank is missing. One more roll call, on the program's
/// communicator, finds the ranks that did not come.
Communicator duplicate(MPI_Comm theirs, base::Duration patience) {
  const base::Time begun = base::now();
  std::optional<Communicator> ours;
  std::exception_ptr why;
  try {
    ours.emplace(Communicator::duplicate(theirs, patience));
  } catch (...) {
    why = std::current_exception();
  }
  roll_call(theirs, "communicator", bootstrap::after_waiting(patience), begun);
  if (!ours) std::rethrow_exception(why);
  return std::move(*ours);
}

/// MPI must outlive this object and the transports that it made.
class MpiBootstrap final : public bootstrap::Bootstrap {
 public:
  explicit MpiBootstrap(Communicator communicator)
      : rank_(communicator.rank()), size_(communicator.size()), exchange_(std::in_place, std::move(communicator)) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  std::vector<std::string> exchange(std::string_view label, const std::string& mine, base::Duration patience,
                                    base::Time begun) override {
    if (!exchange_) throw Error(ErrorCode::transport, "the start of this job is over");
    require_usable_mpi();  // the context may be made on another thread than the bootstrap
    return exchange_->exchange(label, mine, patience, begun);
  }

  std::shared_ptr<transport::InterNode> inter_node(const core::Topology& topology, base::Duration patience) override {
    KOLO_CHECK(topology.size == size()) << "a topology of " << topology.size << " ranks for a world of " << size();
    const std::vector<std::string> levels =
        exchange("thread level", std::string(to_string(thread_level())), patience, base::now());
    for (std::size_t rank = 0; rank < levels.size(); ++rank) {
      if (levels[rank] == to_string(ThreadLevel::multiple)) continue;
      throw Error(ErrorCode::unsupported,
                  "MPI carries data between nodes only with MPI_THREAD_MULTIPLE, and rank " + std::to_string(rank) +
                      " has MPI_THREAD_" + levels[rank] +
                      ": ask MPI_Init_thread for MPI_THREAD_MULTIPLE on every rank, or let UCX carry the data "
                      "(KOLO_TRANSPORT=ucx, with UCX installed on every host; Debian: libucx0)");
    }
    return std::make_shared<transport::PolledInterNode>(std::make_shared<MpiInterNode>(exchange_->duplicate(patience)));
  }

  [[nodiscard]] std::string describe() const override {
    return "MPI (" + library_version() + ", thread level " + std::string(to_string(thread_level())) + ")";
  }

  /// Frees the communicator here, so that the end of a context does not call MPI.
  void close() noexcept override { exchange_.reset(); }

 private:
  const int rank_;
  const int size_;
  std::optional<MpiExchange> exchange_;  // until the start is over
};

}  // namespace

std::unique_ptr<bootstrap::Bootstrap> borrow(MPI_Comm theirs, base::Duration patience) {
  require_usable_mpi();
  if (theirs == MPI_COMM_NULL) {
    throw Error(ErrorCode::invalid_argument,
                "the communicator is MPI_COMM_NULL: this process is not among its ranks, and cannot be in its world");
  }
  if (is_intercommunicator(theirs)) {
    throw Error(ErrorCode::invalid_argument,
                "the communicator is an intercommunicator; merge its two groups with MPI_Intercomm_merge");
  }
  roll_call(theirs, "roll call", patience, base::now());
  return std::make_unique<MpiBootstrap>(duplicate(theirs, patience));
}

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
