// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_lifetime.hpp"

#include <algorithm>
#include <array>

#include <kolo/error.hpp>

#include "mpi/mpi_api.hpp"

namespace kolo::mpi {

bool started_by_launcher(const Lookup& lookup) {
  // Open MPI; MPICH and its kin, and Slurm's pmi2; PMIx (Slurm's too); MVAPICH's own launcher.
  static constexpr std::array kVariables = {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK",
                                            "MV2_COMM_WORLD_SIZE"};
  return std::any_of(kVariables.begin(), kVariables.end(), [&](const char* name) {
    const std::optional<std::string> value = lookup(name);
    return value && !value->empty();
  });
}

std::string describe_library() { return library_version(); }

void Lifetime::begin() {
  if (is_finalized()) {
    throw Error(ErrorCode::transport, "MPI has been finalised and cannot be initialised again: a program that "
                                      "finalises MPI must leave Kolo first, and cannot join a job afterwards");
  }
  if (is_initialized()) return;
  initialize(ThreadLevel::multiple);
  ours_ = true;
}

void Lifetime::end() noexcept {
  if (!ours_ || leave_open_) return;
  ours_ = false;
  try {
    if (is_finalized() || (thread_level() != ThreadLevel::multiple && !is_main_thread())) return;
    finalize();
  } catch (const Error&) {
    // The process is ending, and nobody is left to tell.
  }
}

}  // namespace kolo::mpi
