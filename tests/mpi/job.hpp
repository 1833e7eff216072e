// SPDX-License-Identifier: Apache-2.0
//
// The job of mpirun's that a program is part of: its main function, and worlds within it.
#pragma once

#include <mpi.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <string>

#include "tests/mpi/report.hpp"

namespace kolo::testing {

/// Runs a rank's part. An exception ends all ranks: the others would wait for this one.
inline int run(Report& report, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    report.check(false, std::string("an exception: ") + error.what());
    static_cast<void>(report.finish());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  return report.finish();
}

/// Cuts the job into worlds of 8, 4, 3, 2 ranks and one, of those that it is large enough for, and into one of all
/// ranks; worlds of the same size work side by side, and the last has what is left.
inline void for_worlds_within_job(const std::function<void(MPI_Comm world)>& body) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  body(MPI_COMM_WORLD);
  for (const int size : {8, 4, 3, 2, 1}) {
    if (size >= ranks) continue;
    MPI_Comm world = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank / size, rank, &world);
    body(world);
    MPI_Comm_free(&world);
  }
}

}  // namespace kolo::testing
