/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of what is frozen, and every function under wrong arguments, in a world of one. */
#include <math.h>
#include <stddef.h>

#include <kolo/dlpack.h>

#include "check.h"

#define STATIC_ASSERT(name, condition) typedef char name[(condition) ? 1 : -1]

STATIC_ASSERT(tensor_is_frozen, sizeof(kolo_tensor) == 96 && offsetof(kolo_tensor, data) == 0 &&
                                    offsetof(kolo_tensor, dtype) == 8 && offsetof(kolo_tensor, dims) == 12 &&
                                    offsetof(kolo_tensor, shape) == 16 && offsetof(kolo_tensor, device) == 80 &&
                                    offsetof(kolo_tensor, index) == 84 && offsetof(kolo_tensor, stream) == 88);
STATIC_ASSERT(named_tensor_is_frozen, sizeof(kolo_named_tensor) == 104 && offsetof(kolo_named_tensor, tensor) == 8);
STATIC_ASSERT(received_is_frozen, sizeof(kolo_received) == 16 && offsetof(kolo_received, source) == 8);
/* These grow at their end alone. What is behind their first size is new. */
STATIC_ASSERT(allreduce_options_of_abi_1, sizeof(kolo_allreduce_options) >= 48 &&
                                              offsetof(kolo_allreduce_options, prescale) == 16 &&
                                              offsetof(kolo_allreduce_options, reserved) == 44);
STATIC_ASSERT(options_of_abi_1, sizeof(kolo_options) >= 24 && offsetof(kolo_options, reserved) == 20);
STATIC_ASSERT(message_options_of_abi_1, sizeof(kolo_message_options) >= 16);
STATIC_ASSERT(join_options_of_abi_1, sizeof(kolo_join_options) >= 24 && offsetof(kolo_join_options, reserved) == 20);
STATIC_ASSERT(init_options_of_abi_1, sizeof(kolo_init_options) >= 72 && offsetof(kolo_init_options, log) == 40 &&
                                         offsetof(kolo_init_options, reserved) == 68);
STATIC_ASSERT(store_of_abi_1, sizeof(kolo_store) >= 32 && offsetof(kolo_store, get) == 24);
STATIC_ASSERT(call_of_abi_1,
              sizeof(kolo_call) >= 64 && offsetof(kolo_call, splits) == 32 && offsetof(kolo_call, options) == 56);

#define WRONG(call, words) FAILS(KOLO_INVALID_ARGUMENT, call, words)

static float data[4], other[4];

static kolo_tensor good(void) { return tensor_of(data, KOLO_FLOAT32, 4); }

static void versions(void) {
  CHECK(kolo_abi_version() == KOLO_ABI_VERSION);
  CHECK(kolo_version()[0] == '0');
  CHECK(strcmp(kolo_status_name(KOLO_RANK_LOST), "rank_lost") == 0);
  CHECK(strcmp(kolo_status_name(KOLO_PENDING), "pending") == 0);
  CHECK(strcmp(kolo_status_name((kolo_status)500), "unknown") == 0);
  CHECK(kolo_dtype_size(KOLO_FLOAT64) == 8 && kolo_dtype_size(13) == 0 && kolo_dtype_size(-1) == 0);
}

static kolo_status set_nothing(void* unused, const char* key, const void* value, size_t bytes) {
  (void)unused, (void)key, (void)value, (void)bytes;
  return KOLO_OK;
}

static void starts(void) {
  kolo_context* context = NULL;
  kolo_init_options options = KOLO_INIT_OPTIONS_INIT;
  kolo_store store = KOLO_STORE_INIT;
  kolo_setting setting = {"KOLO_TIMEOUT_S", "soon"};
  int32_t number = 0;

  WRONG(kolo_init(NULL, NULL), "the place for the context is NULL");
  options.size = 8;
  WRONG(kolo_init(&options, &context), "the struct's size is 8: start from KOLO_INIT_OPTIONS_INIT");
  options.size = sizeof options + 8;
  WRONG(kolo_init(&options, &context), "knows 72 bytes of it: run the program with the library of its header");
  options.size = sizeof options;
  options.separate = 2;
  WRONG(kolo_init(&options, &context), "`separate` is 0 or 1");
  options.separate = 0;
  options.reserved = 1;
  WRONG(kolo_init(&options, &context), "`reserved` 0");
  options.reserved = 0;
  options.setting_count = 1;
  WRONG(kolo_init(&options, &context), "the list of settings is NULL, but its length is 1");
  options.settings = &setting;
  FAILS(KOLO_INVALID_SETTING, kolo_init(&options, &context), "KOLO_TIMEOUT_S");
  setting.value = NULL;
  WRONG(kolo_init(&options, &context), "a setting's value is NULL");
  setting.name = NULL;
  setting.value = "1";
  WRONG(kolo_init(&options, &context), "a setting's name is NULL");
  options.setting_count = 0;
  options.rank = 1;
  WRONG(kolo_init(&options, &context), "but no store");
  options.store = &store;
  WRONG(kolo_init(&options, &context), "the store lacks `set` or `get`");
  store.set = set_nothing;
  WRONG(kolo_init(&options, &context), "the store lacks `set` or `get`");
  store.size = 0;
  WRONG(kolo_init(&options, &context), "KOLO_STORE_INIT");
  CHECK(context == NULL);

  WRONG(kolo_shutdown(NULL), "the context is NULL");
  WRONG(kolo_abandon(NULL, "why"), "the context is NULL");
  CHECK(kolo_world(NULL) == NULL && strstr(kolo_last_error(), "kolo_init") != NULL);
  WRONG(kolo_local_rank(NULL, &number), "the context is NULL");
  WRONG(kolo_local_size(NULL, &number), "the context is NULL");
  WRONG(kolo_cross_rank(NULL, &number), "the context is NULL");
  WRONG(kolo_cross_size(NULL, &number), "the context is NULL");
  WRONG(kolo_run_local(2, NULL, NULL, NULL), "the ranks' function is NULL");
  WRONG(kolo_run_forked(2, NULL, NULL, NULL), "the ranks' function is NULL");
}

