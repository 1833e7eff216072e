// SPDX-License-Identifier: Apache-2.0
//
// Which MPI this process has. Kolo links none: it takes the one that the program has loaded, or opens one when a
// launcher of MPI has started the process. The first that applies:
//
//   1  KOLO_MPI                     that file; an error if the process has loaded another MPI
//   2  an MPI that is loaded        one that is initialised first, then one of the launcher's kind. A tool or a
//                                   trampoline, which hands calls on to an MPI, does not count; an MPI of an ABI that
//                                   Kolo does not know is an error
//   3  the launcher's variables     Open MPI's mpirun: libmpi.so.40; MPICH's or Intel's mpiexec: libmpi.so.12,
//                                   libmpich.so.12; then libmpi_abi.so.1. Slurm and other launchers with a PMI start
//                                   both kinds: if one is installed, that one, else an error that asks for KOLO_MPI
//
// A process has one MPI: what has been opened stays. These functions are thread-safe. As a library is the process's,
// they keep it for the process, and so does nccl_library.cpp; nothing else below src/api does that.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mpi/library/abi.hpp"

namespace kolo::mpi {

/// Looks a variable up in an environment (base::Lookup).
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// Whether this process was started by a launcher that tells MPI its job: mpirun, mpiexec, or srun with PMI or PMIx. A
/// plain srun (--mpi=none) does not: MPI would see one rank. Without such a launcher Kolo opens no MPI.
[[nodiscard]] bool started_by_launcher(const Lookup& lookup);

/// The process's MPI, which is opened the first time. Throws Error: transport if there is none; invalid_setting if
/// KOLO_MPI is wrong, or needed.
const Abi& open(const Lookup& environment);
/// The same for a communicator of the program's: of several MPIs that are loaded the one of its ABI. Also throws Error
/// (invalid_argument) if the process's MPI is of another ABI.
const Abi& open_for(const Abi& communicators, const Lookup& environment);
/// "Open MPI v4.1.4 (/usr/lib/x86_64-linux-gnu/libmpi.so.40)"; empty: none has been opened.
[[nodiscard]] std::string describe_opened();

/// A library that is loaded.
struct Loaded {
  void* handle = nullptr;  ///< of dlopen
  std::string file;
  const Abi* abi = nullptr;  ///< null: an MPI, but of no ABI that Kolo knows
  bool is_initialized = false;
};

/// How the search looks at the process. Tests have their own.
struct Linker {
  std::function<std::vector<Loaded>()> loaded;  ///< the MPIs of the process, in the order in which they were loaded
  /// Opens a file, by path or by the name that the loader knows. A null handle: it cannot be opened, and `file` is the
  /// loader's reason.
  std::function<Loaded(const char* file)> open;
};

/// The choice that `open` makes. `communicators`: null, or the ABI of a communicator of the program's.
[[nodiscard]] Loaded choose(const Linker& linker, const Lookup& environment, const Abi* communicators);
/// The process's own.
[[nodiscard]] Linker process_linker();
/// Finds a symbol of the library as a program that links it does: data of an MPI may lie in the program.
[[nodiscard]] void* find_symbol(void* handle, const char* name);

}  // namespace kolo::mpi
