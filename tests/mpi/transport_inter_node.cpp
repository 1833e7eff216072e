// SPDX-License-Identifier: Apache-2.0
//
// Bulk transport by MPI: every pair of ranks, sizes of all kinds, many operations at once, order within a tag.
#include <chrono>

#include "core/topology.hpp"
#include "tests/mpi/internals.hpp"
#include "tests/support/inter_node.hpp"

namespace {

using kolo::testing::Report;
namespace mpi = kolo::mpi;
namespace core = kolo::core;
namespace transport = kolo::transport;
namespace checks = kolo::testing::inter_node;

constexpr kolo::base::Duration kPatience = std::chrono::seconds(60);

void expect_none(Report& report, const checks::Complaints& complaints) {
  for (const std::string& complaint : complaints) report.check(false, complaint);
  report.check(true, "");
}

void check_world(Report& report, MPI_Comm world) {
  const auto bootstrap = mpi::borrow(world, kPatience);
  const int rank = bootstrap->rank();
  const int size = bootstrap->size();
  report.set_place(rank, size);
  const core::Topology topology = core::make_topology(rank, std::vector<int>(static_cast<std::size_t>(size), 0), 1);
  report.equal(topology.node_count(), size, "virtual nodes of one rank");

  const auto transport = bootstrap->inter_node(topology, kPatience);
  report.equal(std::string(transport->name()), std::string("MPI point-to-point"), "the name");
  expect_none(report, checks::exchange_all(*transport, rank, size, 200000, 10));
  // The largest messages that fit a test, cut where a message of more than 1 GiB would be.
  mpi::MpiInterNode in_pieces(mpi::Communicator::duplicate(world, kPatience), 4096);
  expect_none(report, checks::exchange_all(in_pieces, rank, size, 300000, 3));
  bootstrap->exchange("test", "", kPatience);

  expect_none(report, checks::listen_to_all(*bootstrap->inter_node(topology, kPatience), rank, size));
  bootstrap->exchange("test", "", kPatience);
  const auto short_of = bootstrap->inter_node(topology, kPatience);
  if (size > 1) expect_none(report, checks::send_too_little(*short_of, rank));
  // A receive that nobody answers stays open: its memory and communicator are kept, and nothing waits.
  if (size > 1) {
    mpi::MpiInterNode abandoned(mpi::Communicator::duplicate(world, kPatience));
    const auto operation = abandoned.receive((rank + 1) % size, 5, abandoned.staging(1000), 1000);
    report.check(!abandoned.test(operation), "what nobody sends does not arrive");
  }
  bootstrap->exchange("test", "", kPatience);
}

}  // namespace

int main() {
  Report report("transport-inter-node");
  return kolo::testing::run(report, [&] {
    mpi::Lifetime lifetime;
    kolo::testing::begin(lifetime, kPatience);
    kolo::testing::for_worlds_within_job([&](MPI_Comm world) { check_world(report, world); });
    lifetime.leave_open(true);  // an operation is open, as after a fault
    lifetime.end(kPatience, 0);
    report.check(!mpi::is_finalized(), "after a fault MPI is not finalised");
    MPI_Finalize();  // the test's own, so that mpirun is content
  });
}