static kolo_status do_nothing(void* unused, kolo_context* context) {
  (void)unused, (void)context;
  return KOLO_OK;
}

static void ranks_as_threads(void) {
  kolo_init_options options = KOLO_INIT_OPTIONS_INIT;
  WRONG(kolo_run_local(0, do_nothing, NULL, NULL), "");
  WRONG(kolo_run_forked(-1, do_nothing, NULL, NULL), "");
  options.separate = 1;
  WRONG(kolo_run_local(1, do_nothing, NULL, &options), "leave `separate` 0");
}

static void groups(kolo_context* context) {
  kolo_group* const world = kolo_world(context);
  kolo_group* group = NULL;
  kolo_group_options options = KOLO_GROUP_OPTIONS_INIT;
  kolo_result* result = NULL;
  int32_t number = 0, ranks[2] = {0, 7};

  WRONG(kolo_abandon(context, NULL), "the reason is NULL");
  WRONG(kolo_local_rank(context, NULL), "the place for the answer is NULL");
  WRONG(kolo_rank(NULL, &number), "the group is NULL: kolo_world gives that of all ranks");
  WRONG(kolo_rank(world, NULL), "the place for the rank is NULL");
  WRONG(kolo_size(NULL, &number), "the group is NULL");
  WRONG(kolo_size(world, NULL), "the place for the size is NULL");
  WRONG(kolo_group_of(NULL, ranks, 1, NULL, &group), "the group is NULL");
  WRONG(kolo_group_of(world, NULL, 1, NULL, &group), "the list of ranks is NULL, but its length is 1");
  WRONG(kolo_group_of(world, ranks, 1, NULL, NULL), "the place for the group is NULL");
  WRONG(kolo_group_of(world, ranks, 2, NULL, &group), "7");
  WRONG(kolo_group_split(NULL, 0, 0, NULL, &group), "the group is NULL");
  WRONG(kolo_group_split(world, 0, 0, NULL, NULL), "the place for the group is NULL");
  WRONG(kolo_group_split(world, -2, 0, NULL, &group), "-2");
  options.timeout = 0;
  WRONG(kolo_group_split(world, 0, 0, &options, &group), "its timeout is 0 ns; give a time greater than zero");
  WRONG(kolo_group_of(world, ranks, 1, &options, &group), "its timeout is 0 ns; give a time greater than zero");
  options.timeout = -1;
  options.fails_alone = 2;
  WRONG(kolo_group_split(world, 0, 0, &options, &group), "fails_alone is 0 or 1");
  options.size = 7;
  WRONG(kolo_group_split(world, 0, 0, &options, &group), "KOLO_GROUP_OPTIONS_INIT");
  WRONG(kolo_address(NULL, 0, &result), "the group is NULL");
  WRONG(kolo_address(world, 1, &result), "there is no rank 1");
  WRONG(kolo_address(world, 0, NULL), "the place for the result is NULL");
  WRONG(kolo_group_is_member(NULL, &number), "the group is NULL");
  WRONG(kolo_group_is_member(world, NULL), "the place for the answer is NULL");
  WRONG(kolo_group_members(NULL, ranks, 2), "the group is NULL");
  WRONG(kolo_group_members(world, NULL, 2), "the room for ranks is NULL");
  WRONG(kolo_group_members(world, ranks, 0), "there is room for 0 ranks: the group has 1");
  WRONG(kolo_group_release(world), "is the world of a context");
  OK(kolo_group_release(NULL));
  CHECK(group == NULL);

  OK(kolo_group_split(world, KOLO_NO_GROUP, 0, NULL, &group));
  WRONG(kolo_rank(group, &number), "no member of the group");
  OK(kolo_group_release(group));
}

