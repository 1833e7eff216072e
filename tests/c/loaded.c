/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is linked with nothing of Kolo's, loads it late, closes it after an orderly shutdown, and ends.
   usage: loaded LIBRARY...   libkolo, and others of ours, which are only loaded and closed */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <kolo/kolo.h>

/* ISO C has no way from a pointer to data to one of a function. */
#define LOAD(function)                                                                                                 \
  do {                                                                                                                 \
    void* const found = dlsym(library, #function);                                                                     \
    if (found == NULL) return 1;                                                                                       \
    memcpy(&its_##function, &found, sizeof found);                                                                     \
  } while (0)

static int use(void* library) {
  int32_t (*its_kolo_abi_version)(void) = NULL;
  kolo_status (*its_kolo_init)(const kolo_init_options*, kolo_context**) = NULL;
  kolo_group* (*its_kolo_world)(kolo_context*) = NULL;
  kolo_status (*its_kolo_allreduce)(const kolo_group*, const char*, const kolo_tensor*, const kolo_tensor*,
                                    const kolo_allreduce_options*, kolo_handle**) = NULL;
  kolo_status (*its_kolo_wait)(kolo_handle*, double) = NULL;
  kolo_status (*its_kolo_shutdown)(kolo_context*) = NULL;
  float data[3] = {1, 2, 3};
  kolo_tensor tensor = {NULL, KOLO_FLOAT32, 1, {3}, KOLO_CPU, 0, NULL};
  kolo_allreduce_options options = KOLO_ALLREDUCE_OPTIONS_INIT;
  kolo_context* context = NULL;
  kolo_handle* handle = NULL;

  LOAD(kolo_abi_version);
  LOAD(kolo_init);
  LOAD(kolo_world);
  LOAD(kolo_allreduce);
  LOAD(kolo_wait);
  LOAD(kolo_shutdown);
  tensor.data = data;
  options.postscale = 2.0;
  if (its_kolo_abi_version() != KOLO_ABI_VERSION || its_kolo_init(NULL, &context) != KOLO_OK ||
      its_kolo_allreduce(its_kolo_world(context), "x", &tensor, &tensor, &options, &handle) != KOLO_OK ||
      its_kolo_wait(handle, -1.0) != KOLO_OK || its_kolo_shutdown(context) != KOLO_OK || data[2] != 6.0F) {
    return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  int i, times;
  for (times = 0; times < 2; ++times) {
    for (i = 1; i < argc; ++i) {
      void* const library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
      if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
      if (i == 1 && use(library) != 0) return fprintf(stderr, "FAIL: %s cannot be used\n", argv[i]), 1;
      if (dlclose(library) != 0) return fprintf(stderr, "%s\n", dlerror()), 1;
      /* What it has registered with the C library is called at exit. */
      if (dlopen(argv[i], RTLD_NOW | RTLD_NOLOAD) == NULL) return fprintf(stderr, "FAIL: %s is gone\n", argv[i]), 1;
    }
  }
  printf("PASS loaded\n");
  return 0;
}
