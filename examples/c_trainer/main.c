/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a small network to read handwritten digits, in C, on as many ranks as there are:

     c_trainer                        one rank
     kolo-run -np 4 c_trainer         four processes of this machine
     mpirun -np 4 c_trainer           four processes

   The model is in network.c; here is the training loop. What is Kolo's in it stands out by its `kolo_`. The all-reduce
   of a gradient is started when the backward pass has left it, and runs while the pass goes on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kolo/kolo.h>

#include "digits.h"
#include "network.h"

enum { kBatch = 32 /* images a step over all ranks */, kHeldOut = 360 };

/* Ends the process when a call has failed. The other ranks then fail with an error that names this one. */
static void must(kolo_status status) {
  if (status == KOLO_OK) return;
  fprintf(stderr, "c_trainer: %s\n", kolo_last_error());
  exit(1);
}

static kolo_tensor tensor_of(void* data, kolo_dtype dtype, size_t count) {
  kolo_tensor tensor = {NULL, 0, 1, {0}, KOLO_CPU, 0, NULL};
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.shape[0] = (int64_t)count;
  return tensor;
}

typedef struct Trainer {
  kolo_group* world;
  int32_t rank, size;
  Network net;
  kolo_named_tensor values[kParameters], gradients[kParameters];
  kolo_arena* arena;                 /* the gradients' memory: they are reduced where they lie */
  kolo_handle* handles[kParameters]; /* all-reduces under way */
} Trainer;

static float* zeros(size_t count) {
  float* const memory = calloc(count, sizeof *memory);
  if (memory != NULL) return memory;
  fprintf(stderr, "c_trainer: no memory\n");
  exit(1);
}

static void make_network(Trainer* trainer) {
  static const char* const kNames[kParameters] = {"layer0.weight", "layer0.bias",   "layer1.weight",
                                                  "layer1.bias",   "layer2.weight", "layer2.bias"};
  int i;
  set_sizes(&trainer->net);
  for (i = 0; i < kParameters; ++i) {
    Parameter* const one = &trainer->net.parameters[i];
    one->value = zeros(one->count);
    one->momentum = zeros(one->count);
    trainer->values[i].name = trainer->gradients[i].name = kNames[i];
    trainer->values[i].tensor = tensor_of(one->value, KOLO_FLOAT32, one->count);
    trainer->gradients[i].tensor = trainer->values[i].tensor; /* which type and shape the arena is for */
  }
  must(kolo_arena_for(trainer->world, trainer->gradients, kParameters, NULL, &trainer->arena));
  for (i = 0; i < kParameters; ++i) trainer->net.parameters[i].gradient = trainer->gradients[i].tensor.data;

  initialise(&trainer->net, (uint64_t)trainer->rank); /* every rank starts differently ... */
  must(kolo_broadcast_parameters(trainer->world, trainer->values, kParameters, 0)); /* ... and now as rank 0 did */
}

static void free_network(Trainer* trainer) {
  int i;
  must(kolo_arena_release(trainer->arena));
  for (i = 0; i < kParameters; ++i) {
    free(trainer->net.parameters[i].value);
    free(trainer->net.parameters[i].momentum);
  }
}

/* The backward pass has left the gradient of parameter i. */
static void gradient_ready(void* data, int i) {
  Trainer* const trainer = data;
  const kolo_tensor* const gradient = &trainer->gradients[i].tensor;
  kolo_allreduce_options average = KOLO_ALLREDUCE_OPTIONS_INIT;
  average.op = KOLO_AVERAGE;
  must(kolo_allreduce(trainer->world, trainer->gradients[i].name, gradient, gradient, &average, &trainer->handles[i]));
}

/* The sum of a number over all ranks. */
static double sum(const Trainer* trainer, double number) {
  const kolo_tensor tensor = tensor_of(&number, KOLO_FLOAT64, 1);
  must(kolo_allreduce(trainer->world, NULL, &tensor, &tensor, NULL, NULL));
  return number;
}

/* The same order on all ranks, another in each epoch. */
static void shuffle(size_t* order, size_t count, uint64_t seed) {
  uint64_t state = seed + 1;
  size_t i;
  for (i = 0; i < count; ++i) order[i] = i;
  for (i = count; i > 1; --i) {
    size_t other, kept;
    state = state * 6364136223846793005U + 1442695040888963407U;
    other = (size_t)((state >> 33U) % i);
    kept = order[i - 1];
    order[i - 1] = order[other];
    order[other] = kept;
  }
}

