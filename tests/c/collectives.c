/* SPDX-License-Identifier: Apache-2.0 */
/* Every call in every form, on as many ranks as there are.
   usage: collectives [RANKS]    RANKS: that many threads of this process; else the launcher's job */
#include "check.h"

/* A form of a call: with a name or without, waiting or started. */
typedef struct form {
  int is_named, is_started;
} form;
static const form kForms[4] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};

typedef struct place {
  kolo_context* context;
  kolo_group* world;
  int32_t rank, size;
} place;

enum { kMost = 8, kRows = 3 };

static kolo_handle** handle_of(form how, kolo_handle** handle) { return how.is_started ? handle : NULL; }
static const char* name_of(form how, const char* name) { return how.is_named ? name : NULL; }
static void finish(form how, kolo_handle* handle) {
  if (how.is_started) OK(kolo_wait(handle, -1.0));
}

/* Checks a call; with a handle, waits for it, too. */
#define MAKE(call)                                                                                                     \
  do {                                                                                                                 \
    kolo_handle* h = NULL;                                                                                             \
    kolo_handle** handle = handle_of(how, &h);                                                                         \
    OK(call);                                                                                                          \
    finish(how, h);                                                                                                    \
  } while (0)

/* Rank r's element i is r + 1 + 10 i, and so the sum over n ranks is n (n + 1) / 2 + 10 n i. */
static void fill(float* data, int count, int32_t rank) {
  int i;
  for (i = 0; i < count; ++i) data[i] = (float)(rank + 1 + 10 * i);
}
static float sum_at(const place* at, int i) {
  return (float)(at->size * (at->size + 1)) / 2.0F + (float)(10 * at->size * i);
}

static void reductions(const place* at, form how) {
  float in[kRows * kMost], out[kRows * kMost];
  int64_t number = at->rank;
  const int count = kRows * at->size + 1; /* rank 0 gets one row more of a reduce-scatter */
  const int mine = kRows + (at->rank == 0), first = at->rank * kRows + (at->rank > 0);
  kolo_tensor a, b, integer = tensor_of(&number, KOLO_INT64, 1), rows;
  kolo_allreduce_options options = KOLO_ALLREDUCE_OPTIONS_INIT;
  kolo_result* result = NULL;
  int i;

  a = tensor_of(in, KOLO_FLOAT32, count < kRows * kMost ? count : kRows * kMost);
  b = tensor_of(out, KOLO_FLOAT32, a.shape[0]);
  fill(in, (int)a.shape[0], at->rank);
  MAKE(kolo_allreduce(at->world, name_of(how, "allreduce"), &a, &b, NULL, handle));
  for (i = 0; i < a.shape[0]; ++i) CHECK(out[i] == sum_at(at, i) && in[i] == (float)(at->rank + 1 + 10 * i));
  MAKE(kolo_reduce(at->world, name_of(how, "reduce"), &a, at->rank == 0 ? &b : NULL, 0, NULL, handle));
  if (at->rank == 0) CHECK(out[1] == sum_at(at, 1));
  MAKE(kolo_reduce_scatter(at->world, name_of(how, "reduce_scatter"), &a, NULL, &result, handle));
  OK(kolo_result_tensor(result, &rows));
  CHECK(rows.dims == 1 && rows.shape[0] == mine && rows.dtype == KOLO_FLOAT32 && rows.device == KOLO_CPU);
  for (i = 0; i < mine; ++i) CHECK(((const float*)rows.data)[i] == sum_at(at, first + i));
  OK(kolo_result_release(result));
  b.shape[0] = mine;
  MAKE(kolo_reduce_scatter_into(at->world, name_of(how, "into"), &a, &b, NULL, handle));
  CHECK(out[mine - 1] == sum_at(at, first + mine - 1));
  options.op = KOLO_AVERAGE;
  options.send_as = KOLO_BFLOAT16;
  options.priority = how.is_named ? 3 : 0;
  in[0] = 2.0F;
  a.shape[0] = 1;
  MAKE(kolo_allreduce(at->world, name_of(how, "average"), &a, &a, &options, handle));
  CHECK(in[0] == 2.0F);
  options.send_as = KOLO_OWN_TYPE;
  options.priority = 0;
  options.op = KOLO_MAX;
  options.timeout = 60.0;
  MAKE(kolo_allreduce(at->world, name_of(how, "max"), &integer, &integer, &options, handle));
  CHECK(number == at->size - 1);
  fill(in, 1, at->rank);
  MAKE(kolo_reduce(at->world, name_of(how, "in place"), &a, &a, at->size - 1, NULL, handle));
  CHECK(in[0] == (at->rank == at->size - 1 ? sum_at(at, 0) : (float)(at->rank + 1)));
}

