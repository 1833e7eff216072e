// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "device.hpp"
#include "flags.hpp"
#include "interrupt.hpp"
#include "job.hpp"
#include "modes.hpp"
#include "mpi_check.hpp"
#include "report.hpp"

namespace {

using namespace kolo_bench;

void check_against_job(const Flags& flags, Job& job) {
  if (!flags.baselines.empty() && !flags.cuda && !mpi_is_up())
    throw BadFlags("--baseline needs MPI: start kolo-bench with mpirun");
  if (flags.split != 0 && job.size() % flags.split != 0) {
    throw BadFlags("--split cuts " + std::to_string(job.size()) + " ranks into groups of the same size");
  }
  const int ranks = flags.split == 0 ? job.size() : flags.split;
  if (flags.root < 0 || flags.root >= ranks) throw BadFlags("--root is a rank: 0 to " + std::to_string(ranks - 1));
  const bool lost = job.rank() == 0 && !flags.json.empty() && !std::ofstream(flags.json, std::ios::app);
  if (job.sum(lost ? 1 : 0) > 0) throw BadFlags("--json: '" + flags.json + "' cannot be written");
}

void measure_mode(Bench& bench, Report& report) {
  switch (bench.flags.mode) {
  case Mode::step:
    return run_step(bench, report);
  case Mode::overlap:
    return run_overlap(bench, report);
  case Mode::latency:
    return run_latency(bench, report);
  case Mode::memory:
    return run_memory(bench, report);
  default:
    return run_collective(bench, report);
  }
}

int measure_all(Job& job, const Flags& flags) {
  check_against_job(flags, job);
  Bench bench{job, flags};
  if (flags.cuda) {
    bench.device = open_device(job);
    bench.timer = bench.device->timer();
  }
  Report report(flags, job);
  int code = 0;
  try {
    measure_mode(bench, report);
  } catch (const Interrupted& interrupted) {
    if (job.rank() == 0) std::cerr << "kolo-bench: " << interrupted.what() << "\n";
    code = 130;
  }
  report.finish();
  return code != 0 ? code : report.wrong() == 0 ? 0 : 1;
}

int refuse(const BadFlags& error) {
  std::cerr << "kolo-bench: " << error.what() << " (see --help)\n";
  return 2;
}

int run(const Flags& flags) {
  note_interrupts();
  const bool alone = flags.peer_only || flags.mode == Mode::memory;  // memory begins without Kolo
  const std::unique_ptr<Job> job = alone ? make_mpi_job(flags.mode == Mode::memory) : make_kolo_job();
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