/* What is wrong with a tensor is found in every call that takes one; here in a few. */
static void tensors(kolo_group* world) {
  kolo_tensor tensor = good();
  size_t bytes = 0;

  tensor.dtype = 13;
  WRONG(kolo_allreduce(world, NULL, &tensor, &tensor, NULL, NULL), "there is no dtype 13");
  tensor.dtype = 256 + KOLO_FLOAT32;
  WRONG(kolo_send(world, &tensor, 0, 0, NULL, NULL), "there is no dtype 267");
  tensor = good();
  tensor.dims = 9;
  WRONG(kolo_allreduce(world, NULL, &tensor, &tensor, NULL, NULL), "9 dimensions: give 0 to 8");
  tensor.dims = -1;
  WRONG(kolo_arena_room_for(&tensor, &bytes), "-1 dimensions");
  tensor = good();
  tensor.shape[0] = -4;
  WRONG(kolo_recv(world, &tensor, 0, 0, NULL, NULL, NULL), "-4");
  tensor = good();
  tensor.device = 2;
  WRONG(kolo_allreduce(world, NULL, &tensor, &tensor, NULL, NULL), "there is no device 2");
  tensor.device = KOLO_CPU;
  tensor.index = 1;
  WRONG(kolo_allreduce(world, NULL, &tensor, &tensor, NULL, NULL), "the device's index is 1");
  tensor = good();
  tensor.stream = data;
  WRONG(kolo_allreduce(world, NULL, &tensor, &tensor, NULL, NULL), "a tensor of the CPU has a stream");
  tensor = good();
  tensor.data = NULL;
  WRONG(kolo_allreduce(world, NULL, &tensor, &tensor, NULL, NULL), "null");
  tensor.data = data;
  tensor.device = KOLO_CUDA;
  FAILS(KOLO_UNSUPPORTED, kolo_allreduce(world, NULL, &tensor, &tensor, NULL, NULL), "cuda:0");
}

static void options(kolo_group* world) {
  kolo_tensor tensor = good();
  kolo_allreduce_options reduction = KOLO_ALLREDUCE_OPTIONS_INIT;
  kolo_options plain = KOLO_OPTIONS_INIT;

#define REDUCE(words) WRONG(kolo_allreduce(world, NULL, &tensor, &tensor, &reduction, NULL), words)
  reduction.size = 0;
  REDUCE("the struct's size is 0: start from KOLO_ALLREDUCE_OPTIONS_INIT");
  reduction.size = 1000;
  REDUCE("knows 48 bytes of it");
  reduction.size = sizeof reduction;
  reduction.op = 8;
  REDUCE("there is no operation 8");
  reduction.op = -1;
  REDUCE("there is no operation -1");
  reduction.op = KOLO_BIT_AND;
  REDUCE("bit_and of float32 is not defined");
  reduction.op = KOLO_SUM;
  reduction.send_as = 99;
  REDUCE("there is no dtype 99");
  reduction.send_as = KOLO_INT8;
  REDUCE("int8");
  reduction.send_as = KOLO_OWN_TYPE;
  reduction.timeout = 0;
  REDUCE("greater than zero");
  reduction.timeout = NAN;
  REDUCE("the timeout is not a number");
  reduction.timeout = -1;
  reduction.reserved = 1;
  REDUCE("`reserved` is not 0");
#undef REDUCE
  plain.size = 1;
  WRONG(kolo_broadcast(world, NULL, &tensor, &tensor, 0, &plain, NULL), "start from KOLO_OPTIONS_INIT");
  plain.size = sizeof plain;
  plain.reserved = 1;
  WRONG(kolo_broadcast(world, NULL, &tensor, &tensor, 0, &plain, NULL), "`reserved` is not 0");
  plain.reserved = 0;
  plain.priority = 1;
  WRONG(kolo_barrier(world, NULL, &plain, NULL), "a barrier has no priority");
  plain.priority = 0;
  plain.timeout = NAN;
  WRONG(kolo_barrier(world, NULL, &plain, NULL), "the timeout is not a number");
}

/* What is behind the name and the tensors is given as it is. */
#define NEEDS_INPUT(call, ...)                                                                                         \
  WRONG(call(NULL, NULL, &tensor, __VA_ARGS__), "the group is NULL");                                                  \
  WRONG(call(world, NULL, NULL, __VA_ARGS__), "the input is NULL")
#define NEEDS_OUTPUT(call, ...)                                                                                        \
  NEEDS_INPUT(call, &out, __VA_ARGS__);                                                                                \
  WRONG(call(world, NULL, NULL, NULL, __VA_ARGS__), "the input is NULL");                                              \
  WRONG(call(world, NULL, &tensor, NULL, __VA_ARGS__), "the output is NULL")

