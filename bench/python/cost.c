/* SPDX-License-Identifier: Apache-2.0 */
/* What calls from C cost, for cost.py. usage: cost CALLS
   Prints the nanoseconds of this thread's CPU time a call, for each of cost.py's rows. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <kolo/kolo.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(kolo_status status) {
  if (status == KOLO_OK) return;
  fprintf(stderr, "%s\n", kolo_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  enum { kRows = 5 };
  const int calls = argc > 1 ? atoi(argv[1]) : 1000;
  float numbers[16] = {0};
  kolo_tensor tensor = {numbers, KOLO_FLOAT32, 1, {16}, KOLO_CPU, 0, NULL};
  kolo_context* context = NULL;
  kolo_group* world;
  kolo_prepared* prepared = NULL;
  kolo_call call = KOLO_CALL_INIT;
  double took[kRows];
  int32_t rank = 0;
  int row, i;

  must(kolo_init(NULL, &context));
  world = kolo_world(context);
  must(kolo_rank(world, &rank));
  call.in = call.out = &tensor;
  must(kolo_prepare(world, "prepared", &call, &prepared));
  for (row = 0; row < kRows; ++row) {
    double begun = 0;
    for (i = -calls / 10; i < calls; ++i) {
      kolo_handle* handle = NULL;
      kolo_result* result = NULL;
      if (i == 0) begun = now();
      if (row == 0) must(kolo_allreduce(world, NULL, &tensor, &tensor, NULL, NULL));
      if (row == 1 || row == 2) {
        must(kolo_allreduce(world, row == 1 ? NULL : "w", &tensor, &tensor, NULL, &handle));
        must(kolo_wait(handle, -1.0));
      }
      if (row == 3) must(kolo_start(prepared, NULL));
      if (row == 4) {
        must(kolo_allgather(world, NULL, &tensor, NULL, &result, NULL));
        must(kolo_result_release(result));
      }
    }
    took[row] = (now() - begun) / calls;
  }
  must(kolo_prepared_release(prepared));
  if (rank == 0) {
    for (row = 0; row < kRows; ++row) printf("%.0f ", 1e9 * took[row]);
    printf("\n");
  }
  must(kolo_shutdown(context));
  return 0;
}
