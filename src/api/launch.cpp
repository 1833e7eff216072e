// SPDX-License-Identifier: Apache-2.0
#include "api/launch.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <kolo/error.hpp>

#include "api/assemble.hpp"
#include "base/settings.hpp"
#include "bootstrap/thread_world.hpp"
#include "launch/process_bootstrap.hpp"
#include "launch/start.hpp"
#include "mpi/library/opening.hpp"

namespace kolo::api {

std::unique_ptr<detail::BootstrapHolder> solo_bootstrap() {
  return std::make_unique<detail::BootstrapHolder>(bootstrap::ThreadWorld(1).bootstrap(0));
}

namespace {

/// Reads only this variable. The start reports errors in others, to all ranks.
bool wants_to_be_alone(const base::Lookup& environment) {
  constexpr std::string_view kAlone = "KOLO_ALONE";
  try {
    return base::load_settings(
               [&](const char* name) { return name == kAlone ? environment(name) : std::optional<std::string>(); })
        .alone;
  } catch (const Error&) {
    return false;
  }
}

constexpr const char* kRemedy =
    "start them by the mpirun of this MPI, or by srun with the --mpi that this MPI was built "
    "for, or by srun --mpi=none, or give them KOLO_STORE, KOLO_RANK and KOLO_SIZE";

/// Looks up the program's options first, and then the process's environment.
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
  situation.alone = wants_to_be_alone(situation.environment);
  situation.mpi = mpi::started_by_launcher(situation.environment);
  return situation;
}

/// The launchers' variables for the number of processes. Those of mpirun, torchrun and horovodrun go before Slurm's,
/// because these may run under Slurm. Slurm's variable is that of a step: a batch script has the job's, although it is
/// one process.
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

namespace {

/// Throws if one launcher's variables say "one rank", but another launcher has started several processes: each would be
/// alone.
void expect_one_process(const base::Lookup& environment, const std::string& size_name) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    const std::optional<std::string> text = environment(variable);
    int size = 0;
    if (text) std::from_chars(text->data(), text->data() + text->size(), size);
    if (size <= 1) continue;
    throw Error(ErrorCode::transport, size_name + " is 1, but " + variable + " says that a launcher has started " +
                                          *text +
                                          " processes, and each of them would be alone: start them by one "
                                          "launcher, or set KOLO_ALONE=1 if each is to run alone");
  }
}

}  // namespace

void Launcher::note(State state) noexcept {
  if (state == State::joined || state == State::broken) mpi_.leave_open(state == State::broken);
  mpi_.leave_together(state == State::left_together);
}

void Launcher::end(base::Duration patience, int status) noexcept {
  if (origin_ && origin_->is_here()) mpi_.end(patience, status);
}

std::vector<std::string> explain_start(const Options& options) {
  const launch::Situation situation = situation_of(options);
  std::vector<std::string> lines = launch::explain_start(situation);
  if (lines.back() != launch::kAloneIsTaken) return lines;
  try {
    expect_all_processes(situation.environment, 1);
  } catch (const Error& error) {
    lines.back() = "a world of one: an error: " + error.status().message();
  }
  return lines;
}

std::unique_ptr<detail::BootstrapHolder> meet(const launch::Start& start, const Options& options) {
  return std::make_unique<detail::BootstrapHolder>(launch::meet(start, environment_of(options)));
}

std::unique_ptr<detail::BootstrapHolder> meet_without_mpi(const Options& options) {
  const launch::Situation situation = situation_of(options);
  const launch::Start start = launch::choose_start(situation);
  if (start.kind == launch::StartKind::mpi) return nullptr;
  if (start.kind == launch::StartKind::alone) {
    if (!situation.alone) expect_all_processes(situation.environment, 1);
    return solo_bootstrap();
  }
  if (start.place.size == 1 && !options.store) expect_one_process(situation.environment, start.place.size_name);
  return meet(start, options);
}

void Launcher::begin(const Options& options) {
  if (origin_ && !origin_->is_here()) {
    throw Error(ErrorCode::transport,
                "MPI was initialised before this process was forked, and does not work in a fork: "
                "start the processes by mpirun, or let them meet without MPI (KOLO_STORE)");
  }
  origin_.emplace();
  const base::Lookup environment = environment_of(options);
  abi_ = &mpi::open(environment);
  mpi_.begin(*abi_, connect_patience(options), environment);
}

std::unique_ptr<detail::BootstrapHolder> Launcher::bootstrap(const Options& options) {
  auto bootstrap = abi_->of_world(connect_patience(options));
  expect_all_processes(environment_of(options), bootstrap->size());
  return std::make_unique<detail::BootstrapHolder>(std::move(bootstrap));
}

}  // namespace kolo::api