static void copies(const place* at, form how) {
  float in[kMost * kMost], out[kMost * kMost];
  int64_t splits[kMost];
  const int64_t* received = NULL;
  size_t count = 0;
  kolo_tensor a = tensor_of(in, KOLO_FLOAT32, 2), b = tensor_of(out, KOLO_FLOAT32, 2), rows;
  kolo_result* result = NULL;
  const int total = at->size * (at->size + 1) / 2;
  int i;

  fill(in, 2, at->rank);
  MAKE(kolo_broadcast(at->world, name_of(how, "broadcast"), &a, &b, at->size - 1, NULL, handle));
  CHECK(out[1] == (float)(at->size + 10));
  MAKE(kolo_broadcast(at->world, name_of(how, "broadcast in place"), &a, &a, 0, NULL, handle));
  CHECK(in[1] == 11.0F);

  a.shape[0] = at->rank + 1; /* rank r gives r + 1 rows */
  for (i = 0; i <= at->rank; ++i) in[i] = (float)at->rank;
  MAKE(kolo_allgather(at->world, name_of(how, "allgather"), &a, NULL, &result, handle));
  OK(kolo_result_tensor(result, &rows));
  CHECK(rows.shape[0] == total && ((const float*)rows.data)[total - 1] == (float)(at->size - 1));
  OK(kolo_result_release(result));
  b.shape[0] = total;
  MAKE(kolo_allgather_into(at->world, name_of(how, "allgather_into"), &a, &b, NULL, handle));
  CHECK(out[0] == 0.0F && out[total - 1] == (float)(at->size - 1));
  MAKE(kolo_gather(at->world, name_of(how, "gather"), &a, 0, NULL, &result, handle));
  OK(kolo_result_tensor(result, &rows));
  CHECK(rows.shape[0] == (at->rank == 0 ? total : 0));
  OK(kolo_result_release(result));
  MAKE(kolo_gather_into(at->world, name_of(how, "gather_into"), &a, at->rank == 0 ? &b : NULL, 0, NULL, handle));

  for (i = 0; i < at->size; ++i) splits[i] = i + 1;
  fill(in, total, 0);
  a.shape[0] = total;
  b.shape[0] = at->rank + 1;
  MAKE(kolo_scatter(at->world, name_of(how, "scatter"), at->rank == 0 ? &a : NULL, &b, 0, at->rank == 0 ? splits : NULL,
                    at->rank == 0 ? (size_t)at->size : 0, NULL, handle));
  CHECK(out[0] == (float)(1 + 10 * (at->rank * (at->rank + 1) / 2)));
  a.shape[0] = at->size;
  b.shape[0] = 1;
  MAKE(kolo_scatter(at->world, name_of(how, "equal"), &a, &b, 0, NULL, 0, NULL, handle));
  CHECK(out[0] == (float)(1 + 10 * at->rank));

  for (i = 0; i < at->size; ++i) splits[i] = at->rank; /* rank r sends r rows to each */
  for (i = 0; i < at->size * at->rank; ++i) in[i] = (float)at->rank;
  a.shape[0] = at->size * at->rank;
  MAKE(kolo_alltoall(at->world, name_of(how, "alltoall"), &a, splits, (size_t)at->size, NULL, &result, handle));
  OK(kolo_result_splits(result, &received, &count));
  CHECK(count == (size_t)at->size && received[at->size - 1] == at->size - 1);
  OK(kolo_result_tensor(result, &rows));
  CHECK(rows.shape[0] == total - at->size);
  OK(kolo_result_release(result));
  fill(in, at->size, at->rank);
  a.shape[0] = b.shape[0] = at->size;
  MAKE(kolo_alltoall_into(at->world, name_of(how, "alltoall_into"), &a, &b, NULL, 0, NULL, handle));
  CHECK(out[at->size - 1] == (float)(at->size + 10 * at->rank));
  MAKE(kolo_alltoall(at->world, name_of(how, "equal alltoall"), &a, NULL, 0, NULL, &result, handle));
  OK(kolo_result_splits(result, &received, &count));
  CHECK(count == (size_t)at->size && received[0] == 1);
  OK(kolo_result_release(result));
  MAKE(kolo_barrier(at->world, name_of(how, "barrier"), NULL, handle));
}

