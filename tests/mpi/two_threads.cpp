// SPDX-License-Identifier: Apache-2.0
//
// MPI initialised by the program with the thread level that the first argument names, two contexts from different
// communicators, and two threads that use both. With SINGLE and FUNNELED the second thread may only submit and poll,
// and a wait there is refused at the call. The second argument is the number of steps, the third the seed; a fourth is
// how many seconds the longest operation may take, for long runs on a machine that has nothing else to do.
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/mpi.hpp>

#include "tests/worlds/two_threads.hpp"

namespace {

using kolo::testing::Findings;

int level_of(const char* name) {
  if (std::strcmp(name, "SINGLE") == 0) return MPI_THREAD_SINGLE;
  if (std::strcmp(name, "FUNNELED") == 0) return MPI_THREAD_FUNNELED;
  if (std::strcmp(name, "SERIALIZED") == 0) return MPI_THREAD_SERIALIZED;
  return MPI_THREAD_MULTIPLE;
}

template <class Call>
void check_refused(Findings& findings, const std::string& level, const char* what, Call call) {
  const std::string wanted =
      "kolo: this thread may not wait for a collective between nodes: MPI was initialised with thread level " + level +
      ", so only the thread that initialised it may; poll with done() here while that thread calls Kolo, or ask "
      "MPI_Init_thread for MPI_THREAD_MULTIPLE";
  try {
    call();
    findings.first_wrong = std::string(what) + " is not refused";
  } catch (const kolo::Error& error) {
    if (error.code() != kolo::ErrorCode::unsupported || error.what() != wanted) findings.first_wrong = error.what();
  }
}

/// On a thread that may not call MPI. What does not need it may be waited for.
void check_refusals(Findings& findings, kolo::Context& context, const std::string& level) {
  std::vector<float> x(100, 1.0F);
  check_refused(findings, level, "a call by name", [&] { kolo::allreduce(context, "refused", kolo::view(x)); });
  check_refused(findings, level, "an unnamed call", [&] { kolo::allreduce(context, kolo::view(x)); });
  kolo::Handle handle = kolo::allreduce_async(context, "not waited for", kolo::view(x));
  check_refused(findings, level, "wait", [&] { handle.wait(); });
  check_refused(findings, level, "wait_for", [&] { static_cast<void>(handle.wait_for(std::chrono::hours(1))); });
  check_refused(findings, level, "wait_all", [&] { kolo::wait_all(kolo::Span<kolo::Handle>(&handle, 1)); });
  while (!handle.done()) std::this_thread::yield();
  handle.wait();  // it is done
  if (x.front() != static_cast<float>(context.size())) findings.first_wrong = "a sum that was not waited for";
  kolo::barrier(context);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string level = argc > 1 ? argv[1] : "MULTIPLE";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 100;
  const auto seed = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 1);
  const double longest_s = argc > 4 ? std::atof(argv[4]) : 0;
  int provided = -1;
  if (MPI_Init_thread(&argc, &argv, level_of(level.c_str()), &provided) != MPI_SUCCESS) return EXIT_FAILURE;
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  Findings findings;
  {
    kolo::Context first(kolo::mpi::bootstrap(MPI_COMM_WORLD));
    kolo::Context second(kolo::mpi::bootstrap(reversed));
    MPI_Comm_free(&reversed);
    const bool any_thread = provided == MPI_THREAD_SERIALIZED || provided == MPI_THREAD_MULTIPLE;
    const auto at_first = [&](Findings& of_other) {
      if (!any_thread && first.cross_size() > 1) check_refusals(of_other, second, level);
    };
    findings = kolo::testing::run_two_threads(first, second, {any_thread, steps, seed}, at_first);
  }
  if (provided != level_of(level.c_str())) findings.first_wrong = "MPI provides another thread level";
  if (longest_s > 0 && findings.longest_s > longest_s) findings.first_wrong = findings.longest_operation + " was slow";
  std::printf("%s two_threads %s rank %d of %d: %lld operations, %lld wrong elements, the longest took %.3f s%s%s\n",
              findings.first_wrong.empty() ? "PASS" : "FAIL", level.c_str(), rank, size,
              static_cast<long long>(findings.operations), static_cast<long long>(findings.wrong), findings.longest_s,
              findings.first_wrong.empty() ? "" : ": ", findings.first_wrong.c_str());
  std::fflush(stdout);
  MPI_Finalize();
  return findings.first_wrong.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}
