// SPDX-License-Identifier: Apache-2.0
//
// The life of an MPI that Kolo initialises, and everything a bootstrap gathers over it.
#include <chrono>
#include <set>

#include "base/cpu.hpp"
#include "base/settings.hpp"
#include "core/topology.hpp"
#include "tests/mpi/internals.hpp"

namespace {

using kolo::ErrorCode;
using kolo::testing::Report;
namespace mpi = kolo::mpi;
namespace bootstrap = kolo::bootstrap;
namespace core = kolo::core;

constexpr kolo::base::Duration kPatience = std::chrono::seconds(60);

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

void check_exchange(Report& report, bootstrap::Bootstrap& bootstrap) {
  // Lengths of all kinds: none at all, none of some, one by far the longest.
  for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300000}}) {
    const auto length_of = [&](int rank) {
      return rank % 3 == 1 ? 0 : unit * static_cast<std::size_t>(rank * rank + 1);
    };
    const int rank = bootstrap.rank();
    const std::vector<std::string> all = bootstrap.exchange("test", text_of(rank, length_of(rank)), kPatience);
    report.equal(all.size(), static_cast<std::size_t>(bootstrap.size()), "the number of texts");
    for (int other = 0; other < bootstrap.size(); ++other) {
      report.check(all[static_cast<std::size_t>(other)] == text_of(other, length_of(other)),
                   "the text of rank " + std::to_string(other) + " in units of " + std::to_string(unit));
    }
  }
}

/// `hosts` machines with as many ranks each, placed as mpirun does by slot.
std::vector<int> check_machines(Report& report, bootstrap::Bootstrap& bootstrap, int hosts) {
  const std::vector<int> machines =
      core::number_machines(bootstrap.exchange("test", kolo::base::machine_name(), kPatience));
  report.equal(machines.size(), static_cast<std::size_t>(bootstrap.size()), "the number of machine numbers");
  report.equal(std::set<int>(machines.begin(), machines.end()).size(), static_cast<std::size_t>(hosts), "machines");
  const int per_host = bootstrap.size() / hosts;
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    report.equal(machines[static_cast<std::size_t>(rank)], rank / per_host * per_host,
                 "the machine of rank " + std::to_string(rank));
  }
  return machines;
}

/// A rank that does not come is named to those who do, when their patience ends; and, should it come later, to itself.
/// All it takes to finalise MPI after all is that it does come.
void check_missing(Report& report, int rank, int size) {
  if (size < 3) return;
  const auto patience = kolo::base::from_seconds(1);
  const std::string late = std::to_string(size - 1);
  const auto sentence = [&](const std::string& step) {
    return "rank " + late + " did not reach the step \"" + step +
           "\" of the start within 1 s (KOLO_CONNECT_TIMEOUT_S): a process has not joined yet, is stopped, or has "
           "ended. MPI operations stay open, so MPI cannot be finalised.";
  };
  const auto last_comes_late = [&](const std::string& step, const std::function<void()>& call) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) MPI_Barrier(MPI_COMM_WORLD);
    report.throws(ErrorCode::transport, sentence(step), call);
    if (rank != size - 1) MPI_Barrier(MPI_COMM_WORLD);
  };
  {
    const auto bootstrap = mpi::borrow(MPI_COMM_WORLD, kPatience);
    last_comes_late("test", [&] { bootstrap->exchange("test", "", patience); });
  }
  MPI_Comm theirs = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &theirs);
  last_comes_late("roll call", [&] { mpi::borrow(theirs, patience); });
}

void check_borrowing(Report& report, int rank) {
  report.throws(ErrorCode::invalid_argument, "MPI_COMM_NULL", [] { mpi::borrow(MPI_COMM_NULL, kPatience); });
  // Every other rank, in reverse order; the original is freed while the duplicate lives.
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  int theirs = 0;
  MPI_Comm_rank(half, &theirs);
  const auto bootstrap = mpi::borrow(half, kPatience);
  MPI_Comm_free(&half);
  report.equal(bootstrap->rank(), theirs, "the rank in the borrowed communicator");
  const std::vector<std::string> all = bootstrap->exchange("test", std::to_string(rank), kPatience);
  int expected = (bootstrap->size() - 1) * 2 + rank % 2;
  for (const std::string& one : all) {
    report.equal(one, std::to_string(expected), "who is there in a borrowed communicator");
    expected -= 2;
  }
  const core::Topology topology = core::make_topology(
      bootstrap->rank(), core::number_machines(bootstrap->exchange("test", kolo::base::machine_name(), kPatience)), 0);
  const auto link = bootstrap->join_node(topology, 4096, "key", kPatience);
  report.check(link->bytes() == 4096 && link->memory()[4095] == std::byte{0}, "the node's memory");
}

/// What a bootstrap gathers, in communicators of other sizes than the job's.
void check_smaller_worlds(Report& report) {
  kolo::testing::for_worlds_within_job([&](MPI_Comm world) {
    const auto bootstrap = mpi::borrow(world, kPatience);
    check_exchange(report, *bootstrap);
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
    mpi::open(kolo::base::process_environment());
    report.throws(ErrorCode::transport, "MPI is not initialised", [] { mpi::borrow(MPI_COMM_WORLD, kPatience); });

    mpi::Lifetime program_with_its_own;  // begins once MPI is there, and so never ends it
    mpi::Lifetime lifetime;
    kolo::testing::begin(lifetime, kPatience);
    kolo::testing::begin(lifetime, kPatience);
    kolo::testing::begin(program_with_its_own, kPatience);
    program_with_its_own.end(kPatience, 0);
    report.check(!mpi::is_finalized(), "an MPI that others initialised is not finalised");
    {
      const auto bootstrap = mpi::borrow(MPI_COMM_WORLD, kPatience);
      report.set_place(bootstrap->rank(), bootstrap->size());
      report.equal(bootstrap->describe().substr(0, 5), std::string("MPI ("), "the beginning of the description");
      report.check(bootstrap->describe().find(", thread level MULTIPLE)") != std::string::npos, bootstrap->describe());
      const auto communicator = mpi::Communicator::duplicate(MPI_COMM_WORLD, kPatience);
      check_smaller_worlds(report);
      check_machines(report, *bootstrap, hosts);
      check_borrowing(report, bootstrap->rank());
      check_errors_are_values(report, communicator);
    }
    // Many worlds one after another: communicators are a limited good. (Each costs many round trips between hosts.)
    for (int i = 0; i < (hosts > 1 ? 10 : 40); ++i)
      mpi::borrow(MPI_COMM_WORLD, kPatience)->exchange("test", "", kPatience);

    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check_missing(report, rank, size);

    lifetime.end(kPatience, 0);
    report.check(mpi::is_finalized(), "MPI that we initialised is finalised at the end");
    lifetime.end(kPatience, 0);
    report.throws(ErrorCode::transport, "MPI has been finalised", [&] { kolo::testing::begin(lifetime, kPatience); });
    report.throws(ErrorCode::transport, "MPI has been finalised", [] { mpi::borrow(MPI_COMM_WORLD, kPatience); });
  });
}