static void calls(const place* at, form how) {
  float in[2], other[3];
  kolo_tensor a = tensor_of(in, KOLO_FLOAT32, 2), b = tensor_of(other, KOLO_FLOAT32, 3), rows;
  kolo_call call = KOLO_CALL_INIT, both[2] = {KOLO_CALL_INIT, KOLO_CALL_INIT};
  kolo_named_tensor named[2];
  kolo_prepared *one = NULL, *pair = NULL, *list = NULL;
  kolo_result* result = NULL;
  int i;

  call.in = call.out = &a;
  fill(in, 2, at->rank);
  MAKE(kolo_run(at->world, name_of(how, "run"), &call, NULL, handle));
  CHECK(in[1] == sum_at(at, 1));
  call.collective = KOLO_ALLGATHER;
  call.out = NULL;
  MAKE(kolo_run(at->world, name_of(how, "run for a result"), &call, &result, handle));
  OK(kolo_result_tensor(result, &rows));
  CHECK(rows.shape[0] == 2 * at->size);
  OK(kolo_result_release(result));

  both[0].in = both[0].out = &a;
  both[1].in = both[1].out = &b;
  named[0].name = "a";
  named[0].tensor = a;
  named[1].name = "b";
  named[1].tensor = b;
  fill(in, 2, at->rank);
  fill(other, 3, at->rank);
  MAKE(kolo_grouped(at->world, "grouped", both, 2, handle));
  CHECK(in[1] == sum_at(at, 1) && other[2] == sum_at(at, 2));
  fill(in, 2, at->rank);
  fill(other, 3, at->rank);
  MAKE(kolo_grouped_allreduce(at->world, "list", named, 2, NULL, handle));
  CHECK(in[1] == sum_at(at, 1) && other[2] == sum_at(at, 2));

  OK(kolo_prepare(at->world, "one", &both[0], &one));
  OK(kolo_prepare_grouped(at->world, "pair", both, 2, &pair));
  OK(kolo_prepare_grouped_allreduce(at->world, "prepared list", named, 2, NULL, &list));
  for (i = 0; i < 3; ++i) {
    fill(in, 2, at->rank);
    fill(other, 3, at->rank);
    MAKE(kolo_start(one, handle));
    CHECK(in[1] == sum_at(at, 1));
    fill(in, 2, at->rank);
    MAKE(kolo_start(pair, handle));
    CHECK(in[1] == sum_at(at, 1) && other[2] == sum_at(at, 2));
    fill(in, 2, at->rank);
    MAKE(kolo_start(list, handle));
    CHECK(in[1] == sum_at(at, 1));
    OK(kolo_end_step(at->world));
  }
  OK(kolo_prepared_release(one));
  OK(kolo_prepared_release(pair));
  OK(kolo_prepared_release(list));
}

static void messages(const place* at) {
  float mine = (float)at->rank, got = -1.0F;
  kolo_tensor a = tensor_of(&mine, KOLO_FLOAT32, 1), b = tensor_of(&got, KOLO_FLOAT32, 1);
  const int32_t next = (at->rank + 1) % at->size, before = (at->rank + at->size - 1) % at->size;
  kolo_received received;
  kolo_handle *sent = NULL, *receive = NULL;
  int32_t answer = -1;

  memset(&received, -1, sizeof received);
  OK(kolo_sendrecv(at->world, &a, next, 5, &b, before, KOLO_ANY_TAG, NULL, &received));
  CHECK(got == (float)before && received.source == before && received.tag == 5 && received.elements == 1);
  OK(kolo_recv(at->world, &b, KOLO_ANY_RANK, 6, NULL, &received, &receive));
  OK(kolo_send(at->world, &a, next, 6, NULL, &sent));
  OK(kolo_wait(receive, -1.0));
  OK(kolo_wait(sent, -1.0));
  CHECK(received.source == before && received.tag == 6);
  OK(kolo_send(at->world, &a, next, 7, NULL, NULL));
  OK(kolo_recv(at->world, &b, before, 7, NULL, NULL, NULL));

  OK(kolo_recv(at->world, &b, before, 8, NULL, &received, &receive)); /* for which no message comes */
  FAILS(KOLO_PENDING, kolo_wait(receive, 0.0), "not done yet");
  OK(kolo_test(receive, &answer));
  CHECK(answer == 0);
  OK(kolo_cancel(receive, &answer));
  CHECK(answer == 1);
  FAILS(KOLO_CANCELLED, kolo_wait(receive, -1.0), "");
  OK(kolo_recv(at->world, &b, before, 9, NULL, NULL, &receive));
  OK(kolo_end(receive, "enough"));
  FAILS(KOLO_USER_EXCEPTION, kolo_wait(receive, -1.0), "enough");
}

