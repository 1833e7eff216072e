// SPDX-License-Identifier: Apache-2.0
#include "api/launch.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include <kolo/error.hpp>

#include "api/assemble.hpp"
#include "base/settings.hpp"
#include "bootstrap/thread_world.hpp"
#include "launch/start.hpp"
#ifdef KOLO_HAS_MPI
#include "bootstrap/handover.hpp"
#include "mpi/mpi_bootstrap.hpp"
#endif

namespace kolo::api {

std::unique_ptr<detail::BootstrapHolder> solo_bootstrap() {
  return std::make_unique<detail::BootstrapHolder>(bootstrap::ThreadWorld(1).bootstrap(0));
}

namespace {

bool wants_to_be_alone(const base::Lookup& environment, const Options& options) {
  try {
    return base::load_settings(environment, options.settings).alone;
  } catch (const Error&) {
    return false;  // the start will say what is wrong, to all ranks
  }
}

#ifdef KOLO_HAS_MPI
constexpr const char* kRemedy = "start them by mpirun, or by srun with the --mpi that this MPI was built for, or give "
                                "them KOLO_STORE, KOLO_RANK and "
                                "KOLO_SIZE";
#else
constexpr const char* kRemedy =
    "give them KOLO_STORE, KOLO_RANK and KOLO_SIZE, or build Kolo with MPI (KOLO_WITH_MPI=ON)";
#endif

/// The program's options, and then the process's environment.
base::Lookup environment_of(const Options& options) {
  return [process = base::process_environment(), chosen = options.settings](const char* name) {
    const auto own = chosen.find(name);
    return own == chosen.end() ? process(name) : std::optional<std::string>(own->second);
  };
}

launch::Situation situation_of(const Options& options) {
  launch::Situation situation;
  situation.environment = environment_of(options);
  situation.options = &options;
  situation.alone = wants_to_be_alone(base::process_environment(), options);
#ifdef KOLO_HAS_MPI
  situation.mpi = mpi::started_by_launcher(situation.environment);
#endif
  return situation;
}

/// What launchers call the number of processes. Those of mpirun, torchrun and horovodrun go before Slurm's, under which
/// they may run; and Slurm's is that of a step, for a batch script has the job's though it is alone.
constexpr std::array kSizes = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",     "MV2_COMM_WORLD_SIZE",
                               "WORLD_SIZE",           "HOROVOD_SIZE", "SLURM_STEP_NUM_TASKS"};

}  // namespace

void expect_all_processes(const base::Lookup& environment, int found) {
  for (const char* variable : kSizes) {
    const std::optional<std::string> text = environment(variable);
    if (!text || text->empty()) continue;
    int size = 0;
    std::from_chars(text->data(), text->data() + text->size(), size);
    if (size <= 1 || found > 1) return;
    throw Error(ErrorCode::transport, std::string(variable) + " says that a launcher has started " + *text +
                                          " processes, but each of them would be alone: " + kRemedy +
                                          ", or set KOLO_ALONE=1 if each is to run alone");
  }
}

#ifdef KOLO_HAS_MPI

std::shared_ptr<transport::NodeLink> join_node_of_processes(bootstrap::Bootstrap& bootstrap,
                                                            const core::Topology& topology, std::size_t bytes,
                                                            const std::string& job_key, base::Duration patience) {
  return bootstrap::join_node(bootstrap, topology, bytes, job_key, patience);
}

std::shared_ptr<transport::CallerGate> process_gate() {
  static const auto gate = std::make_shared<transport::CallerGate>();
  return gate;
}

void Launcher::note(State state) noexcept {
  if (state == State::joined || state == State::broken) mpi_.leave_open(state == State::broken);
  mpi_.leave_together(state == State::left_together);
}

void Launcher::end(base::Duration patience, int status) noexcept { mpi_.end(patience, status); }

#else

void Launcher::note(State /*state*/) noexcept {}

void Launcher::end(base::Duration /*patience*/, int /*status*/) noexcept {}

#endif

std::vector<std::string> explain_start(const Options& options) { return launch::explain_start(situation_of(options)); }

std::unique_ptr<detail::BootstrapHolder> meet(const launch::Start& start, const Options& options) {
  return std::make_unique<detail::BootstrapHolder>(launch::meet(start, environment_of(options)));
}

std::unique_ptr<detail::BootstrapHolder> Launcher::bootstrap(const Options& options) {
  const launch::Situation situation = situation_of(options);
  const launch::Start start = launch::choose_start(situation);
  if (start.way == launch::Way::meeting) return meet(start, options);
#ifdef KOLO_HAS_MPI
  if (start.way == launch::Way::mpi) {
    const base::Duration patience = connect_patience(options);
    mpi_.begin(patience, situation.environment);
    auto bootstrap = mpi::MpiBootstrap::of_world(join_node_of_processes, patience, process_gate());
    expect_all_processes(situation.environment, bootstrap->size());
    return std::make_unique<detail::BootstrapHolder>(std::move(bootstrap));
  }
#endif
  if (!situation.alone) expect_all_processes(situation.environment, 1);
  return solo_bootstrap();
}

}  // namespace kolo::api