/* One pass over the training images; each rank takes its part of every batch. Returns the mean loss. */
static double run_epoch(Trainer* trainer, const Digits* digits, const size_t* order, size_t count) {
  const size_t mine = kBatch / (size_t)trainer->size;
  const size_t steps = count / kBatch;
  double loss = 0;
  size_t step;
  for (step = 0; step < steps; ++step) {
    const size_t* const images = order + step * kBatch + (size_t)trainer->rank * mine;
    loss += forward_backward(&trainer->net, digits, images, mine, gradient_ready, trainer); /* overlaps */
    must(kolo_wait_all(trainer->handles, kParameters));
    take_step(&trainer->net, 0.05F);
    must(kolo_end_step(trainer->world));
  }
  return sum(trainer, loss) / (double)(steps * (size_t)trainer->size);
}

/* The share of the held-out images that the network gets right; every rank looks at its part of them. */
static double accuracy(Trainer* trainer, const Digits* digits) {
  int64_t correct = 0;
  size_t i;
  for (i = digits->count - kHeldOut + (size_t)trainer->rank; i < digits->count; i += (size_t)trainer->size) {
    correct += count_correct(&trainer->net, digits, &i, 1);
  }
  return sum(trainer, (double)correct) / kHeldOut;
}

/* FNV-1a of all weights. */
static uint64_t hash_of(const Trainer* trainer) {
  uint64_t hash = 14695981039346656037U;
  size_t j;
  int i;
  for (i = 0; i < kParameters; ++i) {
    const Parameter* const one = &trainer->net.parameters[i];
    for (j = 0; j < one->count * sizeof(float); ++j) {
      hash = (hash ^ ((const unsigned char*)one->value)[j]) * 1099511628211U;
    }
  }
  return hash;
}

/* Whether all ranks have this hash. */
static int is_same_everywhere(const Trainer* trainer, uint64_t hash) {
  const kolo_tensor mine = tensor_of(&hash, KOLO_UINT64, 1);
  kolo_result* result = NULL;
  kolo_tensor all;
  int is_same = 1;
  int32_t r;
  must(kolo_allgather(trainer->world, NULL, &mine, NULL, &result, NULL));
  must(kolo_result_tensor(result, &all));
  for (r = 0; r < trainer->size; ++r) is_same = is_same && ((const uint64_t*)all.data)[r] == hash;
  must(kolo_result_release(result));
  return is_same;
}

/* Trains, and returns whether all ranks have the same weights in the end. */
static int train(Trainer* trainer, const Digits* digits, int epochs) {
  const size_t count = digits->count - kHeldOut;
  size_t* const order = malloc(count * sizeof *order);
  uint64_t hash;
  double loss = 0, right;
  int epoch, is_same;
  if (order == NULL) return 0;
  for (epoch = 0; epoch < epochs; ++epoch) {
    shuffle(order, count, (uint64_t)epoch);
    loss = run_epoch(trainer, digits, order, count);
  }
  free(order);
  right = accuracy(trainer, digits);
  hash = hash_of(trainer);
  is_same = is_same_everywhere(trainer, hash);
  if (trainer->rank == 0) {
    printf("accuracy %.1f %%  loss %.6f  %d rank%s  weights %016" PRIx64 " (%s)\n", 100 * right, loss,
           (int)trainer->size, trainer->size == 1 ? "" : "s", hash,
           is_same ? "the same on every rank" : "NOT THE SAME ON EVERY RANK");
  }
  return is_same;
}

int main(int argc, char** argv) {
  static Trainer trainer;
  const char* const data = argc > 2 ? argv[2] : DIGITS_CSV;
  const int epochs = argc > 1 ? atoi(argv[1]) : 30;
  kolo_context* context = NULL;
  Digits digits;
  int is_same;

  if (epochs < 1) return fprintf(stderr, "usage: c_trainer [EPOCHS [DATA]]\n"), 2;
  if (read_digits(data, &digits) != 0) return 1;
  must(kolo_init(NULL, &context));
  trainer.world = kolo_world(context);
  must(kolo_rank(trainer.world, &trainer.rank));
  must(kolo_size(trainer.world, &trainer.size));
  if (digits.count <= kHeldOut + kBatch || kBatch % trainer.size != 0) {
    fprintf(stderr, "c_trainer: needs more than %d images, and a number of ranks that divides %d\n", kHeldOut + kBatch,
            kBatch);
    return 1;
  }
  make_network(&trainer);
  is_same = train(&trainer, &digits, epochs);
  free_network(&trainer);
  free_digits(&digits);
  must(kolo_shutdown(context));
  return is_same ? 0 : 1;
}
