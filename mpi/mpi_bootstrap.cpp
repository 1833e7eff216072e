// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_bootstrap.hpp"

#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/mutex.hpp"
#include "mpi/mpi_api.hpp"
#include "mpi/mpi_borrow.hpp"
#include "mpi/mpi_exchange.hpp"
#include "mpi/mpi_inter_node.hpp"
#include "transport/polled_inter_node.hpp"

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

/// Below MPI_THREAD_MULTIPLE no two threads may be in MPI at once. (A collective that waits for other ranks holds the
/// gate meanwhile: below MULTIPLE other threads' data stands still while a context is made.)
std::optional<base::MutexLock<std::mutex>> hold(transport::CallerGate& gate) {
  if (is_finalized() || thread_level() == ThreadLevel::multiple) return std::nullopt;
  return std::optional<base::MutexLock<std::mutex>>(std::in_place, gate.mutex());
}

/// A rank that cannot make the communicator does not know which rank held it up. One more roll call, on the program's
/// communicator, names those that did not come.
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

}  // namespace

std::unique_ptr<MpiBootstrap> borrow(MPI_Comm theirs, NodeJoiner joiner, base::Duration patience,
                                     std::shared_ptr<transport::CallerGate> gate) {
  require_usable_mpi();
  if (theirs == MPI_COMM_NULL) {
    throw Error(ErrorCode::invalid_argument,
                "the communicator is MPI_COMM_NULL: this process is not among its ranks, and cannot be in its world");
  }
  if (is_intercommunicator(theirs)) {
    throw Error(ErrorCode::invalid_argument,
                "the communicator is an intercommunicator; merge its two groups with MPI_Intercomm_merge");
  }
  if (gate == nullptr) gate = std::make_shared<transport::CallerGate>();
  const auto held = hold(*gate);
  roll_call(theirs, "roll call", patience, base::now());
  return std::make_unique<MpiBootstrap>(std::make_unique<MpiExchange>(duplicate(theirs, patience)), std::move(gate),
                                        std::move(joiner));
}

std::unique_ptr<MpiBootstrap> MpiBootstrap::of_world(NodeJoiner joiner, base::Duration patience,
                                                     std::shared_ptr<transport::CallerGate> gate) {
  return borrow(MPI_COMM_WORLD, std::move(joiner), patience, std::move(gate));
}

MpiBootstrap::MpiBootstrap(std::unique_ptr<MpiExchange> exchange, std::shared_ptr<transport::CallerGate> gate,
                           NodeJoiner joiner)
    : exchange_(std::move(exchange)), gate_(std::move(gate)), joiner_(std::move(joiner)) {}

MpiBootstrap::~MpiBootstrap() {
  const auto held = hold(*gate_);
  exchange_.reset();
}

int MpiBootstrap::rank() const noexcept { return exchange_->rank(); }
int MpiBootstrap::size() const noexcept { return exchange_->size(); }

std::vector<std::string> MpiBootstrap::exchange(std::string_view label, const std::string& mine,
                                                base::Duration patience, base::Time begun) {
  const auto held = hold(*gate_);
  return exchange_->exchange(label, mine, patience, begun);
}

std::shared_ptr<transport::NodeLink> MpiBootstrap::join_node(const core::Topology& topology, std::size_t bytes,
                                                             const std::string& job_key, base::Duration patience) {
  return joiner_(*this, topology, bytes, job_key, patience);
}

std::shared_ptr<transport::InterNode> MpiBootstrap::inter_node(const core::Topology& topology,
                                                               base::Duration patience) {
  KOLO_CHECK(topology.size == size()) << "a topology of " << topology.size << " ranks for a world of " << size();
  std::shared_ptr<transport::InterNode> transport;
  {
    const auto held = hold(*gate_);
    transport = std::make_shared<MpiInterNode>(exchange_->duplicate(patience));
  }
  return std::make_shared<transport::PolledInterNode>(std::move(transport), call_rule());  // which passes the gate
}

/// Who may call the transport; empty: any thread.
std::optional<transport::CallRule> MpiBootstrap::call_rule() const {
  const ThreadLevel level = thread_level();
  if (level == ThreadLevel::multiple) return std::nullopt;
  transport::CallRule rule;
  rule.gate = gate_;
  rule.any_thread = level == ThreadLevel::serialized;
  rule.only = std::this_thread::get_id();  // require_usable_mpi: the one that may
  rule.refusal = "this thread may not wait for a collective between nodes: MPI was initialised with thread level " +
                 std::string(to_string(level)) +
                 ", so only the thread that initialised it may; poll with done() here while that thread calls Kolo, or "
                 "ask MPI_Init_thread for MPI_THREAD_MULTIPLE";
  rule.hindrance =
      "only a thread that may call MPI can do that (the thread level is below MPI_THREAD_MULTIPLE), and none of these "
      "is in a call of Kolo";
  return rule;
}

std::string MpiBootstrap::describe() const {
  return "MPI (" + library_version() + ", thread level " + std::string(to_string(thread_level())) + ")";
}

}  // namespace kolo::mpi
