// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_bootstrap.hpp"

#include <algorithm>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "mpi/mpi_api.hpp"
#include "mpi/mpi_borrow.hpp"
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

std::unique_ptr<MpiBootstrap> borrow(MPI_Comm theirs, NodeJoiner joiner) {
  require_usable_mpi();
  if (theirs == MPI_COMM_NULL) {
    throw Error(ErrorCode::invalid_argument,
                "the communicator is MPI_COMM_NULL: this process is not among its ranks, and cannot be in its world");
  }
  if (is_intercommunicator(theirs)) {
    throw Error(ErrorCode::invalid_argument, "the communicator joins two groups; merge them by MPI_Intercomm_merge");
  }
  return std::make_unique<MpiBootstrap>(std::make_unique<Communicator>(Communicator::duplicate(theirs)),
                                        std::move(joiner));
}

std::unique_ptr<MpiBootstrap> MpiBootstrap::of_world(NodeJoiner joiner) {
  return borrow(MPI_COMM_WORLD, std::move(joiner));
}

MpiBootstrap::MpiBootstrap(std::unique_ptr<Communicator> communicator, NodeJoiner joiner)
    : communicator_(std::move(communicator)), joiner_(std::move(joiner)) {}

MpiBootstrap::~MpiBootstrap() = default;

int MpiBootstrap::rank() const noexcept { return communicator_->rank(); }
int MpiBootstrap::size() const noexcept { return communicator_->size(); }

std::vector<int> MpiBootstrap::machines() {
  // A machine's number is the lowest of its ranks.
  const Communicator machine = communicator_->split_by_machine();
  const std::vector<std::int64_t> ranks = machine.allgather(communicator_->rank());
  const std::vector<std::int64_t> numbers = communicator_->allgather(*std::min_element(ranks.begin(), ranks.end()));
  return {numbers.begin(), numbers.end()};
}

std::vector<std::string> MpiBootstrap::allgather(const std::string& mine) {
  return allgather_in_rounds(*communicator_, mine, kMaxPieceBytes);
}

std::vector<std::string> allgather_in_rounds(const Communicator& communicator, const std::string& mine,
                                             std::size_t round_bytes) {
  const std::vector<std::int64_t> lengths = communicator.allgather(static_cast<std::int64_t>(mine.size()));
  const std::size_t share = std::max<std::size_t>(round_bytes / lengths.size(), 1);
  std::vector<std::string> all(lengths.size());
  bool complete = false;
  for (std::size_t begin = 0; !complete; begin += share) {
    // Every rank knows all lengths, and so the same rounds.
    std::vector<int> counts;
    std::vector<int> offsets;
    std::size_t total = 0;
    complete = true;
    for (const std::int64_t length : lengths) {
      const auto whole = static_cast<std::size_t>(length);
      const std::size_t part = whole > begin ? std::min(whole - begin, share) : 0;
      counts.push_back(static_cast<int>(part));
      offsets.push_back(static_cast<int>(total));
      total += part;
      complete = complete && begin + part >= whole;
    }
    std::string round(total, '\0');
    const auto rank = static_cast<std::size_t>(communicator.rank());
    communicator.allgather(reinterpret_cast<const std::byte*>(mine.data() + std::min(begin, mine.size())), counts[rank],
                           reinterpret_cast<std::byte*>(round.data()), counts, offsets);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].append(round, static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(counts[i]));
    }
  }
  return all;
}

std::shared_ptr<core::NodeLink> MpiBootstrap::join_node(const core::Topology& topology, std::size_t bytes,
                                                        const std::string& job_key) {
  return joiner_(*this, topology, bytes, job_key);
}

std::shared_ptr<core::InterNode> MpiBootstrap::inter_node(const core::Topology& topology) {
  KOLO_CHECK(topology.size == size()) << "a topology of " << topology.size << " ranks for a world of " << size();
  return std::make_shared<MpiInterNode>(Communicator::duplicate(communicator_->raw()));
}

std::string MpiBootstrap::describe() const {
  return "MPI (" + library_version() + ", thread level " + std::string(to_string(thread_level())) + ")";
}

}  // namespace kolo::mpi