static void collectives(kolo_group* world) {
  kolo_tensor tensor = good(), out = tensor_of(other, KOLO_FLOAT32, 4), shorter = tensor_of(other, KOLO_FLOAT32, 3);
  kolo_result* result = NULL;
  kolo_handle* handle = NULL;
  const int64_t split = 3;

  NEEDS_OUTPUT(kolo_allreduce, NULL, NULL);
  NEEDS_OUTPUT(kolo_broadcast, 0, NULL, NULL);
  NEEDS_OUTPUT(kolo_allgather_into, NULL, NULL);
  NEEDS_OUTPUT(kolo_alltoall_into, NULL, 0, NULL, NULL);
  NEEDS_OUTPUT(kolo_reduce_scatter_into, NULL, NULL);
  NEEDS_INPUT(kolo_reduce, &out, 0, NULL, NULL);
  NEEDS_INPUT(kolo_gather_into, &out, 0, NULL, NULL);
  NEEDS_INPUT(kolo_allgather, NULL, &result, NULL);
  NEEDS_INPUT(kolo_gather, 0, NULL, &result, NULL);
  NEEDS_INPUT(kolo_alltoall, NULL, 0, NULL, &result, NULL);
  NEEDS_INPUT(kolo_reduce_scatter, NULL, &result, NULL);
  WRONG(kolo_allgather(world, NULL, &tensor, NULL, NULL, NULL), "the place for the result is NULL");
  WRONG(kolo_gather(world, NULL, &tensor, 0, NULL, NULL, NULL), "the place for the result is NULL");
  WRONG(kolo_alltoall(world, NULL, &tensor, NULL, 0, NULL, NULL, NULL), "the place for the result is NULL");
  WRONG(kolo_reduce_scatter(world, NULL, &tensor, NULL, NULL, NULL), "the place for the result is NULL");
  WRONG(kolo_scatter(NULL, NULL, &tensor, &out, 0, NULL, 0, NULL, NULL), "the group is NULL");
  WRONG(kolo_scatter(world, NULL, &tensor, NULL, 0, NULL, 0, NULL, NULL), "the output is NULL");
  WRONG(kolo_scatter(world, NULL, &tensor, &out, 0, NULL, 1, NULL, NULL), "the list of splits is NULL");
  WRONG(kolo_alltoall(world, NULL, &tensor, NULL, 1, NULL, &result, NULL), "the list of splits is NULL");
  WRONG(kolo_barrier(NULL, NULL, NULL, NULL), "the group is NULL");

  /* What the library refuses (tests/worlds) arrives with its words: a name, a root, an output, splits. */
  WRONG(kolo_allreduce(world, "", &tensor, &out, NULL, NULL), "name");
  WRONG(kolo_allreduce(world, "x", &tensor, &shorter, NULL, &handle), "x");
  WRONG(kolo_allgather(world, "kolo.mine", &tensor, NULL, &result, &handle), "kolo.");
  WRONG(kolo_broadcast(world, NULL, &tensor, &out, -1, NULL, NULL), "-1");
  WRONG(kolo_gather(world, NULL, &tensor, 1, NULL, &result, NULL), "1");
  WRONG(kolo_reduce(world, NULL, &tensor, NULL, 0, NULL, NULL), "output");
  WRONG(kolo_gather_into(world, NULL, &tensor, NULL, 0, NULL, NULL), "output");
  WRONG(kolo_scatter(world, NULL, NULL, &out, 0, NULL, 0, NULL, NULL), "input");
  WRONG(kolo_scatter(world, NULL, &tensor, &out, 0, &split, 1, NULL, NULL), "3");
  WRONG(kolo_alltoall(world, NULL, &tensor, &split, 1, NULL, &result, NULL), "3");
  WRONG(kolo_allgather_into(world, NULL, &tensor, &shorter, NULL, NULL), "");
  CHECK(result == NULL && handle == NULL);
}

