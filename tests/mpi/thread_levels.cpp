// SPDX-License-Identifier: Apache-2.0
//
// MPI below MPI_THREAD_MULTIPLE, initialised by the program with the level that the first argument names (MIXED: one
// rank alone has less than MULTIPLE). Kolo calls MPI on the thread that makes a context, and not at all once the
// context is made: UCX carries data between nodes, and where it cannot, the start fails on every rank.
//
// The program takes the place of the functions of MPI that Kolo's communication ends in, and of `dlopen`, to hide UCX
// from one rank.
#include <dlfcn.h>
#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/config.hpp>
#include <kolo/info.hpp>
#include <kolo/mpi.hpp>

#include "base/settings.hpp"
#include "tests/mpi/job.hpp"
#include "tests/support/messages.hpp"

namespace {

using kolo::testing::Report;

constexpr int kLesserRank = 2;  // of MIXED
constexpr int kWithoutUcx = 1;  // the rank from which UCX is hidden

std::atomic<int> calls{0};
std::atomic<bool> beside_main{false};
std::atomic<bool> ucx_is_hidden{false};
const std::thread::id main_thread = std::this_thread::get_id();

void note_call() {
  calls.fetch_add(1);
  if (std::this_thread::get_id() != main_thread) beside_main.store(true);
}

}  // namespace

extern "C" {

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm among, MPI_Request* request) {
  note_call();
  return PMPI_Isend(data, count, type, to, tag, among, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm among, MPI_Request* request) {
  note_call();
  return PMPI_Irecv(data, count, type, from, tag, among, request);
}

int MPI_Testsome(int count, MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]) {
  note_call();
  return PMPI_Testsome(count, requests, done, indices, statuses);
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  note_call();
  return PMPI_Test(request, flag, status);
}

int MPI_Iprobe(int from, int tag, MPI_Comm among, int* flag, MPI_Status* status) {
  note_call();
  return PMPI_Iprobe(from, tag, among, flag, status);
}

int MPI_Comm_free(MPI_Comm* communicator) {
  note_call();
  return PMPI_Comm_free(communicator);
}

void* dlopen(const char* file, int mode) noexcept {
  using Open = void* (*)(const char*, int);
  static const auto open = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "dlopen"));
  if (ucx_is_hidden.load() && file != nullptr && std::strcmp(file, "libucp.so.0") == 0) file = "libucp.hidden";
  return open(file, mode);
}

}  // extern "C"

namespace {

/// Returns what MPI provides.
int initialize(const std::string& level, int* argc, char*** argv) {
  int provided = -1;
  if (level == "SINGLE") {
    MPI_Init(argc, argv);
    MPI_Query_thread(&provided);
    return provided;
  }
  int wanted = level == "SERIALIZED" ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED;
  const std::string rank = kolo::base::process_environment()("OMPI_COMM_WORLD_RANK").value_or("");
  if (level == "MIXED" && rank != std::to_string(kLesserRank)) wanted = MPI_THREAD_MULTIPLE;
  MPI_Init_thread(argc, argv, wanted, &provided);
  return provided;
}

kolo::Options options(const std::string& transport, int per_node) {
  return kolo::Options{}
      .with_setting("KOLO_TRANSPORT", transport)
      .with_setting("KOLO_RANKS_PER_NODE", std::to_string(per_node));
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const kolo::Error& error) {
    return std::string(kolo::to_string(error.code())) + ", " + error.what();
  }
  return "no error";
}