static void bytes(const place* at) {
  char mine[kMost];
  kolo_result* result = NULL;
  const void* data = NULL;
  size_t size = 0;
  int32_t i;

  memset(mine, 'a' + at->rank, sizeof mine);
  OK(kolo_allgather_bytes(at->world, mine, (size_t)at->rank, &result));
  for (i = 0; i < at->size; ++i) {
    OK(kolo_result_bytes(result, (size_t)i, &data, &size));
    CHECK(size == (size_t)i && ((const char*)data)[size] == '\0' && (i == 0 || ((const char*)data)[i - 1] == 'a' + i));
  }
  OK(kolo_result_release(result));
  OK(kolo_broadcast_bytes(at->world, at->rank == 0 ? "hello" : NULL, at->rank == 0 ? 5 : 0, 0, &result));
  OK(kolo_result_bytes(result, 0, &data, &size));
  CHECK(size == 5 && strcmp((const char*)data, "hello") == 0);
  OK(kolo_result_release(result));
  OK(kolo_metrics(at->world, &result));
  OK(kolo_result_bytes(result, 0, &data, &size));
  CHECK(strncmp((const char*)data, "{\"submissions\": ", 16) == 0 && ((const char*)data)[size - 1] == '}');
  OK(kolo_result_release(result));
  OK(kolo_describe(at->world, &result));
  OK(kolo_result_bytes(result, 0, &data, &size));
  CHECK(strstr((const char*)data, kolo_version()) != NULL);
  OK(kolo_result_release(result));
  OK(kolo_settings(at->world, &result));
  OK(kolo_result_bytes(result, 0, &data, &size));
  CHECK(strstr((const char*)data, "{\"name\": \"KOLO_TIMEOUT_S\", \"value\": ") != NULL);
  CHECK(((const char*)data)[0] == '[' && ((const char*)data)[size - 1] == ']');
  OK(kolo_result_release(result));
  OK(kolo_devices(&result));
  OK(kolo_result_bytes(result, 0, &data, &size));
  CHECK(((const char*)data)[0] == '[' && ((const char*)data)[size - 1] == ']');
  OK(kolo_result_release(result));
}

