// SPDX-License-Identifier: Apache-2.0
#include "mpi/library/lifetime.hpp"

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#include <kolo/error.hpp>

#include "base/settings.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"

namespace kolo::mpi {

namespace {

/// Open MPI's MPI_Finalize begins with a barrier of the world, which has no deadline, unless this variable says
/// otherwise when MPI is initialised. A rank whose program has ended need not wait for one that still computes: no
/// message of Kolo's is under way between them.
constexpr const char* kWithoutBarrier = "OMPI_MCA_async_mpi_finalize";

/// How long ranks that leave together let MPI work for one another.
constexpr std::chrono::seconds kFarewell{1};

std::string seconds_text(base::Duration duration) { return base::spell(base::to_seconds(duration), 4) + " s"; }

/// " (process 2 of 4)"; empty where the environment does not tell.
std::string place_in(const Lookup& environment) {
  static constexpr std::array<std::pair<const char*, const char*>, 3> kVariables = {
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
       {"PMI_RANK", "PMI_SIZE"},
       {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"}}};
  for (const auto& [rank, size] : kVariables) {
    const auto own = environment(rank);
    const auto all = environment(size);
    if (own && all) return " (rank " + *own + " of " + *all + ")";
  }
  return {};
}

}  // namespace

void Lifetime::begin(const Abi& abi, base::Duration patience, const Lookup& environment) {
  if (abi.is_finalized()) {
    throw Error(ErrorCode::transport, "MPI has been finalised and cannot be initialised again: a program that "
                                      "finalises MPI must leave Kolo first, and cannot join a job afterwards");
  }
  if (abi.is_initialized()) return;
  base::Watchdog watchdog(patience,
                          "kolo: MPI_Init has not returned within " + seconds_text(patience) +
                              " (KOLO_CONNECT_TIMEOUT_S) in this process" + place_in(environment) +
                              ": another process of the job has not called kolo::init, is stopped, or has ended. "
                              "This process ends.",
                          EXIT_FAILURE);
  const base::Watchdog::Call call(&watchdog);
  const base::ScopedVariable without_barrier(kWithoutBarrier, "1");
  abi.initialize();
  ours_ = &abi;
}

void Lifetime::end(base::Duration patience, int status) noexcept {
  if (ours_ == nullptr || leave_open_) return;
  const Abi& abi = *std::exchange(ours_, nullptr);
  try {
    if (abi.is_finalized() || (abi.thread_level() != ThreadLevel::multiple && !abi.is_main_thread())) return;
    base::Watchdog watchdog(patience,
                            "kolo: MPI_Finalize has not returned within " + seconds_text(patience) +
                                " (KOLO_TIMEOUT_S): another rank has not left. This process ends.",
                            status);
    const base::Watchdog::Call call(&watchdog);
    if (together_) abi.meet_world(base::now() + kFarewell);
    abi.finalize();
  } catch (const Error&) {
    // The process is ending, and the error cannot be reported.
  }
}

}  // namespace kolo::mpi
