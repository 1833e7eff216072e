// SPDX-License-Identifier: Apache-2.0
//
// Runs the checks of tests/mpi/checks between processes that mpirun started.
//
// usage: mpi_checks NAME        one check in the world that the launcher and the environment describe
//        mpi_checks --together  all checks in worlds of several sizes, cut into virtual nodes of several sizes: the job
//                               is split into as many worlds as it holds, which work side by side
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include <kolo/info.hpp>
#include <kolo/kolo.hpp>
#include <kolo/mpi.hpp>

#include "tests/mpi/checks/check.hpp"
#include "tests/mpi/job.hpp"

namespace {

using kolo::testing::Check;
using kolo::testing::Report;

bool contains(const std::vector<int>& values, int value) {
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

/// Runs the check in the world of the calling thread; the number of failures.
int run(const Check& check, const std::string& where) {
  Report report(check.name + where);
  report.set_place(kolo::rank(), kolo::size());
  return kolo::testing::run(report, [&] { check.run(report); });
}

int run_alone(const std::string& name) {
  const auto& all = kolo::testing::checks();
  const auto check = std::find_if(all.begin(), all.end(), [&](const Check& each) { return each.name == name; });
  if (check == all.end()) throw std::runtime_error("there is no check '" + name + "'");
  int failures = 0;
  for (const kolo::Options& options : check->options) {  // each in another life of the same process, and then one more
    const kolo::Session session(options);
    failures += run(*check, "");
  }
  kolo::init();
  if (kolo::allreduce(1, kolo::ReduceOp::sum) != kolo::size()) ++failures;
  kolo::shutdown();
  return failures;
}

/// Waits for all ranks, and leaves the CPUs to those that still work: MPI_Barrier would spin.
void meet() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// All checks that want a world of this size and these virtual nodes.
int run_in(MPI_Comm world, int per_node) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &size);
  int failures = 0;
  for (const Check& check : kolo::testing::checks()) {
    if (!contains(check.ranks, size) || !contains(check.per_node, per_node)) continue;
    const std::string where = ", " + (per_node == 0 ? std::string("one node") : "nodes of " + std::to_string(per_node));
    for (kolo::Options options : check.options) {
      // Said beforehand: the last such line of a world that hangs tells where.
      if (rank == 0) std::printf("RUN %s%s, %d ranks\n", check.name.c_str(), where.c_str(), size);
      options.with_setting("KOLO_RANKS_PER_NODE", std::to_string(per_node));
      kolo::Context context(kolo::mpi::bootstrap(world), options);
      const kolo::ContextGuard guard(context);
      failures += run(check, where);
    }
  }
  return failures;
}

/// Worlds of `size` ranks, the last one of what is left, with another `KOLO_RANKS_PER_NODE` each; again until every
/// value has had its turn.
int run_in_worlds_of(int size) {
  constexpr int kPerNode = 4;  // whole machines, and nodes of 1, 2 and 3 ranks
  constexpr int kLarge = 8;    // such worlds take longest: whole machines, and nodes of 3 ranks
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int worlds = (ranks + size - 1) / size;
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank / size, rank, &world);
  int failures = 0;
  for (int first = 0; first < kPerNode; first += size == kLarge ? 3 : worlds) {
    failures += run_in(world, (first + rank / size) % kPerNode);
    meet();
  }
  MPI_Comm_free(&world);
  return failures;
}

int run_together(int* argc, char*** argv) {
  int provided = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) throw std::runtime_error("MPI does not give MPI_THREAD_MULTIPLE");
  int failures = 0;
  for (const int size : {8, 4, 3, 2, 1}) failures += run_in_worlds_of(size);
  MPI_Finalize();
  return failures;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const std::string what = argc == 2 ? argv[1] : "";
  try {
    return (what == "--together" ? run_together(&argc, &argv) : run_alone(what)) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("FAIL %s: %s\n", what.c_str(), error.what());
    return 1;
  }
}
