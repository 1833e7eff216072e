// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <kolo/context.hpp>
#include <kolo/kolo_mpi.h>
#include <kolo/mpi.hpp>

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"
#include "c/starting.hpp"

namespace {

using namespace kolo::c;

template <class Communicator>
kolo_status init_over(Communicator communicator, const kolo_init_options* options, kolo_context** context) {
  return guarded([&] {
    kolo_context*& place = given(context, "the place for the context");
    const kolo_init_options checked = checked_init_options(options);
    if (checked.store != nullptr) refuse("the options have a store: the ranks meet by the communicator, leave it NULL");
    const kolo::Options its_options = options_of_init(checked);
    place = std::make_unique<kolo_context>(kolo::Context(kolo::mpi::bootstrap(communicator), its_options)).release();
  });
}

}  // namespace

kolo_status kolo_init_openmpi(ompi_communicator_t* communicator, const kolo_init_options* options,
                              kolo_context** context) {
  return init_over(communicator, options, context);
}

kolo_status kolo_init_mpich(int communicator, const kolo_init_options* options, kolo_context** context) {
  return init_over(communicator, options, context);
}

kolo_status kolo_init_mpi_abi(MPI_ABI_Comm* communicator, const kolo_init_options* options, kolo_context** context) {
  return init_over(communicator, options, context);
}
