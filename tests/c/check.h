/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of this folder check with. A check that fails ends the process: other ranks may wait for it. */
#ifndef KOLO_TESTS_C_CHECK_H
#define KOLO_TESTS_C_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kolo/kolo.h>

#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)
#define OK(call) check_status(KOLO_OK, (call), "", #call, __FILE__, __LINE__)
/* The call returns this status, and its sentence contains these words. */
#define FAILS(status, call, words) check_status((status), (call), (words), #call, __FILE__, __LINE__)

static void check(int is_right, const char* what, const char* file, int line) {
  if (is_right) return;
  fprintf(stderr, "%s:%d: FAIL %s (last error: %s)\n", file, line, what, kolo_last_error());
  exit(1);
}

static void check_status(kolo_status wanted, kolo_status status, const char* words, const char* what, const char* file,
                         int line) {
  if (status == wanted && (wanted == KOLO_OK || strstr(kolo_last_error(), words) != NULL)) return;
  fprintf(stderr, "%s:%d: FAIL %s returned %s, not %s with \"%s\": %s\n", file, line, what, kolo_status_name(status),
          kolo_status_name(wanted), words, kolo_last_error());
  exit(1);
}

/* A tensor of one dimension in memory of the CPU. */
static kolo_tensor tensor_of(void* data, int32_t dtype, int64_t count) {
  kolo_tensor tensor = {NULL, 0, 1, {0}, KOLO_CPU, 0, NULL};
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.shape[0] = count;
  return tensor;
}

#endif
