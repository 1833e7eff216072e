/* SPDX-License-Identifier: Apache-2.0 */
/* A stranger's program in C, which finds the headers for C and the library. */
#include <stdio.h>

#include <kolo/dlpack.h>
#include <kolo/kolo.h>

int main(void) {
  float data[2] = {1, 2};
  kolo_tensor tensor = {NULL, KOLO_FLOAT32, 1, {2}, KOLO_CPU, 0, NULL};
  kolo_allreduce_options options = KOLO_ALLREDUCE_OPTIONS_INIT;
  kolo_context* context = NULL;
  tensor.data = data;
  options.op = KOLO_AVERAGE;
  if (kolo_init(NULL, &context) != KOLO_OK ||
      kolo_allreduce(kolo_world(context), "w", &tensor, &tensor, &options, NULL) != KOLO_OK ||
      kolo_shutdown(context) != KOLO_OK) {
    return fprintf(stderr, "%s\n", kolo_last_error()), 1;
  }
  return data[1] == 2.0F ? 0 : 1;
}
