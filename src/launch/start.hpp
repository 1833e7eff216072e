// SPDX-License-Identifier: Apache-2.0
//
// How this process starts: which of the ways that a program, a person and launchers have prepared is taken. One table,
// in this order, the first that applies:
//
//   1  Options::with_store                         the program itself
//   2  KOLO_ALONE                                  a world of one
//   3  KOLO_STORE, KOLO_RANK, KOLO_SIZE            a person, a job's script, kolo-run
//   4  TORCHELASTIC_RUN_ID and PyTorch's variables torchrun
//   5  mpirun's variables, or those of a PMI       MPI, where it is in the build (mpirun; srun --mpi=pmix, ...)
//   6  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT  PyTorch's variables, by whatever sets them
//   7  SLURM_PROCID, SLURM_STEP_NUM_TASKS, ...     srun, for a step of several tasks
//   8  nothing                                     a world of one
//
// Why in this order: what is said to Kolo alone goes before what is said to all; what was started last, which is inside
// the other, goes first. torchrun may run under mpirun or srun, and says more ranks than they; MPI may run under srun.
// PyTorch's variables without torchrun are often made from mpirun's, by a script: then MPI is there and better. A step
// of Slurm's is last: everything else may run in one. Of Slurm's variables only those of a step of several tasks count:
// a batch script has the job's, and is one process.
//
// Where torchrun's and PyTorch's ranks meet. MASTER_PORT belongs to torchrun's agent, or to the program's own process
// group, whose protocol is PyTorch's and changes with it. So Kolo keeps away from it: rank 0 listens on MASTER_ADDR at
// the first free one of kPorts ports that are computed from MASTER_PORT and the run, and the others try all of them.
// That it is the right job which listens there is shown by the key (directions.hpp): it is made from KOLO_JOB_KEY and
// these two. A step of Slurm's, which has no port at all, meets likewise on its first host.
//
// Why not of the restart, too (TORCHELASTIC_RESTART_COUNT)? It is no number of the job: each agent counts the restarts
// that it has begun itself, and one that restarts its workers because another node has left or come counts none. After
// the first such restart on two nodes the ranks would look for one another at different ports, for good. It is not
// needed either: an agent ends its old workers before it meets the others again, so that no old rank 0 listens any
// more; one that does, on a node that was cut off, is refused as a rank that came twice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <kolo/options.hpp>

#include "base/settings.hpp"
#include "launch/exchange.hpp"
#include "launch/meeting_place.hpp"

namespace kolo::launch {

/// What decides.
struct Situation {
  base::Lookup environment;
  const Options* options = nullptr;
  bool alone = false;  ///< KOLO_ALONE
  bool mpi = false;    ///< MPI is in the build, and its launcher has started this process
};

enum class Way : std::uint8_t { alone, meeting, mpi };

struct Start {
  Way way = Way::alone;
  std::string reason;  ///< "KOLO_STORE is set"
  // Of a meeting:
  Place place;
  std::optional<MeetingPlace> where;
  std::string job;  ///< see JobKey
};

/// Throws Error (invalid_setting, transport) when what the first way needs is not all there, or wrong; the sentence
/// names the variable and says what to do.
[[nodiscard]] Start choose_start(const Situation& situation);

/// The last line of `explain_start` where nothing else is there.
constexpr const char* kAloneIsTaken = "a world of one: taken";

/// One line for each way, in the order of the table: whether it is there, and whether it is taken.
[[nodiscard]] std::vector<std::string> explain_start(const Situation& situation);

/// The ports at which a job that is called so meets: outside the range from which systems give ports to those who
/// connect.
[[nodiscard]] std::vector<std::uint16_t> ports_of(const std::string& job);

}  // namespace kolo::launch
