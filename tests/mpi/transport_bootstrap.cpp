// SPDX-License-Identifier: Apache-2.0
//
// The life of an MPI that Kolo initialises, and everything a bootstrap gathers over it.
#include <set>

#include "base/settings.hpp"
#include "core/topology.hpp"
#include "mpi/mpi_api.hpp"
#include "mpi/mpi_borrow.hpp"
#include "mpi/mpi_lifetime.hpp"
#include "tests/mpi/report.hpp"

namespace {

using kolo::ErrorCode;
using kolo::testing::Report;
namespace mpi = kolo::mpi;
namespace core = kolo::core;

std::shared_ptr<core::NodeLink> join_nobody(core::Bootstrap&, const core::Topology&, std::size_t, const std::string&) {
  return nullptr;
}

std::string text_of(int rank, std::size_t length) {
  std::string text(length, '\0');
  for (std::size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * 7 + static_cast<std::size_t>(rank) * 13);
  return text;
}

void check_launchers(Report& report) {
  report.check(mpi::started_by_launcher(kolo::base::process_environment()), "mpirun is recognised");
  const auto with = [](const std::string& variable, const std::string& value) {
    return mpi::started_by_launcher(
        [&](const char* name) { return name == variable ? std::optional<std::string>(value) : std::nullopt; });
  };
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"}) {
    report.check(with(variable, "0"), std::string(variable) + " means a launcher");
    report.check(!with(variable, ""), std::string(variable) + " without a value means none");
  }
  report.check(!with("SLURM_PROCID", "0"), "a plain srun is no launcher that MPI knows");
}

void check_gathering(Report& report, core::Bootstrap& bootstrap, const mpi::Communicator& communicator) {
  // Lengths of all kinds: none at all, none of some, one by far the longest.
  for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300000}}) {
    const auto length_of = [&](int rank) {
      return rank % 3 == 1 ? 0 : unit * static_cast<std::size_t>(rank * rank + 1);
    };
    const int rank = bootstrap.rank();
    const std::string mine = text_of(rank, length_of(rank));
    for (const std::size_t round : {std::size_t{0}, std::size_t{3001}, std::size_t{1} << 20}) {
      if (round == 3001 && unit > 1000) continue;  // tens of thousands of rounds
      const std::vector<std::string> all =
          round == 0 ? bootstrap.allgather(mine) : mpi::allgather_in_rounds(communicator, mine, round);
      report.equal(all.size(), static_cast<std::size_t>(bootstrap.size()), "the number of texts");
      for (int other = 0; other < bootstrap.size(); ++other) {
        report.check(all[static_cast<std::size_t>(other)] == text_of(other, length_of(other)),
                     "the text of rank " + std::to_string(other) + " in units of " + std::to_string(unit) +
                         ", rounds of " + std::to_string(round));
      }
    }
  }
}

/// `hosts` machines with as many ranks each, placed as mpirun does by slot.
void check_machines(Report& report, core::Bootstrap& bootstrap, int hosts) {
  const std::vector<int> machines = bootstrap.machines();
  report.equal(machines.size(), static_cast<std::size_t>(bootstrap.size()), "the number of machine numbers");
  report.equal(std::set<int>(machines.begin(), machines.end()).size(), static_cast<std::size_t>(hosts), "machines");
  const int per_host = bootstrap.size() / hosts;
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    report.equal(machines[static_cast<std::size_t>(rank)], rank / per_host * per_host,
                 "the machine of rank " + std::to_string(rank));
  }
}

void check_borrowing(Report& report, int rank) {
  report.throws(ErrorCode::invalid_argument, "MPI_COMM_NULL", [] { mpi::borrow(MPI_COMM_NULL, join_nobody); });
  // Every other rank, in reverse order; the original is freed while the duplicate lives.
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  int theirs = 0;
  MPI_Comm_rank(half, &theirs);
  bool joined = false;
  const auto bootstrap = mpi::borrow(
      half, [&](core::Bootstrap& among, const core::Topology& topology, std::size_t bytes, const std::string& key) {
        joined = among.rank() == theirs && topology.rank == theirs && bytes == 4096 && key == "key";
        return std::shared_ptr<core::NodeLink>();
      });
  MPI_Comm_free(&half);
  report.equal(bootstrap->rank(), theirs, "the rank in the borrowed communicator");
  const std::vector<std::string> all = bootstrap->allgather(std::to_string(rank));
  int expected = (bootstrap->size() - 1) * 2 + rank % 2;
  for (const std::string& one : all) {
    report.equal(one, std::to_string(expected), "who is there in a borrowed communicator");
    expected -= 2;
  }
  const core::Topology topology = core::make_topology(bootstrap->rank(), bootstrap->machines(), 0);
  report.check(bootstrap->join_node(topology, 4096, "key") == nullptr && joined, "the joiner is given what it needs");
}

/// What a bootstrap gathers, in communicators of other sizes than the job's.
void check_smaller_worlds(Report& report) {
  kolo::testing::for_worlds_within_job([&](MPI_Comm world) {
    const auto bootstrap = mpi::borrow(world, join_nobody);
    check_gathering(report, *bootstrap, mpi::Communicator::duplicate(world));
  });
}

void check_errors_are_values(Report& report, const mpi::Communicator& communicator) {
  report.throws(ErrorCode::transport, "MPI_Isend to rank 1000 failed: MPI_ERR_RANK", [&] {
    std::byte byte{};
    static_cast<void>(communicator.send(1000, 0, &byte, 1));
  });
}

}  // namespace

int main(int argc, char** argv) {
  Report report("transport-bootstrap");
  return kolo::testing::run(report, [&] {
    const int hosts = argc > 1 ? std::stoi(argv[1]) : 1;
    check_launchers(report);
    report.throws(ErrorCode::transport, "MPI is not initialised", [] { mpi::borrow(MPI_COMM_WORLD, join_nobody); });

    mpi::Lifetime program_with_its_own;  // begins once MPI is there, and so never ends it
    mpi::Lifetime lifetime;
    lifetime.begin();
    lifetime.begin();
    program_with_its_own.begin();
    program_with_its_own.end();
    report.check(!mpi::is_finalized(), "an MPI that others initialised is not finalised");
    {
      const auto bootstrap = mpi::MpiBootstrap::of_world(join_nobody);
      report.set_place(bootstrap->rank(), bootstrap->size());
      report.equal(bootstrap->describe().substr(0, 5), std::string("MPI ("), "the beginning of the description");
      report.check(bootstrap->describe().find(", thread level MULTIPLE)") != std::string::npos, bootstrap->describe());
      const auto communicator = mpi::Communicator::duplicate(MPI_COMM_WORLD);
      check_smaller_worlds(report);
      check_machines(report, *bootstrap, hosts);
      check_borrowing(report, bootstrap->rank());
      check_errors_are_values(report, communicator);
    }
    // Many worlds one after another: communicators are a limited good. (Each costs many round trips between hosts.)
    for (int i = 0; i < (hosts > 1 ? 10 : 300); ++i) mpi::MpiBootstrap::of_world(join_nobody)->allgather("");

    lifetime.end();
    report.check(mpi::is_finalized(), "MPI that we initialised is finalised at the end");
    lifetime.end();
    report.throws(ErrorCode::transport, "MPI has been finalised", [&] { lifetime.begin(); });
    report.throws(ErrorCode::transport, "MPI has been finalised", [] { mpi::borrow(MPI_COMM_WORLD, join_nobody); });
  });
}
