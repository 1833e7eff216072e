// SPDX-License-Identifier: Apache-2.0
//
// A program that links no MPI, as most do; started by opening_run.py, which reads what it prints.
//
// usage: mpi_opening [--load FILE] [--open STATUS] [--init]
//   --load FILE    first loads an MPI, as a plug-in or mpi4py does: seen by nobody else
//   --init         and initialises it, as a program does that has MPI already
//   --open STATUS  ends with this status, and leaves the context open
//
// Lines: "MPI TEXT", what Kolo has opened; "SUM n of SIZE"; "TOLD code: sentence" for an Error.
#include <dlfcn.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>

namespace {

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

}  // namespace

int main(int argc, char** argv) {
  void* library = nullptr;
  int status = -1;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--load" && i + 1 < argc) {
      library = ::dlopen(argv[++i], RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) return EXIT_FAILURE;
    } else if (flag == "--init" && library != nullptr) {
      const auto init = reinterpret_cast<int (*)(int*, char***)>(::dlsym(library, "MPI_Init"));
      if (init == nullptr || init(&argc, &argv) != 0) return EXIT_FAILURE;
    } else if (flag == "--open" && i + 1 < argc) {
      status = std::atoi(argv[++i]);
    } else {
      return EXIT_FAILURE;
    }
  }
  try {
    kolo::init();
    say("MPI " + kolo::built_with().mpi);
    int sum = kolo::rank() + 1;
    for (int step = 0; step < 100; ++step) {
      sum = kolo::rank() + 1;
      kolo::allreduce("sum", kolo::view(&sum, 1));
    }
    say("SUM " + std::to_string(sum) + " of " + std::to_string(kolo::size()));
    if (status >= 0) return status;
    kolo::shutdown();
  } catch (const kolo::Error& error) {
    say("TOLD " + std::string(kolo::to_string(error.code())) + ": " + error.status().message());
    return EXIT_FAILURE;
  }
  if (library == nullptr) return EXIT_SUCCESS;
  // An MPI that the program has initialised is the program's to finalise.
  using Ask = int (*)(int*);
  int begun = 0;
  int ended = 0;
  reinterpret_cast<Ask>(::dlsym(library, "MPI_Initialized"))(&begun);
  reinterpret_cast<Ask>(::dlsym(library, "MPI_Finalized"))(&ended);
  say("INITIALIZED " + std::to_string(begun) + " FINALIZED " + std::to_string(ended));
  if (std::string(argv[argc - 1]) == "--init") reinterpret_cast<int (*)()>(::dlsym(library, "MPI_Finalize"))();
  return EXIT_SUCCESS;
}
