// SPDX-License-Identifier: Apache-2.0
//
// This ABI's row of functions (library/abi.hpp).
#include <type_traits>
#include <utility>

#include "mpi/library/abi.hpp"
#include "mpi/mpi_api.hpp"
#include "mpi/mpi_bootstrap.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {
namespace {

const char* fill(const std::function<void*(const char* name)>& find) {
  const char* missing = nullptr;
  const auto take = [&](const char* name, auto& place) {
    place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(find(name));
    if (place == nullptr) missing = name;
  };
  for_each_call(take);
  for_each_object(take);
  return missing;
}

std::unique_ptr<bootstrap::Bootstrap> world(base::Duration patience) { return borrow(MPI_COMM_WORLD, patience); }

std::unique_ptr<bootstrap::Bootstrap> borrow_at(const void* communicator, base::Duration patience) {
  return borrow(*static_cast<const MPI_Comm*>(communicator), patience);
}

constexpr const char* kNames[] = {"Open MPI", "MPICH", "the ABI of the MPI standard"};

}  // namespace

const Abi abi{kNames[KOLO_MPI_ABI - 1], fill,       library_version, is_initialized, is_finalized, thread_level,
              is_main_thread,           initialize, meet_world,      finalize,       world,        borrow_at};

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
