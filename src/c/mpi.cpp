// SPDX-License-Identifier: Apache-2.0
#ifdef KOLO_HAS_MPI

#include <memory>

#include <kolo/context.hpp>
#include <kolo/kolo_mpi.h>
#include <kolo/mpi.hpp>

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"
#include "c/starting.hpp"

using namespace kolo::c;

kolo_status kolo_init_mpi(MPI_Comm communicator, const kolo_init_options* options, kolo_context** context) {
  return guarded([&] {
    kolo_context*& place = given(context, "the place for the context");
    const kolo_init_options checked = checked_init_options(options);
    if (checked.store != nullptr) refuse("the options have a store: the ranks meet by the communicator, leave it NULL");
    const kolo::Options its_options = options_of_init(checked);
    place = std::make_unique<kolo_context>(kolo::Context(kolo::mpi::bootstrap(communicator), its_options)).release();
  });
}

#endif
