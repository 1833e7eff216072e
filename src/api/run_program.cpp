// SPDX-License-Identifier: Apache-2.0
//
// A program as processes of this machine: what kolo-run does.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/elastic.hpp>
#include <kolo/error.hpp>
#include <kolo/store.hpp>

#include "api/rank_failure.hpp"
#include "base/clock.hpp"
#include "base/cpu.hpp"
#include "base/proof.hpp"
#include "base/settings.hpp"
#include "base/system_error.hpp"
#include "launch/elastic_job.hpp"
#include "launch/processes.hpp"
#include "launch/supervision.hpp"
#include "membership/keeper.hpp"

namespace kolo {
namespace {

constexpr const char* kThisMachine = "127.0.0.1";

/// Becomes the program. Returns the exit status where that fails.
int execute(std::vector<std::string> command, std::vector<std::string> variables) {
  std::vector<char*> arguments;
  std::vector<char*> environment;
  arguments.reserve(command.size() + 1);
  environment.reserve(variables.size() + 1);
  for (std::string& word : command) arguments.push_back(word.data());
  for (std::string& variable : variables) environment.push_back(variable.data());
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  ::execvpe(arguments.front(), arguments.data(), environment.data());
  const int error = errno;
  std::fprintf(stderr, "kolo-run: cannot run %s: %s\n", command.front().c_str(), base::errno_text(error).c_str());
  return error == ENOENT ? 127 : 126;  // the exit statuses of a shell
}

/// The exit status of a job that went well, but for its output.
int complain_of_output(int error) {
  if (error == 0) return 0;
  std::fprintf(stderr, "kolo-run: the ranks' output could not be written: %s\n", base::errno_text(error).c_str());
  return EXIT_FAILURE;
}

/// Of a whole job, and says why it is not 0.
int status_of(const launch::Outcome& outcome, int ranks) {
  if (outcome.signal) return 128 + *outcome.signal;
  for (const launch::ProcessEnd& ending : outcome.endings) {
    if (ending.status == 0) continue;
    std::fprintf(stderr, "kolo-run: rank %d of %d %s\n", ending.rank, ranks,
                 launch::describe_status(ending.status).c_str());
    return launch::exit_status_of(ending.status);
  }
  return complain_of_output(outcome.output_error);
}

void check_job(int processes, const std::vector<std::string>& command) {
  api::require_ranks(processes, "run_program");
  if (command.empty()) throw Error(ErrorCode::invalid_argument, "run_program was given no program");
  launch::open_standard_descriptors();
}

using Variables = std::map<std::string, std::string>;

/// Every process of such a job gets these variables.
Variables variables_for(int processes) {
  Variables variables{{"KOLO_JOB_KEY", base::hex_of(base::random_word())}};
  // Each rank would start a thread for every CPU.
  if (base::process_environment()("OMP_NUM_THREADS").value_or("").empty()) {
    variables.emplace("OMP_NUM_THREADS", std::to_string(std::max(1, base::usable_cpus() / processes)));
  }
  return variables;
}

int supervise(const std::function<int(int lifeline)>& run) {
  const int status = launch::run_supervised(run);
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGPIPE) {  // nobody reads the output any more
    std::fprintf(stderr, "kolo-run: the process that keeps the ranks %s\n", launch::describe_status(status).c_str());
  }
  return launch::exit_status_of(status);
}

membership::JobLimits limits_of(int processes, const elastic::JobOptions& options) {
  membership::JobLimits limits;
  limits.first = options.first == 0 ? processes : options.first;
  limits.least = options.least == 0 ? processes : options.least;
  limits.most = options.most == 0 ? processes : options.most;
  limits.respawns = options.respawns;
  limits.wait = std::chrono::duration_cast<base::Duration>(options.wait);
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw Error(ErrorCode::invalid_argument, what);
  };
  require(limits.least >= 1 && limits.least <= processes,
          "a job of " + std::to_string(processes) + " processes cannot need at least " + std::to_string(limits.least) +
              " ranks (--min-np): give a number from 1 to " + std::to_string(processes));
  require(limits.most >= processes, "a job that is started with " + std::to_string(processes) +
                                        " processes cannot have at most " + std::to_string(limits.most) +
                                        " ranks (--max-np): give that number, or more");
  require(limits.first >= limits.least && limits.first <= processes,
          "a job of " + std::to_string(processes) + " processes that needs at least " + std::to_string(limits.least) +
              " ranks cannot begin with " + std::to_string(limits.first) + " (--start-np)");
  require(limits.respawns >= 0 && limits.wait >= base::Duration::zero(),
          "the number of restarts and the time to wait cannot be negative (--restarts, --wait)");
  const base::Settings settings = base::load_settings(base::process_environment());
  limits.unanswered = base::from_seconds(settings.latch_timeout_s);
  limits.patience = base::from_seconds(settings.timeout_s);
  return limits;
}

}  // namespace

int run_program(int ranks, const std::vector<std::string>& command) {
  check_job(ranks, command);
  const MeetingPlace place = store::tcp(kThisMachine, 0);
  Variables variables = variables_for(ranks);
  variables.emplace("KOLO_STORE", place.describe());
  variables.emplace("KOLO_SIZE", std::to_string(ranks));
  variables.emplace("KOLO_KEEPER", "");  // of a job in which this one is started
  const auto run_rank = [&](int rank, int /*report*/) {
    Variables its = variables;
    its.emplace("KOLO_RANK", std::to_string(rank));
    return execute(command, base::environment_with(its));
  };
  return supervise([&](int lifeline) {
    return status_of(launch::run_processes(ranks, run_rank, launch::Descendants::ended, lifeline), ranks);
  });
}

int elastic::run_program(int processes, const std::vector<std::string>& command, const JobOptions& options) {
  check_job(processes, command);
  const membership::JobLimits limits = limits_of(processes, options);
  const Variables variables = variables_for(processes);
  const auto run_process = [&](int /*slot*/, const std::string& keeper) {
    Variables its = variables;
    its.emplace("KOLO_KEEPER", keeper);
    return execute(command, base::environment_with(its));
  };
  return supervise([&](int lifeline) {
    const launch::ElasticOutcome outcome = launch::run_elastic(processes, limits, run_process, lifeline);
    if (outcome.signal) return 128 + *outcome.signal;
    return outcome.status == 0 ? complain_of_output(outcome.output_error) : outcome.status;
  });
}

}  // namespace kolo
