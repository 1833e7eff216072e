// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>

namespace kolo_bench {

/// Throws std::runtime_error with MPI's own words.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

/// Whether MPI may be called.
inline bool mpi_is_up() {
  int initialized = 0;
  int finalized = 0;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
  return initialized != 0 && finalized == 0;
}

}  // namespace kolo_bench