void check_sums(Report& report, kolo::Context& context, const std::string& name) {
  const auto wanted = static_cast<float>(context.size() * (context.size() + 1) / 2);
  for (int step = 0; step < 20; ++step) {
    std::vector<float> x(30'000, static_cast<float>(context.rank() + 1));
    kolo::allreduce({context, name}, kolo::view(x));
    for (const float value : x) {
      if (value != wanted) return report.equal(value, wanted, name);
    }
  }
}

/// Two threads that wait, and the end of the context: no call of MPI. (Of the report one thread at a time.)
void check_work(Report& report, const kolo::Options& options, const std::string& between_nodes) {
  {
    kolo::Context context(kolo::mpi::bootstrap(MPI_COMM_WORLD), options);
    const std::string text = kolo::describe(context);
    report.equal(text.find("between nodes:") != std::string::npos, !between_nodes.empty(), "whether there are nodes");
    report.check(text.find(between_nodes) != std::string::npos, text);
    calls.store(0);
    Report others("the other thread's part");
    std::thread other([&] { check_sums(others, context, "other"); });
    check_sums(report, context, "own");
    for (std::uint64_t round = 0; round < 3; ++round) {
      const std::string problem = kolo::testing::exchange_messages(context, round, 8, 60'000);
      report.check(problem.empty(), problem);
    }
    other.join();
    report.check(others.is_good(), "sums of the other thread");
  }
  report.equal(calls.load(), 0, "calls of MPI after the start");
}

/// Who makes a context calls MPI, and with this level only the main thread may.
void check_other_thread(Report& report, const std::string& level) {
  const std::string refused = "unsupported, kolo: MPI was initialised with thread level " + level +
                              ": only the thread that did may join a job; ask MPI_Init_thread for MPI_THREAD_MULTIPLE";
  kolo::Bootstrap made_here = kolo::mpi::bootstrap(MPI_COMM_WORLD);
  std::string in_bootstrap;
  std::string in_context;
  std::thread([&] {
    in_bootstrap = error_of([] { static_cast<void>(kolo::mpi::bootstrap(MPI_COMM_WORLD)); });
    in_context = error_of([&] { const kolo::Context context(std::move(made_here)); });
  }).join();
  report.equal(in_bootstrap, refused, "a bootstrap on another thread");
  report.equal(in_context, refused, "a context on another thread");
}

void check_level(Report& report, const std::string& level) {
  const std::string lesser =
      level == "MIXED" ? std::to_string(kLesserRank) + " has MPI_THREAD_FUNNELED" : "0 has MPI_THREAD_" + level;
  const std::string no_mpi = "MPI carries data between nodes only with MPI_THREAD_MULTIPLE, and rank " + lesser +
                             ": ask MPI_Init_thread for MPI_THREAD_MULTIPLE on every rank, or let UCX carry the data "
                             "(KOLO_TRANSPORT=ucx, with UCX installed on every host; Debian: libucx0)";
  const auto start = [](const std::string& transport) {
    return error_of([&] { const kolo::Context context(kolo::mpi::bootstrap(MPI_COMM_WORLD), options(transport, 2)); });
  };
  report.equal(start("mpi"), "unsupported, kolo: rank 0: " + no_mpi, "the error with KOLO_TRANSPORT=mpi");

#if KOLO_WITH_UCX
  const std::string no_ucx =
      "rank 1: UCX could not be loaded (libucp.hidden: cannot open shared object file: No such file or directory); "
      "install it (Debian: libucx0; pip: libucx-cu12)";
#else
  const std::string no_ucx =
      "rank 0: this build of Kolo has no UCX part: build it where UCX's headers are (Debian: libucx-dev)";
#endif
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ucx_is_hidden.store(rank == kWithoutUcx);
  report.equal(start("auto"), "unsupported, kolo: rank 0: " + no_mpi + "; UCX cannot be used here (" + no_ucx + ")",
               "the error without UCX");
  ucx_is_hidden.store(false);

  check_work(report, options("auto", 0), "");
#if KOLO_WITH_UCX
  check_work(report, options("auto", 2), " (KOLO_TRANSPORT=auto: what comes with the start cannot carry data)");
  check_work(report, options("ucx", 2), " (KOLO_TRANSPORT=ucx)");
#endif
  if (level == "SINGLE" || level == "FUNNELED") check_other_thread(report, level);
  report.check(!beside_main.load(), "another thread than the main one was inside MPI");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string level = argc > 1 ? argv[1] : "SINGLE";
  Report report("thread-levels " + level);
  const int provided = initialize(level, &argc, &argv);
  return kolo::testing::run(report, [&] {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    report.set_place(rank, size);
    report.equal(provided == MPI_THREAD_MULTIPLE, level == "MIXED" && rank != kLesserRank, "whether MPI gives more");
    check_level(report, level);
    int finalized = 0;
    MPI_Finalized(&finalized);
    report.equal(finalized, 0, "whether MPI has been finalised");
    MPI_Finalize();
  });
}
