/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is linked with nothing of Kolo's, and loads it late.
   usage: loaded LIBKOLO */
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

int main(int argc, char** argv) {
  void* const library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
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

  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
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
  printf("PASS loaded\n");
  return 0;
}