static void calls(kolo_group* world) {
  kolo_tensor tensor = good(), out = tensor_of(other, KOLO_FLOAT32, 4);
  kolo_call call = KOLO_CALL_INIT, pair[2] = {KOLO_CALL_INIT, KOLO_CALL_INIT};
  kolo_allreduce_options reduction = KOLO_ALLREDUCE_OPTIONS_INIT;
  kolo_options plain = KOLO_OPTIONS_INIT;
  kolo_named_tensor named[2];
  kolo_result* result = NULL;
  kolo_prepared *prepared = NULL, *again = NULL;
  kolo_handle* handle = NULL;
  const int64_t split = 4;

  call.in = call.out = &tensor;
  WRONG(kolo_run(NULL, NULL, &call, NULL, NULL), "the group is NULL");
  WRONG(kolo_run(world, NULL, NULL, NULL, NULL), "the call is NULL");
  call.size = 63;
  WRONG(kolo_run(world, NULL, &call, NULL, NULL), "start from KOLO_CALL_INIT");
  call.size = sizeof call;
  call.collective = 9;
  WRONG(kolo_run(world, NULL, &call, NULL, NULL), "there is no collective 9");
  call.collective = KOLO_ALLREDUCE;
  WRONG(kolo_run(world, NULL, &call, &result, NULL), "both an output and a place for a result");
  call.out = NULL;
  WRONG(kolo_run(world, NULL, &call, &result, NULL), "has no result of its own");
  call.out = &tensor;
  call.root = 1;
  WRONG(kolo_run(world, NULL, &call, NULL, NULL), "has no `root`: leave it 0");
  call.root = 0;
  call.splits = &split;
  WRONG(kolo_run(world, NULL, &call, NULL, NULL), "has no `splits`");
  call.splits = NULL;
  call.options = &plain;
  WRONG(kolo_run(world, NULL, &call, NULL, NULL), "has no `options`: leave it NULL, and use `reduction`");
  call.options = NULL;
  call.collective = KOLO_BROADCAST;
  call.reduction = &reduction;
  WRONG(kolo_run(world, NULL, &call, NULL, NULL), "has no `reduction`");
  call.reduction = NULL;
  call.collective = KOLO_BARRIER;
  WRONG(kolo_run(world, NULL, &call, NULL, NULL), "has no `in`");
  call.in = NULL;
  WRONG(kolo_run(world, NULL, &call, NULL, NULL), "has no `out`");

  pair[0].in = pair[0].out = &tensor;
  pair[1].in = pair[1].out = &out;
  WRONG(kolo_grouped(NULL, "g", pair, 2, NULL), "the group is NULL");
  WRONG(kolo_grouped(world, "g", NULL, 2, NULL), "the list of calls is NULL, but its length is 2");
  WRONG(kolo_grouped(world, "g", pair, 0, NULL), "");
  pair[1].size = 0;
  WRONG(kolo_grouped(world, "g", pair, 2, NULL), "differ in `size`");
  pair[1].size = sizeof(kolo_call);
  pair[1].collective = KOLO_BROADCAST;
  WRONG(kolo_grouped(world, "g", pair, 2, NULL), "");
  pair[1].collective = KOLO_ALLREDUCE;
  WRONG(kolo_prepare_grouped(NULL, "g", pair, 2, &prepared), "the group is NULL");
  WRONG(kolo_prepare_grouped(world, "g", NULL, 1, &prepared), "the list of calls is NULL");
  WRONG(kolo_prepare_grouped(world, NULL, pair, 2, &prepared), "the name is NULL");
  WRONG(kolo_prepare_grouped(world, "g", pair, 2, NULL), "the place for the prepared call is NULL");

  named[0].name = "a";
  named[0].tensor = tensor;
  named[1].name = "a";
  named[1].tensor = out;
  WRONG(kolo_grouped_allreduce(NULL, "g", named, 2, NULL, NULL), "the group is NULL");
  WRONG(kolo_grouped_allreduce(world, "g", NULL, 2, NULL, NULL), "the list of tensors is NULL");
  WRONG(kolo_grouped_allreduce(world, "g", named, 2, NULL, NULL), "a");
  named[1].name = NULL;
  WRONG(kolo_grouped_allreduce(world, "g", named, 2, NULL, NULL), "a tensor's name is NULL");
  WRONG(kolo_prepare_grouped_allreduce(world, "g", named, 2, NULL, &prepared), "a tensor's name is NULL");
  named[1].name = "b";
  WRONG(kolo_prepare_grouped_allreduce(NULL, "g", named, 2, NULL, &prepared), "the group is NULL");
  WRONG(kolo_prepare_grouped_allreduce(world, "g", named, 2, NULL, NULL), "the place for the prepared call is NULL");

  call.collective = KOLO_ALLREDUCE;
  call.in = call.out = &tensor;
  WRONG(kolo_prepare(NULL, "p", &call, &prepared), "the group is NULL");
  WRONG(kolo_prepare(world, NULL, &call, &prepared), "the name is NULL");
  WRONG(kolo_prepare(world, "p", NULL, &prepared), "the call is NULL");
  WRONG(kolo_prepare(world, "p", &call, NULL), "the place for the prepared call is NULL");
  WRONG(kolo_start(NULL, &handle), "the prepared call is NULL");
  OK(kolo_prepared_release(NULL));
  CHECK(prepared == NULL && result == NULL && handle == NULL);

  OK(kolo_prepare(world, "p", &call, &prepared));
  FAILS(KOLO_DUPLICATE_NAME, kolo_prepare(world, "p", &call, &again), "p");
  FAILS(KOLO_DUPLICATE_NAME, kolo_allreduce(world, "p", &tensor, &tensor, NULL, NULL), "p");
  OK(kolo_prepared_release(prepared));
  OK(kolo_allreduce(world, "p", &tensor, &tensor, NULL, NULL));
}

static void never(void* unused, kolo_status status, const char* sentence) {
  (void)unused, (void)status, (void)sentence;
  CHECK(0);
}