static void memory(const place* at) {
  float value = (float)at->rank, unused[6];
  kolo_named_tensor tensors[2];
  kolo_tensor tensor = tensor_of(NULL, KOLO_FLOAT32, 6);
  kolo_arena* arena = NULL;
  size_t room = 0, capacity = 0, allocated = 0;
  int32_t answer = 0;
  int64_t interval = -1;

  tensors[0].name = "value";
  tensors[0].tensor = tensor_of(&value, KOLO_FLOAT32, 1);
  OK(kolo_broadcast_parameters(at->world, tensors, 1, at->size - 1));
  CHECK(value == (float)(at->size - 1));

  OK(kolo_replica_interval(at->world, &interval));
  CHECK(interval == 0);
  OK(kolo_check_replicas(at->world, NULL, tensors, 1, 0));
  if (at->size > 1) {
    if (at->rank == 0) value += 1;
    CHECK(kolo_check_replicas(at->world, NULL, tensors, 1, -1) == KOLO_MISMATCH);
    CHECK(strstr(kolo_last_error(), "parameter \"value\" is not the same on all ranks: rank") != NULL);
    CHECK(kolo_check_replicas(at->world, "mine", tensors, 1, 0) == KOLO_MISMATCH);
    CHECK(strstr(kolo_last_error(), "not the same on all ranks before the first step: rank") != NULL);
    CHECK(strstr(kolo_last_error(), "broadcast_parameters") != NULL);
    CHECK(kolo_check_replicas(at->world, "mine", tensors, 1, 7) == KOLO_MISMATCH);
    CHECK(strstr(kolo_last_error(), "not the same on all ranks after step 7 (KOLO_CHECK_REPLICAS): rank") != NULL);
  }

  tensor.shape[0] = 6;
  tensor.data = unused;
  OK(kolo_arena_room_for(&tensor, &room));
  CHECK(room >= sizeof unused && room % 64 == 0);
  OK(kolo_arena_make(at->world, 2 * room, KOLO_CPU, 0, "own", &arena));
  OK(kolo_arena_allocate(arena, &tensor));
  OK(kolo_arena_sizes(arena, &capacity, &allocated));
  CHECK(capacity >= 2 * room && allocated == room);
  OK(kolo_arena_contains(arena, tensor.data, &answer));
  CHECK(answer == 1 && ((float*)tensor.data)[5] == 0.0F);
  fill((float*)tensor.data, 6, at->rank);
  OK(kolo_allreduce(at->world, "in the arena", &tensor, &tensor, NULL, NULL));
  CHECK(((float*)tensor.data)[5] == sum_at(at, 5));
  OK(kolo_arena_contains(arena, unused, &answer));
  CHECK(answer == 0);
  OK(kolo_arena_release(arena));

  tensors[0].tensor = tensors[1].tensor = tensor_of(unused, KOLO_FLOAT32, 6);
  tensors[1].name = "other";
  OK(kolo_arena_for(at->world, tensors, 2, NULL, &arena));
  OK(kolo_arena_contains(arena, tensors[1].tensor.data, &answer));
  CHECK(answer == 1 && tensors[0].tensor.data != tensors[1].tensor.data);
  OK(kolo_arena_sizes(arena, NULL, NULL));
  OK(kolo_arena_release(arena));
}

static void groups(const place* at) {
  kolo_group *half = NULL, *reversed = NULL, *none = NULL;
  int32_t rank = -1, size = -1, members[kMost], i, number = at->rank;
  kolo_group_options named = KOLO_GROUP_OPTIONS_INIT;
  kolo_result* address = NULL;
  const void* text = NULL;
  size_t length = 0;
  kolo_tensor tensor = tensor_of(&number, KOLO_INT32, 1);

  OK(kolo_local_rank(at->context, &rank));
  OK(kolo_local_size(at->context, &size));
  CHECK(rank >= 0 && rank < size);
  OK(kolo_cross_rank(at->context, &rank));
  OK(kolo_cross_size(at->context, &size));
  CHECK(rank >= 0 && rank < size);

  OK(kolo_group_split(at->world, at->rank % 2, -at->rank, NULL, &half));
  OK(kolo_size(half, &size));
  CHECK(size == (at->size + 1 - at->rank % 2) / 2);
  OK(kolo_group_members(half, members, kMost));
  for (i = 1; i < size; ++i) CHECK(members[i] == members[i - 1] - 2);
  OK(kolo_allreduce(half, NULL, &tensor, &tensor, NULL, NULL));
  OK(kolo_group_release(half));

  OK(kolo_address(at->world, at->size - 1, &address));
  OK(kolo_result_bytes(address, 0, &text, &length));
  CHECK(length > 0 && strlen((const char*)text) == length && strspn((const char*)text, "0123456789abcdef.:") == length);
  OK(kolo_result_release(address));

  named.name = "reversed";
  named.timeout = 60;
  for (i = 0; i < at->size; ++i) members[i] = at->size - 1 - i;
  OK(kolo_group_of(at->world, members, (size_t)at->size, &named, &reversed));
  OK(kolo_rank(reversed, &rank));
  CHECK(rank == at->size - 1 - at->rank);
  OK(kolo_group_is_member(reversed, &rank));
  CHECK(rank == 1);
  OK(kolo_group_release(reversed));

  OK(kolo_group_split(at->world, KOLO_NO_GROUP, 0, NULL, &none));
  OK(kolo_group_is_member(none, &rank));
  CHECK(rank == 0);
  OK(kolo_group_release(none));
}

/* An operation's outcome comes twice: from a callback, and from kolo_wait. */
typedef struct outcome {
  kolo_status status;
  int names_tensor, is_done;
} outcome;
static void note(void* data, kolo_status status, const char* sentence) {
  outcome* const to = (outcome*)data;
  to->status = status;
  to->names_tensor = strstr(sentence, "disagreed") != NULL;
  __atomic_store_n(&to->is_done, 1, __ATOMIC_RELEASE);
}

