// SPDX-License-Identifier: Apache-2.0
//
// MPI initialised by the program with the thread level that the first argument names, two contexts from different
// communicators, and two threads that use both. With SINGLE and FUNNELED the second thread may only submit and poll,
// and a wait there is refused at the call. The second argument is the number of steps, the third the seed; a fourth is
// how many seconds the longest operation may take, for long runs on a machine that has nothing else to do.
//
// The program takes the place of those functions of MPI that move data, and counts the threads that are inside: below
// MULTIPLE there must never be two, and below SERIALIZED only the main thread.
#include <mpi.h>

#include <atomic>
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

std::atomic<int> inside{0};
std::atomic<int> most_inside{0};
std::atomic<bool> beside_main{false};
const std::thread::id main_thread = std::this_thread::get_id();

/// A thread inside MPI.
class Inside {
 public:
  Inside() {
    const int now = inside.fetch_add(1) + 1;
    int most = most_inside.load();
    while (now > most && !most_inside.compare_exchange_weak(most, now)) {
    }
    if (std::this_thread::get_id() != main_thread) beside_main.store(true);
  }
  ~Inside() { inside.fetch_sub(1); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

/// What is wrong with the threads that were inside MPI; empty: nothing.
std::string wrong_threads(int level, bool between_nodes) {
  if (between_nodes && most_inside.load() == 0) return "no call of MPI was counted";
  if (level < MPI_THREAD_MULTIPLE && most_inside.load() > 1) {
    return std::to_string(most_inside.load()) + " threads were inside MPI at once";
  }
  if (level < MPI_THREAD_SERIALIZED && beside_main.load()) return "another thread than the main one was inside MPI";
  return {};
}

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

extern "C" {

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm among, MPI_Request* request) {
  const Inside call;
  return PMPI_Isend(data, count, type, to, tag, among, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm among, MPI_Request* request) {
  const Inside call;
  return PMPI_Irecv(data, count, type, from, tag, among, request);
}

int MPI_Testsome(int count, MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]) {
  const Inside call;
  return PMPI_Testsome(count, requests, done, indices, statuses);
}

int MPI_Iprobe(int from, int tag, MPI_Comm among, int* flag, MPI_Status* status) {
  const Inside call;
  return PMPI_Iprobe(from, tag, among, flag, status);
}

}  // extern "C"

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
  bool between_nodes = false;
  {
    kolo::Context first(kolo::mpi::bootstrap(MPI_COMM_WORLD));
    kolo::Context second(kolo::mpi::bootstrap(reversed));
    MPI_Comm_free(&reversed);
    const bool any_thread = provided == MPI_THREAD_SERIALIZED || provided == MPI_THREAD_MULTIPLE;
    const auto at_first = [&](Findings& of_other) {
      if (!any_thread && first.cross_size() > 1) check_refusals(of_other, second, level);
    };
    between_nodes = first.cross_size() > 1;
    findings = kolo::testing::run_two_threads(first, second, {any_thread, steps, seed}, at_first);
  }
  if (const std::string wrong = wrong_threads(provided, between_nodes); !wrong.empty()) findings.first_wrong = wrong;
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