static void handles(kolo_group* world) {
  kolo_tensor tensor = good();
  kolo_handle *handle = NULL, *twice[2], *none[1] = {NULL};
  int32_t answer = 0, ranks[1];
  size_t count = 0;

  WRONG(kolo_wait(NULL, -1.0), "the handle is NULL");
  WRONG(kolo_wait_all(NULL, 1), "the list of handles is NULL");
  WRONG(kolo_wait_all(none, 1), "one of the handles is NULL");
  OK(kolo_wait_all(NULL, 0));
  WRONG(kolo_test(NULL, &answer), "the handle is NULL");
  OK(kolo_release(NULL));
  WRONG(kolo_on_done(NULL, never, NULL), "the handle is NULL");
  WRONG(kolo_cancel(NULL, &answer), "the handle is NULL");
  WRONG(kolo_end(NULL, "why"), "the handle is NULL");
  WRONG(kolo_late_ranks(NULL, 0, ranks, 1, &count), "the handle is NULL");
  WRONG(kolo_cuda_bind(NULL, &answer), "the group is NULL");
  WRONG(kolo_cuda_bind(world, NULL), "the place for the device's number is NULL");
  WRONG(kolo_cuda_wait_on(NULL, NULL), "the handle is NULL");
  WRONG(kolo_lightgbm_attach(NULL), "the group is NULL");
  WRONG(kolo_lightgbm_attach(world), "finds no lib_lightgbm in this process");
  CHECK(kolo_lightgbm_calls() == 0);
  OK(kolo_lightgbm_end_training(NULL)); /* this thread has not attached */
  OK(kolo_lightgbm_end_training("why"));
  OK(kolo_lightgbm_detach());

  OK(kolo_allreduce(world, NULL, &tensor, &tensor, NULL, &handle));
  twice[0] = twice[1] = handle;
  WRONG(kolo_wait_all(twice, 2), "a handle is in the list twice");
  WRONG(kolo_test(handle, NULL), "the place for the answer is NULL");
  WRONG(kolo_on_done(handle, NULL, NULL), "the callback is NULL");
  WRONG(kolo_cancel(handle, NULL), "the place for the answer is NULL");
  WRONG(kolo_cancel(handle, &answer), "only a receive can be cancelled");
  WRONG(kolo_end(handle, NULL), "the reason is NULL");
  WRONG(kolo_late_ranks(handle, 0, NULL, 1, &count), "the room for ranks is NULL");
  WRONG(kolo_late_ranks(handle, 0, ranks, 1, NULL), "the place for the number of ranks is NULL");
  OK(kolo_wait(handle, -1.0));
}

static void messages(kolo_group* world) {
  kolo_tensor tensor = good(), into = tensor_of(other, KOLO_FLOAT32, 4);
  kolo_message_options wrong = KOLO_MESSAGE_OPTIONS_INIT;
  kolo_join_options join = KOLO_JOIN_OPTIONS_INIT;
  int32_t last = 0;

  WRONG(kolo_send(NULL, &tensor, 0, 0, NULL, NULL), "the group is NULL");
  WRONG(kolo_send(world, NULL, 0, 0, NULL, NULL), "the tensor is NULL");
  WRONG(kolo_send(world, &tensor, 1, 0, NULL, NULL), "1");
  WRONG(kolo_send(world, &tensor, 0, -1, NULL, NULL), "-1");
  WRONG(kolo_recv(NULL, &tensor, 0, 0, NULL, NULL, NULL), "the group is NULL");
  WRONG(kolo_recv(world, NULL, 0, 0, NULL, NULL, NULL), "the tensor is NULL");
  WRONG(kolo_recv(world, &tensor, 9, 0, NULL, NULL, NULL), "9");
  WRONG(kolo_recv(world, &tensor, 0, -2, NULL, NULL, NULL), "-2");
  WRONG(kolo_sendrecv(NULL, &tensor, 0, 0, &into, 0, 0, NULL, NULL), "the group is NULL");
  WRONG(kolo_sendrecv(world, NULL, 0, 0, &into, 0, 0, NULL, NULL), "the tensor is NULL");
  WRONG(kolo_sendrecv(world, &tensor, 0, 0, NULL, 0, 0, NULL, NULL), "the tensor to receive into is NULL");
  WRONG(kolo_sendrecv(world, &tensor, 0, 0, &tensor, 0, 0, NULL, NULL), "overlap");
  wrong.size = 0;
  WRONG(kolo_send(world, &tensor, 0, 0, &wrong, NULL), "start from KOLO_MESSAGE_OPTIONS_INIT");
  wrong.size = sizeof wrong;
  wrong.timeout = 0.0;
  WRONG(kolo_recv(world, &tensor, 0, 0, &wrong, NULL, NULL), "");
  wrong.timeout = 0.01;
  FAILS(KOLO_EXPIRED, kolo_recv(world, &tensor, 0, 0, &wrong, NULL, NULL), "");

  WRONG(kolo_join(NULL, NULL, &last, NULL), "the group is NULL");
  join.counts_in_averages = 2;
  WRONG(kolo_join(world, &join, &last, NULL), "counts_in_averages is 0 or 1");
  join.counts_in_averages = 0;
  join.timeout = 0;
  WRONG(kolo_join(world, &join, &last, NULL), "greater than zero");
  join.size = 1;
  WRONG(kolo_join(world, &join, &last, NULL), "start from KOLO_JOIN_OPTIONS_INIT");
  WRONG(kolo_end_step(NULL), "the group is NULL");
}

