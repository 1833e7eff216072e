// SPDX-License-Identifier: Apache-2.0
//
// Compares the header of mpi/abi that Kolo is compiled with and an <mpi.h> of that ABI. Links no MPI.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>

#include "mpi/abi/mpi.hpp"

namespace {

// <mpi.h> has macros of these names.
namespace kolos = kolo::mpi::KOLO_MPI_NAMESPACE;
using KolosComm = kolos::MPI_Comm;
using KolosStatus = kolos::MPI_Status;
constexpr int kKolosAnySource = kolos::MPI_ANY_SOURCE;
constexpr int kKolosAnyTag = kolos::MPI_ANY_TAG;
constexpr int kKolosTagUb = kolos::MPI_TAG_UB;
constexpr int kKolosErrInStatus = kolos::MPI_ERR_IN_STATUS;
constexpr int kKolosErrPending = kolos::MPI_ERR_PENDING;
constexpr int kKolosSingle = kolos::MPI_THREAD_SINGLE;
constexpr int kKolosFunneled = kolos::MPI_THREAD_FUNNELED;
constexpr int kKolosSerialized = kolos::MPI_THREAD_SERIALIZED;
constexpr int kKolosMultiple = kolos::MPI_THREAD_MULTIPLE;
constexpr int kKolosMaxErrorString = kolos::MPI_MAX_ERROR_STRING;
constexpr int kKolosMaxVersionString = kolos::MPI_MAX_LIBRARY_VERSION_STRING;
#if KOLO_MPI_ABI != 1  // there they are addresses, which the loader knows
const std::array<std::intptr_t, 6> kKolosConstants{
    (std::intptr_t)kolos::MPI_COMM_WORLD, (std::intptr_t)kolos::MPI_COMM_NULL, (std::intptr_t)kolos::MPI_REQUEST_NULL,
    (std::intptr_t)kolos::MPI_BYTE,       (std::intptr_t)kolos::MPI_CHAR,      (std::intptr_t)kolos::MPI_ERRORS_RETURN};
const bool kIgnoresStatus = (std::intptr_t)kolos::MPI_STATUS_IGNORE != 0;
#endif

}  // namespace

#include <mpi.h>

namespace {

static_assert(MPI_VERSION >= 3);
static_assert(std::is_same_v<KolosComm, MPI_Comm>);
static_assert(sizeof(kolos::MPI_Request) == sizeof(MPI_Request) &&
              sizeof(kolos::MPI_Datatype) == sizeof(MPI_Datatype) &&
              sizeof(kolos::MPI_Errhandler) == sizeof(MPI_Errhandler) && sizeof(kolos::MPI_Count) == sizeof(MPI_Count));
static_assert(sizeof(KolosStatus) == sizeof(MPI_Status) && alignof(KolosStatus) == alignof(MPI_Status) &&
              offsetof(KolosStatus, MPI_SOURCE) == offsetof(MPI_Status, MPI_SOURCE) &&
              offsetof(KolosStatus, MPI_TAG) == offsetof(MPI_Status, MPI_TAG) &&
              offsetof(KolosStatus, MPI_ERROR) == offsetof(MPI_Status, MPI_ERROR));
static_assert(kKolosAnySource == MPI_ANY_SOURCE && kKolosAnyTag == MPI_ANY_TAG && kKolosTagUb == MPI_TAG_UB);
static_assert(kKolosErrInStatus == MPI_ERR_IN_STATUS && kKolosErrPending == MPI_ERR_PENDING);
static_assert(kKolosSingle == MPI_THREAD_SINGLE && kKolosFunneled == MPI_THREAD_FUNNELED &&
              kKolosSerialized == MPI_THREAD_SERIALIZED && kKolosMultiple == MPI_THREAD_MULTIPLE);
static_assert(kKolosMaxErrorString >= MPI_MAX_ERROR_STRING && kKolosMaxVersionString >= MPI_MAX_LIBRARY_VERSION_STRING);

}  // namespace

int main() {
#if KOLO_MPI_ABI != 1
  const std::array<std::intptr_t, 6> constants{(std::intptr_t)MPI_COMM_WORLD,   (std::intptr_t)MPI_COMM_NULL,
                                               (std::intptr_t)MPI_REQUEST_NULL, (std::intptr_t)MPI_BYTE,
                                               (std::intptr_t)MPI_CHAR,         (std::intptr_t)MPI_ERRORS_RETURN};
  if (constants != kKolosConstants || kIgnoresStatus != ((std::intptr_t)MPI_STATUS_IGNORE != 0)) {
    std::puts("FAIL: a constant differs");
    return 1;
  }
#endif
  std::puts("PASS");
  return 0;
}