static void outcomes(const place* at) {
  float data[kMost + 1];
  kolo_tensor tensor = tensor_of(data, KOLO_FLOAT32, at->rank + 1);
  kolo_handle *handle = NULL, *handles[3];
  outcome seen = {KOLO_OK, 0, 0};
  int32_t late[kMost];
  size_t count = 99;
  int i;

  if (at->size > 1) { /* shapes that differ: an error on every rank, and the job goes on */
    FAILS(KOLO_MISMATCH, kolo_allreduce(at->world, "disagreed", &tensor, &tensor, NULL, NULL), "disagreed");
    OK(kolo_allreduce(at->world, "disagreed", &tensor, &tensor, NULL, &handle));
    OK(kolo_on_done(handle, note, &seen));
    FAILS(KOLO_MISMATCH, kolo_wait(handle, -1.0), "disagreed");
    while (__atomic_load_n(&seen.is_done, __ATOMIC_ACQUIRE) == 0) continue; /* it may come after the wait */
    CHECK(seen.status == KOLO_MISMATCH && seen.names_tensor);
  }
  memset(data, 0, sizeof data);
  tensor.shape[0] = 1;
  for (i = 0; i < 3; ++i) {
    handles[i] = NULL;
    OK(kolo_allreduce(at->world, NULL, &tensor, &tensor, NULL, &handles[i]));
    OK(kolo_wait(handles[i], 30.0));
    OK(kolo_barrier(at->world, NULL, NULL, &handles[i]));
  }
  OK(kolo_wait_all(handles, 3));

  /* Rank 0 waits for a name that the others have not submitted. */
  if (at->rank == 0 && at->size > 1) {
    OK(kolo_barrier(at->world, "late", NULL, &handle));
    FAILS(KOLO_PENDING, kolo_wait(handle, 0.02), "not done yet");
    OK(kolo_late_ranks(handle, 30.0, late, kMost, &count));
    CHECK(count == (size_t)at->size - 1 && late[0] == 1);
  }
  OK(kolo_barrier(at->world, NULL, NULL, NULL));
  if (at->rank != 0 || at->size == 1) OK(kolo_barrier(at->world, "late", NULL, &handle));
  OK(kolo_wait(handle, -1.0));
}

static void joins(const place* at) {
  float value = 1.0F;
  kolo_tensor tensor = tensor_of(&value, KOLO_FLOAT32, 1);
  kolo_join_options options = KOLO_JOIN_OPTIONS_INIT;
  kolo_handle* handle = NULL;
  int32_t last = -1;

  options.timeout = 60.0;
  if (at->rank == at->size - 1 && at->size > 1) {
    OK(kolo_join(at->world, &options, &last, &handle));
    OK(kolo_wait(handle, -1.0));
  } else {
    OK(kolo_allreduce(at->world, "uneven", &tensor, &tensor, NULL, NULL));
    OK(kolo_join(at->world, NULL, &last, NULL));
  }
  CHECK(last >= 0 && last < at->size);
  OK(kolo_join(at->world, NULL, NULL, NULL));
}

static kolo_status run_rank(void* unused, kolo_context* context) {
  place at;
  int i;

  (void)unused;
  at.context = context;
  at.world = kolo_world(context);
  OK(kolo_rank(at.world, &at.rank));
  OK(kolo_size(at.world, &at.size));
  CHECK(at.size <= kMost - 1);
  for (i = 0; i < 4; ++i) {
    reductions(&at, kForms[i]);
    copies(&at, kForms[i]);
    calls(&at, kForms[i]);
  }
  messages(&at);
  bytes(&at);
  memory(&at);
  groups(&at);
  outcomes(&at);
  joins(&at);
  if (at.rank == 0) printf("PASS collectives on %d ranks\n", (int)at.size);
  return KOLO_OK;
}

int main(int argc, char** argv) {
  kolo_context* context = NULL;
  if (argc > 1) {
    OK(kolo_run_local((int32_t)atoi(argv[1]), run_rank, NULL, NULL));
    return 0;
  }
  OK(kolo_init(NULL, &context));
  run_rank(NULL, context);
  OK(kolo_shutdown(context));
  return 0;
}