static void results(kolo_group* world) {
  kolo_tensor tensor = good(), read;
  kolo_named_tensor parameter;
  kolo_result *gathered = NULL, *bytes = NULL;
  const int64_t* splits = NULL;
  int64_t interval = 0;
  const void* text = NULL;
  size_t size = 0;

  WRONG(kolo_broadcast_bytes(NULL, "x", 1, 0, &bytes), "the group is NULL");
  WRONG(kolo_broadcast_bytes(world, NULL, 1, 0, &bytes), "the data is NULL, but its length is 1");
  WRONG(kolo_broadcast_bytes(world, "x", 1, 0, NULL), "the place for the result is NULL");
  WRONG(kolo_broadcast_bytes(world, "x", 1, 1, &bytes), "1");
  WRONG(kolo_allgather_bytes(NULL, "x", 1, &bytes), "the group is NULL");
  WRONG(kolo_allgather_bytes(world, NULL, 1, &bytes), "the data is NULL");
  WRONG(kolo_allgather_bytes(world, "x", 1, NULL), "the place for the result is NULL");
  WRONG(kolo_metrics(NULL, &bytes), "the group is NULL");
  WRONG(kolo_metrics(world, NULL), "the place for the result is NULL");
  WRONG(kolo_describe(NULL, &bytes), "the group is NULL");
  WRONG(kolo_describe(world, NULL), "the place for the result is NULL");
  WRONG(kolo_settings(NULL, &bytes), "the group is NULL");
  WRONG(kolo_settings(world, NULL), "the place for the result is NULL");
  WRONG(kolo_devices(NULL), "the place for the result is NULL");
  WRONG(kolo_start_timeline(NULL, "x"), "the context is NULL");
  WRONG(kolo_stop_timeline(NULL), "the context is NULL");
  WRONG(kolo_explain_job("/nowhere", &bytes), "there is no recorder in \"/nowhere\"");
  WRONG(kolo_explain_job(NULL, NULL), "the place for the result is NULL");
  parameter.name = "";
  parameter.tensor = tensor;
  WRONG(kolo_broadcast_parameters(NULL, &parameter, 1, 0), "the group is NULL");
  WRONG(kolo_broadcast_parameters(world, NULL, 1, 0), "the list of tensors is NULL");
  WRONG(kolo_broadcast_parameters(world, &parameter, 1, 0), "name");
  WRONG(kolo_replica_interval(NULL, &interval), "the group is NULL");
  WRONG(kolo_replica_interval(world, NULL), "the place for the interval is NULL");
  WRONG(kolo_check_replicas(NULL, NULL, &parameter, 1, 0), "the group is NULL");
  WRONG(kolo_check_replicas(world, NULL, NULL, 1, 0), "the list of tensors is NULL");
  parameter.name = NULL;
  WRONG(kolo_broadcast_parameters(world, &parameter, 1, 0), "a tensor's name is NULL");
  WRONG(kolo_check_replicas(world, NULL, &parameter, 1, 0), "a tensor's name is NULL");

  OK(kolo_allgather(world, NULL, &tensor, NULL, &gathered, NULL));
  WRONG(kolo_result_tensor(NULL, &read), "the result is NULL");
  WRONG(kolo_result_tensor(gathered, NULL), "the place for the tensor is NULL");
  WRONG(kolo_result_splits(gathered, &splits, &size), "which alone has splits");
  WRONG(kolo_result_bytes(gathered, 0, &text, &size), "read it by kolo_result_tensor");
  OK(kolo_metrics(world, &bytes));
  WRONG(kolo_result_tensor(bytes, &read), "read it by kolo_result_bytes");
  WRONG(kolo_result_splits(NULL, &splits, &size), "the result is NULL");
  WRONG(kolo_result_splits(bytes, &splits, &size), "read it by kolo_result_bytes");
  WRONG(kolo_result_bytes(NULL, 0, &text, &size), "the result is NULL");
  WRONG(kolo_result_bytes(bytes, 1, &text, &size), "1 parts, and no part 1");
  WRONG(kolo_result_bytes(bytes, 0, NULL, &size), "the place for the data is NULL");
  WRONG(kolo_result_bytes(bytes, 0, &text, NULL), "the place for the size is NULL");
  OK(kolo_result_release(gathered));
  OK(kolo_result_release(bytes));
  OK(kolo_result_release(NULL));
}

static void arenas(kolo_group* world) {
  kolo_tensor tensor = good();
  kolo_named_tensor gradient;
  kolo_arena* arena = NULL;
  int32_t answer = 0;
  size_t bytes = 0;

  WRONG(kolo_arena_make(NULL, 4096, KOLO_CPU, 0, NULL, &arena), "the group is NULL");
  WRONG(kolo_arena_make(world, 4096, 5, 0, NULL, &arena), "there is no device 5");
  WRONG(kolo_arena_make(world, 4096, KOLO_CPU, 1, NULL, &arena), "index is 1");
  WRONG(kolo_arena_make(world, 4096, KOLO_CPU, 0, NULL, NULL), "the place for the arena is NULL");
  gradient.name = "w";
  gradient.tensor = tensor;
  WRONG(kolo_arena_for(NULL, &gradient, 1, NULL, &arena), "the group is NULL");
  WRONG(kolo_arena_for(world, NULL, 1, NULL, &arena), "the list of tensors is NULL");
  WRONG(kolo_arena_for(world, &gradient, 1, NULL, NULL), "the place for the arena is NULL");
  WRONG(kolo_arena_allocate(NULL, &tensor), "the arena is NULL");
  WRONG(kolo_arena_room_for(NULL, &bytes), "the tensor is NULL");
  WRONG(kolo_arena_room_for(&tensor, NULL), "the place for the bytes is NULL");
  WRONG(kolo_arena_sizes(NULL, &bytes, &bytes), "the arena is NULL");
  WRONG(kolo_arena_contains(NULL, data, &answer), "the arena is NULL");
  OK(kolo_arena_release(NULL));
  CHECK(arena == NULL);

  OK(kolo_arena_make(world, 4096, KOLO_CPU, 0, NULL, &arena));
  WRONG(kolo_arena_allocate(arena, NULL), "the tensor is NULL");
  WRONG(kolo_arena_contains(arena, data, NULL), "the place for the answer is NULL");
  tensor.shape[0] = 1 << 20;
  WRONG(kolo_arena_allocate(arena, &tensor), "");
  CHECK(tensor.data == data);
  OK(kolo_arena_release(arena));
}

