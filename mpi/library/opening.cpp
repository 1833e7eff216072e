// SPDX-License-Identifier: Apache-2.0
#include "mpi/library/opening.hpp"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

#include <kolo/error.hpp>

#include "base/mutex.hpp"

namespace kolo::mpi {
namespace {

using Names = std::initializer_list<const char*>;

constexpr const char* kSetting = "KOLO_MPI";
constexpr Names kFilesOfOpenMpi = {"libmpi.so.40"};
constexpr Names kFilesOfMpich = {"libmpi.so.12", "libmpich.so.12"};
constexpr Names kFilesOfStandard = {"libmpi_abi.so.1"};

bool has_any(const Lookup& environment, Names variables) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const char* name) { return !environment(name).value_or("").empty(); });
}

/// The ABI of the launcher's own MPI; null: it starts any.
const Abi* abi_of_launcher(const Lookup& environment) {
  if (has_any(environment, {"OMPI_COMM_WORLD_SIZE"})) return &openmpi::abi;
  if (has_any(environment, {"MV2_COMM_WORLD_SIZE", "HYDI_CONTROL_FD", "MPI_LOCALNRANKS"})) return &mpich::abi;
  const bool has_pmi = has_any(environment, {"PMI_RANK", "PMI_SIZE"});
  return has_pmi && !has_any(environment, {"SLURM_PROCID", "PMIX_RANK"}) ? &mpich::abi : nullptr;
}

std::string title(const Loaded& mpi) {
  return mpi.file + (mpi.abi == nullptr ? "" : std::string(", ") + mpi.abi->name);
}

const Loaded& known(const Loaded& mpi) {
  if (mpi.abi != nullptr) return mpi;
  throw Error(ErrorCode::transport, mpi.file + " is no MPI that Kolo can call: it has neither the ABI of Open MPI 3 or "
                                               "newer, nor MPICH's, nor that of the MPI standard (5.0)");
}

[[noreturn]] void ask_which(const Loaded& one, const Loaded& other) {
  throw Error(ErrorCode::invalid_setting,
              "the launcher of this process starts programs of any MPI, and there are several (" + title(one) + "; " +
                  title(other) + "): say by KOLO_MPI which of these files it is");
}

/// A null handle: none of them can be opened, and the reasons are added to `why`.
Loaded open_first(const Linker& linker, Names files, std::string& why) {
  for (const char* file : files) {
    Loaded mpi = linker.open(file);
    if (mpi.handle != nullptr) return mpi;
    why += (why.empty() ? "" : "; ") + mpi.file;
  }
  return {};
}

Loaded search(const Linker& linker, const Lookup& environment) {
  const Abi* const wanted = abi_of_launcher(environment);
  std::string why;
  Loaded found;
  if (wanted != &mpich::abi) found = open_first(linker, kFilesOfOpenMpi, why);
  if (wanted != &openmpi::abi) {
    const Loaded other = open_first(linker, kFilesOfMpich, why);
    if (found.handle != nullptr && other.handle != nullptr) ask_which(found, other);
    if (other.handle != nullptr) found = other;
  }
  if (found.handle == nullptr) found = open_first(linker, kFilesOfStandard, why);
  if (found.handle != nullptr) return found;
  throw Error(
      ErrorCode::transport,
      "a launcher of MPI has started this process, but no MPI can be opened (" + why +
          "): install the launcher's MPI (Debian: libopenmpi3 or libmpich12), say by KOLO_MPI which file it is, "
          "or start without MPI, by kolo-run, torchrun or srun --mpi=none");
}

Loaded open_given(const Linker& linker, const std::string& file, const std::vector<Loaded>& loaded) {
  const std::string is = std::string(kSetting) + " is \"" + file + "\", ";
  Loaded mpi = linker.open(file.c_str());
  if (mpi.handle == nullptr) throw Error(ErrorCode::invalid_setting, is + "which cannot be opened: " + mpi.file);
  const bool is_loaded =
      std::any_of(loaded.begin(), loaded.end(), [&](const Loaded& one) { return one.handle == mpi.handle; });
  if (is_loaded || loaded.empty()) return mpi;
  throw Error(ErrorCode::invalid_setting, is + "but this process has loaded another MPI (" + title(loaded.front()) +
                                              "), and a process can have one: unset KOLO_MPI, or start the program "
                                              "with that MPI");
}

}  // namespace

bool started_by_launcher(const Lookup& lookup) {
  // Open MPI; MPICH and its derivatives, and Slurm's pmi2; PMIx (Slurm's too); MVAPICH's own launcher.
  return has_any(lookup, {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"});
}

Loaded choose(const Linker& linker, const Lookup& environment, const Abi* communicators) {
  std::vector<Loaded> loaded = linker.loaded();
  if (const std::string file = environment(kSetting).value_or(""); !file.empty()) {
    return known(open_given(linker, file, loaded));
  }
  if (loaded.empty() && communicators != nullptr) {
    throw Error(ErrorCode::transport, "a communicator was given, but this process has loaded no MPI that Kolo can see "
                                      "(a program that links MPI statically must be linked with -rdynamic)");
  }
  if (loaded.empty()) return known(search(linker, environment));
  const Abi* const wanted = communicators != nullptr ? communicators : abi_of_launcher(environment);
  const auto suits = [&](const Loaded& mpi) {
    const int fits = mpi.abi == wanted ? 1 : 0;
    const int begun = mpi.is_initialized ? 1 : 0;
    return mpi.abi == nullptr ? 0 : 1 + (communicators != nullptr ? 2 * fits + begun : 2 * begun + fits);
  };
  std::stable_sort(loaded.begin(), loaded.end(), [&](const Loaded& a, const Loaded& b) { return suits(a) > suits(b); });
  const Loaded& best = known(loaded.front());
  if (wanted == nullptr && loaded.size() > 1 && suits(loaded[1]) == suits(best)) ask_which(best, loaded[1]);
  return best;
}

namespace {

base::Mutex opening;
const Loaded* opened KOLO_GUARDED_BY(opening) = nullptr;

const Loaded& open_once(const Lookup& environment, const Abi* communicators) KOLO_REQUIRES(opening) {
  if (opened != nullptr) return *opened;
  auto mpi = std::make_unique<const Loaded>(choose(process_linker(), environment, communicators));
  const auto find = [&](const char* name) { return find_symbol(mpi->handle, name); };
  if (const char* const missing = mpi->abi->fill(find); missing != nullptr) {
    throw Error(ErrorCode::transport, mpi->file + " has no " + missing + ": Kolo needs an MPI of release 3 or newer");
  }
  opened = mpi.release();
  return *opened;
}

}  // namespace

const Abi& open(const Lookup& environment) {
  const base::MutexLock lock(opening);
  return *open_once(environment, nullptr).abi;
}

const Abi& open_for(const Abi& communicators, const Lookup& environment) {
  const base::MutexLock lock(opening);
  const Loaded& mpi = open_once(environment, &communicators);
  if (mpi.abi == &communicators) return communicators;
  throw Error(ErrorCode::invalid_argument, std::string("the communicator is one of ") + communicators.name +
                                               ", but this process has another MPI (" + title(mpi) + ")");
}

std::string describe_opened() {
  const base::MutexLock lock(opening);
  return opened == nullptr ? "" : opened->abi->library_version() + " (" + opened->file + ")";
}

}  // namespace kolo::mpi
