// SPDX-License-Identifier: Apache-2.0
//
// A program that has MPI already, at the thread level that the first argument names, and uses Kolo through contexts:
// one over all ranks of a communicator, and at the same time one over those of its own parity. MPI stays the program's.
// Communicators are all of the job, three ranks each, and one each.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>
#include <kolo/mpi.hpp>

#include "tests/support/messages.hpp"

namespace {

int failures = 0;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  ++failures;
  std::printf("FAIL %s\n", what.c_str());
}

int level_of(const char* name) {
  if (std::strcmp(name, "SINGLE") == 0) return MPI_THREAD_SINGLE;
  if (std::strcmp(name, "FUNNELED") == 0) return MPI_THREAD_FUNNELED;
  if (std::strcmp(name, "SERIALIZED") == 0) return MPI_THREAD_SERIALIZED;
  return MPI_THREAD_MULTIPLE;
}

void check_sum(kolo::Context& context, const std::string& name, std::size_t count) {
  std::vector<float> x(count, static_cast<float>(context.rank() + 1));
  kolo::allreduce({context, name}, kolo::view(x));
  const auto wanted = static_cast<float>(context.size() * (context.size() + 1) / 2);
  for (const float value : x) {
    if (value != wanted) return expect(false, name + " has " + std::to_string(value));
  }
}

/// Waited for by `done` alone: progress needs no wait.
void check_polling(kolo::Context& context) {
  std::vector<float> x(50'000, 1.0F);
  kolo::Handle handle = kolo::allreduce_async({context, "polled"}, kolo::view(x));
  while (!handle.done()) {
  }
  handle.wait();
  expect(x.front() == static_cast<float>(context.size()), "polled sum");
}

void check_communicator(MPI_Comm communicator) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &size);
  MPI_Comm parity = MPI_COMM_NULL;
  MPI_Comm_split(communicator, rank % 2, -rank, &parity);  // in reverse order
  kolo::Context all(kolo::mpi::bootstrap(communicator));
  kolo::Context half(kolo::mpi::bootstrap(parity));
  MPI_Comm_free(&parity);  // Kolo has its own
  expect(all.rank() == rank && all.size() == size, "place in the world");
  expect(half.size() == (size + (rank % 2 == 0 ? 1 : 0)) / 2, "size of the half");
  expect(!kolo::is_initialized(), "a context is nobody's default");
  for (int step = 0; step < 5; ++step) {
    check_sum(all, "all", 100'000);
    check_sum(half, "half", 33'333);
  }
  for (std::uint64_t round = 0; round < 5; ++round) {
    for (const kolo::Context* context : {&all, &half}) {
      const std::string problem = kolo::testing::exchange_messages(*context, round, 8, 60'000);
      expect(problem.empty(), problem.c_str());
    }
  }
  check_polling(all);
  int mine = failures;
  MPI_Allreduce(&mine, &failures, 1, MPI_INT, MPI_SUM, communicator);  // the program's own messages, meanwhile
}

}  // namespace

int main(int argc, char** argv) {
  const int wanted = level_of(argc > 1 ? argv[1] : "MULTIPLE");
  int provided = 0;
  if (MPI_Init_thread(&argc, &argv, wanted, &provided) != MPI_SUCCESS) return 1;
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  check_communicator(MPI_COMM_WORLD);
  for (const int each : {3, 1}) {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank / each, rank, &part);
    check_communicator(part);
    MPI_Comm_free(&part);
  }
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) ++failures;
  MPI_Finalize();
  std::printf("%s embedding, rank %d of %d, %d failures\n", failures == 0 ? "PASS" : "FAIL", rank, size, failures);
  return failures == 0 ? 0 : 1;
}
