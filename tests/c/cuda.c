/* SPDX-License-Identifier: Apache-2.0 */
/* The functions for devices, and tensors that lie there. Two ranks as threads, on the emulated device. */
#include <cuda_runtime_api.h>

#include "check.h"

#define CUDA(call) CHECK((call) == cudaSuccess)
#define COUNT 1000

static kolo_tensor on_device(void* data, cudaStream_t stream) {
  kolo_tensor tensor = tensor_of(data, KOLO_FLOAT32, COUNT);
  tensor.device = KOLO_CUDA;
  tensor.stream = stream;
  return tensor;
}

static void fill(float* numbers, float value) {
  for (int i = 0; i < COUNT; ++i) numbers[i] = value + (float)i;
}

static void holds(const float* numbers, float value, float step) {
  for (int i = 0; i < COUNT; ++i) CHECK(numbers[i] == value + step * (float)i);
}

/* Where there is a device, what is wrong is still refused. */
static void wrong_ones(kolo_group* world, kolo_tensor tensor) {
  float here[COUNT] = {0};
  kolo_tensor of_host = tensor_of(here, KOLO_FLOAT32, COUNT);
  kolo_handle* handle = NULL;
  kolo_result* result = NULL;
  FAILS(KOLO_INVALID_ARGUMENT, kolo_allreduce(world, "mixed", &tensor, &of_host, NULL, NULL), "must be in one place");
  FAILS(KOLO_UNSUPPORTED, kolo_allgather(world, "new", &tensor, NULL, &result, NULL), "_into");
  tensor.index = -1;
  FAILS(KOLO_INVALID_ARGUMENT, kolo_allreduce(world, "index", &tensor, &tensor, NULL, NULL), "index is -1");
  OK(kolo_allreduce(world, "host", &of_host, &of_host, NULL, &handle));
  FAILS(KOLO_INVALID_ARGUMENT, kolo_cuda_wait_on(handle, NULL), "CUDA device");
  OK(kolo_wait(handle, -1.0));
}

/* Work of a stream before and after an operation, and no wait of the host between. */
static void behind_a_stream(kolo_group* world, int32_t rank, cudaStream_t stream, kolo_tensor tensor) {
  float before[COUNT], after[COUNT];
  kolo_handle* handle = NULL;
  fill(before, (float)rank);
  CUDA(cudaMemcpyAsync(tensor.data, before, sizeof before, cudaMemcpyHostToDevice, stream));
  OK(kolo_allreduce(world, "w", &tensor, &tensor, NULL, &handle));
  OK(kolo_cuda_wait_on(handle, stream));
  CUDA(cudaMemcpyAsync(after, tensor.data, sizeof after, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  holds(after, 1, 2);
  OK(kolo_wait(handle, -1.0));
}

/* NULL is the legacy default stream, on which cudaMemcpy works. */
static void on_the_default_stream(kolo_group* world, int32_t rank, kolo_tensor tensor) {
  float numbers[COUNT];
  kolo_handle* handle = NULL;
  fill(numbers, (float)(10 * rank));
  CUDA(cudaMemcpy(tensor.data, numbers, sizeof numbers, cudaMemcpyHostToDevice));
  tensor.stream = NULL;
  OK(kolo_allreduce(world, NULL, &tensor, &tensor, NULL, &handle));
  OK(kolo_cuda_wait_on(handle, NULL));
  CUDA(cudaMemcpy(numbers, tensor.data, sizeof numbers, cudaMemcpyDeviceToHost));
  holds(numbers, 10, 2);
  OK(kolo_wait(handle, -1.0));
}

static void in_an_arena(kolo_group* world, int32_t rank, int32_t index, cudaStream_t stream) {
  kolo_arena* arena = NULL;
  kolo_tensor tensor = on_device(NULL, stream);
  int32_t contains = 0;
  OK(kolo_arena_make(world, 1 << 20, KOLO_CUDA, index, NULL, &arena));
  OK(kolo_arena_allocate(arena, &tensor));
  CHECK(tensor.data != NULL && tensor.device == KOLO_CUDA && tensor.index == index);
  OK(kolo_arena_contains(arena, tensor.data, &contains));
  CHECK(contains == 1);
  behind_a_stream(world, rank, stream, tensor);
  OK(kolo_arena_release(arena));
}

static kolo_status one_rank(void* unused, kolo_context* context) {
  kolo_group* const world = kolo_world(context);
  int32_t rank = -1, index = -1, again = -1;
  cudaStream_t stream = NULL;
  void* memory = NULL;
  (void)unused;
  OK(kolo_rank(world, &rank));
  OK(kolo_cuda_bind(world, &index));
  OK(kolo_cuda_bind(world, &again));
  CHECK(index == again);
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaMalloc(&memory, COUNT * sizeof(float)));
  {
    kolo_tensor tensor = on_device(memory, stream);
    tensor.index = index;
    wrong_ones(world, tensor);
    behind_a_stream(world, rank, stream, tensor);
    on_the_default_stream(world, rank, tensor);
    in_an_arena(world, rank, index, stream);
  }
  OK(kolo_barrier(world, NULL, NULL, NULL));
  CUDA(cudaFree(memory));
  CUDA(cudaStreamDestroy(stream));
  return KOLO_OK;
}

int main(void) {
  const kolo_setting shares = {"KOLO_SHARE_DEVICE", "1"};
  kolo_init_options options = KOLO_INIT_OPTIONS_INIT;
  options.settings = &shares;
  options.setting_count = 1;
  if (kolo_run_local(2, one_rank, NULL, &options) != KOLO_OK) return fprintf(stderr, "%s\n", kolo_last_error()), 1;
  puts("PASS");
  return 0;
}
