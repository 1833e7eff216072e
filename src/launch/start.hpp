// SPDX-License-Identifier: Apache-2.0
//
// How this process starts: by the first way of this table that applies.
//
//   1  Options::with_store                         the program itself
//   2  KOLO_ALONE                                  a world of one
//   3  KOLO_KEEPER                                 kolo-run, in a job whose ranks may change: refused, see below
//   4  KOLO_STORE, KOLO_RANK, KOLO_SIZE            a person, a job's script, kolo-run
//   5  TORCHELASTIC_RUN_ID and PyTorch's variables torchrun
//   6  mpirun's variables, or those of a PMI       MPI (mpirun; mpiexec; srun --mpi=pmix, ...)
//   7  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT  PyTorch's variables, by whatever sets them
//   8  SLURM_PROCID, SLURM_STEP_NUM_TASKS, ...     srun, for a step of several tasks
//   9  nothing                                     a world of one
//
// Why this order. Variables of Kolo's own go before those of launchers; an inner launcher goes before an outer one.
// torchrun may run under mpirun or srun, and then starts more ranks; MPI may run under srun. PyTorch's variables
// without torchrun are often set by a script from mpirun's; then MPI is there and better. A step of Slurm's is last,
// because all others may run inside one. Only variables of a step with several tasks count: a batch script has the
// job's variables, and is one process.
//
// A process of an elastic job has no rank until the keeper gives it one (next_generation.hpp). A context that it makes
// by itself would be a world of one.
//
// Where torchrun's and PyTorch's ranks meet. MASTER_PORT is in use by torchrun's agent or by the program's process
// group, whose protocol is PyTorch's. Kolo does not use it: rank 0 listens on MASTER_ADDR at the first free one of
// kPorts ports that are computed from MASTER_PORT and the run, and the others try all of them. The key, made from
// KOLO_JOB_KEY, MASTER_PORT and the run, proves that the right job listens there (directions.hpp). The ranks of a Slurm
// step, which has no port, meet in the same way on its first host.
//
// The ports do not depend on TORCHELASTIC_RESTART_COUNT, because agents of one job may have different counts: an agent
// that restarts its workers because another node has left or come does not count it. Ranks would then look for one
// another at different ports. It is not needed either: an agent ends its old workers before it meets the others again.
// An old rank 0 that still listens, on a node that was cut off, is refused as a rank that came twice.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/options.hpp>

#include "base/settings.hpp"
#include "launch/exchange.hpp"
#include "launch/meeting_place.hpp"

namespace kolo::launch {

/// The inputs of the decision.
struct Situation {
  base::Lookup environment;
  const Options* options = nullptr;
  bool alone = false;  ///< KOLO_ALONE
  bool mpi = false;    ///< a launcher of MPI has started this process
};

enum class StartKind : std::uint8_t { alone, meeting, mpi };

struct Start {
  StartKind kind = StartKind::alone;
  std::string reason;  ///< "KOLO_STORE is set"
  // Only for a meeting:
  Place place = {};
  std::optional<MeetingPlace> where = {};
  std::string job = {};  ///< see JobKey
};

/// Throws Error (invalid_setting, transport) if a variable that the way needs is missing or wrong; the sentence names
/// it and says what to do.
[[nodiscard]] Start choose_start(const Situation& situation);

/// The last line of `explain_start` if no other way applies.
constexpr const char* kAloneIsTaken = "a world of one: taken";

/// One line for each way, in the order of the table: whether it applies, and whether it is taken.
[[nodiscard]] std::vector<std::string> explain_start(const Situation& situation);

/// The ports at which the job of this name meets: outside the range from which systems choose ports for outgoing
/// connections.
[[nodiscard]] std::vector<std::uint16_t> ports_of(const std::string& job);

/// The first host of one of Slurm's lists, "gpu[01-03,7],login,rack[1-2]n[0-1]"; empty if it is no such list.
[[nodiscard]] std::optional<std::string> first_host(std::string_view list);

}  // namespace kolo::launch
