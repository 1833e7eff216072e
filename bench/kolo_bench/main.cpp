// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <iostream>
#include <memory>
#include <optional>

#include "flags.hpp"
#include "job.hpp"
#include "modes.hpp"
#include "mpi_check.hpp"
#include "report.hpp"

namespace {

using namespace kolo_bench;

void check_against_job(const Flags& flags, const Job& job) {
  if (!flags.baselines.empty() && !mpi_is_up()) throw BadFlags("--baseline needs MPI: start kolo-bench with mpirun");
  if (flags.root < 0 || flags.root >= job.size()) {
    throw BadFlags("--root is a rank: 0 to " + std::to_string(job.size() - 1));
  }
}

int measure_all(Job& job, const Flags& flags) {
  check_against_job(flags, job);
  Report report(flags, job);
  if (flags.mode == Mode::step) {
    run_step(job, flags, report);
  } else if (flags.mode == Mode::latency) {
    run_latency(job, flags, report);
  } else {
    run_collective(job, flags, report);
  }
  report.finish();
  return report.wrong() == 0 ? 0 : 1;
}

int refuse(const BadFlags& error) {
  std::cerr << "kolo-bench: " << error.what() << " (see --help)\n";
  return 2;
}

int run(const Flags& flags) {
  const std::unique_ptr<Job> job = flags.peer_only ? make_mpi_job() : make_kolo_job();
  try {
    return measure_all(*job, flags);
  } catch (const BadFlags& error) {  // on all ranks alike: they leave in order
    return job->rank() == 0 ? refuse(error) : 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<Flags> flags = parse_flags(argc, argv);
    return flags ? run(*flags) : 0;
  } catch (const BadFlags& error) {
    return refuse(error);
  } catch (const std::exception& error) {
    std::cerr << "kolo-bench: " << error.what() << "\n";
    return 1;
  }
}
