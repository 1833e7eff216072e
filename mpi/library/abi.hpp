// SPDX-License-Identifier: Apache-2.0
//
// The functions by which the rest of Kolo uses MPI. They are the same for every ABI; mpi/mpi_abi.cpp has them for each.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <kolo/detail/names.hpp>

#include "base/clock.hpp"
#include "bootstrap/bootstrap.hpp"

namespace kolo::mpi {

enum class ThreadLevel : std::uint8_t { single, funneled, serialized, multiple };
inline constexpr std::array<std::string_view, 4> kThreadLevelNames{"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
constexpr std::string_view to_string(ThreadLevel level) noexcept { return detail::name_of(kThreadLevelNames, level); }

/// An ABI's functions. All but `fill` need a library of this ABI that has been filled in. Errors are Error (transport).
struct Abi {
  const char* name;  ///< "Open MPI"
  /// Fills this ABI's table of calls and constants. `find` gives a symbol's address, or null. Returns the name of a
  /// symbol that is not there; null: all are.
  const char* (*fill)(const std::function<void*(const char* name)>& find);
  /// "Open MPI v4.1.4": the first line of the library's own text, up to the first comma.
  std::string (*library_version)();

  // At any time, from any thread.
  bool (*is_initialized)();
  bool (*is_finalized)();
  // Between MPI_Init and MPI_Finalize, from any thread.
  ThreadLevel (*thread_level)();
  bool (*is_main_thread)();  ///< whether this thread initialised MPI

  void (*initialize)();  ///< with the highest thread level that MPI provides
  /// Lets MPI work until all ranks of the world have called this, or the time has come; it must not be called again
  /// then.
  void (*meet_world)(base::Time until);
  void (*finalize)();

  /// All ranks of the job: `borrow` of MPI_COMM_WORLD.
  std::unique_ptr<bootstrap::Bootstrap> (*of_world)(base::Duration patience);
  /// The ranks of the communicator of this ABI that `communicator` points to, see mpi_bootstrap.hpp.
  std::unique_ptr<bootstrap::Bootstrap> (*borrow)(const void* communicator, base::Duration patience);
};

namespace openmpi {
extern const Abi abi;
}
namespace mpich {
extern const Abi abi;
}
namespace standard {
extern const Abi abi;
}

}  // namespace kolo::mpi