static void dlpack(void) {
  int64_t shape[KOLO_MAX_DIMS] = {2, 1, 2}, strides[KOLO_MAX_DIMS] = {2, 77, 1};
  kolo_dl_tensor dl;
  kolo_tensor tensor = good();

  memset(&dl, 0, sizeof dl);
  dl.data = data;
  dl.device.device_type = 1;
  dl.dtype.code = 2;
  dl.dtype.bits = 32;
  dl.dtype.lanes = 1;
  dl.ndim = 3;
  dl.shape = shape;
  WRONG(kolo_tensor_from_dlpack(NULL, &tensor), "the DLPack tensor is NULL");
  WRONG(kolo_tensor_from_dlpack(&dl, NULL), "the place for the tensor is NULL");
  OK(kolo_tensor_from_dlpack(&dl, &tensor));
  dl.strides = strides; /* that of a dimension of one says nothing */
  OK(kolo_tensor_from_dlpack(&dl, &tensor));
  CHECK(tensor.data == data && tensor.dtype == KOLO_FLOAT32 && tensor.dims == 3 && tensor.shape[2] == 2);
  strides[0] = 4;
  WRONG(kolo_tensor_from_dlpack(&dl, &tensor), "dimension 0 has the stride 4 instead of 2; make a contiguous copy");
  strides[0] = 2;
  strides[2] = -1;
  WRONG(kolo_tensor_from_dlpack(&dl, &tensor), "dimension 2 has the stride -1 instead of 1");
  dl.strides = NULL;
  dl.ndim = 9;
  WRONG(kolo_tensor_from_dlpack(&dl, &tensor), "9 dimensions");
  dl.ndim = 3;
  dl.shape = NULL;
  WRONG(kolo_tensor_from_dlpack(&dl, &tensor), "shape is NULL");
  dl.shape = shape;
  dl.dtype.lanes = 4;
  WRONG(kolo_tensor_from_dlpack(&dl, &tensor), "vectors of 4");
  dl.dtype.lanes = 1;
  dl.dtype.code = 5;
  FAILS(KOLO_UNSUPPORTED, kolo_tensor_from_dlpack(&dl, &tensor), "DLPack's type 5 with 32 bits");
  dl.dtype.code = 4;
  dl.dtype.bits = 16;
  dl.byte_offset = 4;
  dl.device.device_type = 3;
  OK(kolo_tensor_from_dlpack(&dl, &tensor));
  CHECK(tensor.dtype == KOLO_BFLOAT16 && tensor.data == data + 1 && tensor.device == KOLO_CPU);
  dl.device.device_type = 2;
  dl.device.device_id = 1;
  OK(kolo_tensor_from_dlpack(&dl, &tensor));
  CHECK(tensor.device == KOLO_CUDA && tensor.index == 1);
  dl.device.device_type = 7;
  FAILS(KOLO_UNSUPPORTED, kolo_tensor_from_dlpack(&dl, &tensor), "a device of type 7");

  tensor = good();
  WRONG(kolo_tensor_to_dlpack(NULL, shape, strides, &dl), "the tensor is NULL");
  WRONG(kolo_tensor_to_dlpack(&tensor, NULL, strides, &dl), "the room for the shape is NULL");
  WRONG(kolo_tensor_to_dlpack(&tensor, shape, NULL, &dl), "the room for the strides is NULL");
  WRONG(kolo_tensor_to_dlpack(&tensor, shape, strides, NULL), "the place for the DLPack tensor is NULL");
  tensor.dims = 2;
  tensor.shape[0] = tensor.shape[1] = 2;
  OK(kolo_tensor_to_dlpack(&tensor, shape, strides, &dl));
  CHECK(dl.data == data && dl.ndim == 2 && dl.shape[1] == 2 && dl.strides[0] == 2 && dl.strides[1] == 1);
  CHECK(dl.dtype.code == 2 && dl.dtype.bits == 32 && dl.device.device_type == 1 && dl.byte_offset == 0);
}

int main(void) {
  kolo_context* context = NULL;
  kolo_group* world = NULL;

  CHECK(strcmp(kolo_last_error(), "") == 0);
  versions();
  starts();
  ranks_as_threads();
  dlpack();
  OK(kolo_init(NULL, &context));
  world = kolo_world(context);
  groups(context);
  tensors(world);
  options(world);
  collectives(world);
  calls(world);
  handles(world);
  messages(world);
  results(world);
  arenas(world);
  OK(kolo_shutdown(context));
  printf("PASS arguments\n");
  return 0;
}
