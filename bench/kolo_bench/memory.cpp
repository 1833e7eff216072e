// SPDX-License-Identifier: Apache-2.0
//
// What Kolo costs a rank in memory, beyond the program's tensors and the libraries it loads. The program initialises
// MPI, lets it talk to every rank, and touches all its gradients; what a process holds then is its own. It then joins
// and runs steps, and what has been added is Kolo's:
//
//   held   growth of the proportional set size, in which a page that k processes have mapped counts 1/k in each: the
//          node's segment counts once, however many ranks have looked at it
//   peak   growth of the resident set at its highest (VmHWM, set back before), in which every rank counts all of the
//          segment that it has touched: an upper bound
//
// Pages of files are left out of both: they are the code of libraries, which becomes resident when it first runs.
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <kolo/kolo.hpp>

#include "gradients.hpp"
#include "modes.hpp"
#include "mpi_peer.hpp"

namespace kolo_bench {
namespace {

constexpr int kSteps = 10;

/// A number of KiB from a file of /proc, in bytes.
std::int64_t read_kib(const char* file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream fields(line);
    std::string name;
    std::int64_t kib = 0;
    if (fields >> name >> kib && name == key + ":") return kib * 1024;
  }
  throw std::runtime_error(std::string(file) + " says nothing of " + key);
}

std::int64_t proportional() {
  const char* file = "/proc/self/smaps_rollup";
  return read_kib(file, "Pss_Anon") + read_kib(file, "Pss_Shmem");
}
std::int64_t peak() { return read_kib("/proc/self/status", "VmHWM") - read_kib("/proc/self/status", "RssFile"); }

/// The highest resident set so far is forgotten (proc(5), clear_refs).
void forget_peak() {
  std::ofstream stream("/proc/self/clear_refs");
  stream << "5" << std::flush;
  if (!stream) throw std::runtime_error("cannot write /proc/self/clear_refs, to forget the peak of the memory used");
}

/// Every pair of ranks has talked by small and by large messages, also by some that came before they were asked for:
/// MPI's own memory is there.
void let_mpi_talk(int ranks) {
  mpi_send_unexpected();
  for (const std::int64_t elements : {std::int64_t{1}, std::int64_t{1} << 20}) {
    Buffer buffer(kolo::DType::float32, elements * ranks);
    Buffer part(kolo::DType::float32, elements);
    buffer.poison();
    part.poison();
    mpi_allgather(part, buffer);
    mpi_allreduce_in_place(buffer, kolo::ReduceOp::max, ranks);
    mpi_broadcast(buffer, 0);
    mpi_barrier();
  }
}

struct Use {
  std::int64_t held = 0;
  std::int64_t peak = 0;
  std::int64_t wrong = 0;
};

Use use_of_steps(Job& job, const std::shared_ptr<Gradients>& gradients, Submission submission) {
  gradients->fill();
  (void)gradients->count_wrong();
  forget_peak();
  job.barrier();
  const std::int64_t held_before = proportional();
  const std::int64_t peak_before = peak();
  job.barrier();
  const kolo::Session session;
  const std::function<void()> step = step_by_kolo(gradients, submission);
  for (int i = 0; i < kSteps; ++i) step();
  job.barrier();
  Use use{proportional() - held_before, peak() - peak_before, 0};
  job.barrier();
  gradients->fill();
  step();
  use.wrong = job.sum(gradients->count_wrong());
  return use;
}

}  // namespace

void run_memory(Bench& bench, Report& report) {
  const Flags& flags = bench.flags;
  auto gradients = std::make_shared<Gradients>(flags, bench.job.rank(), bench.job.size());
  let_mpi_talk(bench.job.size());
  const Use use = use_of_steps(bench.job, gradients, flags.submissions.front());
  std::vector<double> highest{static_cast<double>(use.held), static_cast<double>(use.peak)};
  bench.job.max(highest);
  report.count_wrong(use.wrong);
  constexpr double kMi = 1 << 20;
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(),
                "  %s: a rank grows by %.2f MiB (held), %.2f MiB (peak) beyond its %.1f MiB of gradients; #wrong %s",
                flags.model.name.c_str(), highest[0] / kMi, highest[1] / kMi,
                static_cast<double>(gradients->elements()) * sizeof(float) / kMi, format_wrong(use.wrong).c_str());
  report.add_lines(line.data(), {{"collective", "memory"},
                                 {"model", flags.model.name},
                                 {"tensors", gradients->size()},
                                 {"bytes", gradients->elements() * static_cast<std::int64_t>(sizeof(float))},
                                 {"submit", to_string(flags.submissions.front())},
                                 {"held_bytes", static_cast<std::int64_t>(highest[0])},
                                 {"peak_bytes", static_cast<std::int64_t>(highest[1])},
                                 {"wrong", use.wrong}});
}

}  // namespace kolo_bench
