/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts from communicators of MPI, right and wrong ones. Started by mpirun. */
#include <kolo/kolo_mpi.h>

#include <mpi.h>

#include "check.h"

static void wrong_ones(void) {
  const kolo_store store = KOLO_STORE_INIT;
  kolo_init_options options = KOLO_INIT_OPTIONS_INIT;
  kolo_context* context = NULL;
  FAILS(KOLO_INVALID_ARGUMENT, kolo_init_mpi(MPI_COMM_WORLD, NULL, NULL), "the place for the context is NULL");
  FAILS(KOLO_INVALID_ARGUMENT, kolo_init_mpi(MPI_COMM_NULL, NULL, &context), "MPI_COMM_NULL");
  options.size = 1;
  FAILS(KOLO_INVALID_ARGUMENT, kolo_init_mpi(MPI_COMM_WORLD, &options, &context), "KOLO_INIT_OPTIONS_INIT");
  options.size = sizeof options;
  options.store = &store;
  FAILS(KOLO_INVALID_ARGUMENT, kolo_init_mpi(MPI_COMM_WORLD, &options, &context), "leave it NULL");
  /* A communicator of another MPI. */
#ifdef OPEN_MPI
  FAILS(KOLO_INVALID_ARGUMENT, kolo_init_mpich(0x44000000, NULL, &context), "this process has another MPI");
#else
  FAILS(KOLO_INVALID_ARGUMENT, kolo_init_openmpi(NULL, NULL, &context), "this process has another MPI");
#endif
  FAILS(KOLO_INVALID_ARGUMENT, kolo_init_mpi_abi(NULL, NULL, &context), "this process has another MPI");
  FAILS(KOLO_INVALID_ARGUMENT, kolo_init_mpi_abi(NULL, NULL, NULL), "the place for the context is NULL");
  CHECK(context == NULL);
}

/* The sum over the ranks of the communicator of their numbers there, by Kolo. */
static void sums(MPI_Comm communicator, const kolo_init_options* options) {
  int size = 0, rank = 0;
  int32_t its_rank = -1, its_size = -1;
  kolo_context *context = NULL, *current = NULL;
  CHECK(MPI_Comm_size(communicator, &size) == MPI_SUCCESS && MPI_Comm_rank(communicator, &rank) == MPI_SUCCESS);
  OK(kolo_init_mpi(communicator, options, &context));
  OK(kolo_rank(kolo_world(context), &its_rank));
  OK(kolo_size(kolo_world(context), &its_size));
  CHECK(its_rank == rank && its_size == size);
  {
    int64_t number = rank + 1;
    kolo_tensor tensor = tensor_of(&number, KOLO_INT64, 1);
    OK(kolo_allreduce(kolo_world(context), "number", &tensor, &tensor, NULL, NULL));
    CHECK(number == (int64_t)size * (size + 1) / 2);
  }
  /* It lies beside the process's own, which nobody has made. */
  FAILS(KOLO_NOT_INITIALIZED, kolo_current(&current), "no context");
  OK(kolo_shutdown(context));
}

int main(int argc, char** argv) {
  int provided = 0, rank = 0;
  kolo_context* context = NULL;
  MPI_Comm halves = MPI_COMM_NULL;
  const kolo_setting timeout = {"KOLO_TIMEOUT_S", "60"};
  kolo_init_options options = KOLO_INIT_OPTIONS_INIT;

  FAILS(KOLO_TRANSPORT, kolo_init_mpi(MPI_COMM_WORLD, NULL, &context), "MPI");
  CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS);
  CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS);
  wrong_ones();
  sums(MPI_COMM_WORLD, NULL);

  options.settings = &timeout;
  options.setting_count = 1;
  CHECK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &halves) == MPI_SUCCESS); /* and the other way round */
  sums(halves, &options);
  CHECK(MPI_Comm_free(&halves) == MPI_SUCCESS);
  CHECK(MPI_Finalize() == MPI_SUCCESS);
  FAILS(KOLO_TRANSPORT, kolo_init_mpi(MPI_COMM_WORLD, NULL, &context), "MPI");
  if (rank == 0) puts("PASS");
  return 0;
}
