/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and ends, right and wrong ones: contexts that are gone, forks, callbacks, stores and sinks of the program. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, sem_timedwait */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static float data[4];

static kolo_tensor four(void) { return tensor_of(data, KOLO_FLOAT32, 4); }

/* The exit status of a child that has run the function; 1 if a check of it has failed. */
static void in_child(void (*run)(kolo_context*), kolo_context* context) {
  int status = -1;
  const pid_t child = fork();
  if (child == 0) {
    run(context);
    _exit(0);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static kolo_handle* inherited_handle;

static void use_inherited(kolo_context* context) {
  kolo_tensor tensor = four();
  kolo_context* again = NULL;
  int32_t number = 0;
  FAILS(KOLO_UNSUPPORTED, kolo_allreduce(kolo_world(context), NULL, &tensor, &tensor, NULL, NULL), "fork");
  FAILS(KOLO_UNSUPPORTED, kolo_rank(kolo_world(context), &number), "fork");
  FAILS(KOLO_UNSUPPORTED, kolo_local_rank(context, &number), "fork");
  FAILS(KOLO_UNSUPPORTED, kolo_shutdown(context), "fork");
  FAILS(KOLO_UNSUPPORTED, kolo_init(NULL, &again), "fork");
  FAILS(KOLO_UNSUPPORTED, kolo_current(&again), "fork");
  FAILS(KOLO_UNSUPPORTED, kolo_wait(inherited_handle, -1.0), "fork");
}

static kolo_status the_end(void* unused, kolo_context* context) {
  kolo_tensor tensor = four();
  kolo_context* current = NULL;
  int32_t rank = -1, its_rank = -2;
  (void)unused;
  FAILS(KOLO_INVALID_ARGUMENT, kolo_shutdown(context), "whoever made it ends it");
  OK(kolo_rank(kolo_world(context), &rank));
  OK(kolo_current(&current));
  OK(kolo_rank(kolo_world(current), &its_rank));
  CHECK(its_rank == rank);
  if (rank == 1) return kolo_allreduce(kolo_world(context), "", &tensor, &tensor, NULL, NULL);
  FAILS(KOLO_INVALID_ARGUMENT, kolo_allreduce(kolo_world(context), "", &tensor, &tensor, NULL, NULL), "name");
  return kolo_allreduce(kolo_world(context), NULL, &tensor, &tensor, NULL, NULL);
}

static kolo_status fine(void* count, kolo_context* context) {
  int32_t size = 0;
  OK(kolo_size(kolo_world(context), &size));
  CHECK(size == *(const int32_t*)count);
  return KOLO_OK;
}

static kolo_status leaves(void* unused, kolo_context* context) {
  int32_t rank = -1;
  (void)unused;
  OK(kolo_rank(kolo_world(context), &rank));
  if (rank == 0) {
    OK(kolo_abandon(context, "the disk is full"));
    return KOLO_OK;
  }
  FAILS(KOLO_USER_EXCEPTION, kolo_barrier(kolo_world(context), NULL, NULL, NULL), "the disk is full");
  return KOLO_OK;
}

static void ranks_of_this_program(void) {
  int32_t two = 2;
  OK(kolo_run_forked(2, fine, &two, NULL)); /* before threads have been started */
  OK(kolo_run_local(2, fine, &two, NULL));
  FAILS(KOLO_INVALID_ARGUMENT, kolo_run_local(2, the_end, NULL, NULL), "rank 1: ");
  OK(kolo_run_local(2, leaves, NULL, NULL));
}

/* A store in memory that two processes share. */
typedef struct shared {
  sem_t is_set;
  char value[4096];
  size_t bytes;
} shared;

static kolo_status set(void* store, const char* key, const void* value, size_t bytes) {
  shared* const to = (shared*)store;
  CHECK(strcmp(key, "kolo/rank-0") == 0 && bytes < sizeof to->value);
  memcpy(to->value, value, bytes);
  to->bytes = bytes;
  CHECK(sem_post(&to->is_set) == 0);
  return KOLO_OK;
}
static kolo_status get(void* store, const char* key, double seconds, void* value, size_t capacity, size_t* bytes) {
  shared* const from = (shared*)store;
  struct timespec until;
  CHECK(strcmp(key, "kolo/rank-0") == 0 && capacity >= sizeof from->value);
  CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
  until.tv_sec += (time_t)seconds + 1;
  while (sem_timedwait(&from->is_set, &until) != 0) {
    if (errno == ETIMEDOUT) return KOLO_PENDING;
    CHECK(errno == EINTR);
  }
  CHECK(sem_post(&from->is_set) == 0); /* for the next call */
  memcpy(value, from->value, from->bytes);
  *bytes = from->bytes;
  return KOLO_OK;
}
static kolo_status full(void* unused, const char* key, const void* value, size_t bytes) {
  (void)unused, (void)key, (void)value, (void)bytes;
  return KOLO_IO;
}

static kolo_context* meet(void* memory, int32_t rank) {
  kolo_store store = KOLO_STORE_INIT;
  kolo_init_options options = KOLO_INIT_OPTIONS_INIT;
  kolo_context* context = NULL;
  store.data = memory;
  store.set = set;
  store.get = get;
  options.store = &store;
  options.rank = rank;
  options.ranks = 2;
  OK(kolo_init(&options, &context));
  return context;
}

static void add_up(void* memory, int32_t rank) {
  kolo_context* const context = meet(memory, rank);
  kolo_tensor tensor = four();
  data[0] = (float)(rank + 1);
  OK(kolo_allreduce(kolo_world(context), NULL, &tensor, &tensor, NULL, NULL));
  CHECK(data[0] == 3.0F);
  OK(kolo_shutdown(context));
}

/* Rank 1 ends without a word. */
static void lose(void* memory, int32_t rank) {
  kolo_context* const context = meet(memory, rank);
  OK(kolo_barrier(kolo_world(context), NULL, NULL, NULL));
  if (rank == 1) _exit(0);
  FAILS(KOLO_RANK_LOST, kolo_barrier(kolo_world(context), NULL, NULL, NULL), "rank 1 was lost");
  FAILS(KOLO_RANK_LOST, kolo_barrier(kolo_world(context), "later", NULL, NULL), "rank 1 was lost");
  OK(kolo_shutdown(context));
}

static volatile sig_atomic_t is_interrupted;

static void interrupt_it(int signal_number) {
  (void)signal_number;
  is_interrupted = 1;
}

/* As docs/c.md has it: rank 0 is interrupted while it waits for rank 1, which never comes. */
static void interrupted(void* memory, int32_t rank) {
  kolo_context* const context = meet(memory, rank);
  kolo_tensor tensor = four();
  kolo_handle* handle = NULL;
  kolo_status status;
  CHECK(signal(SIGINT, interrupt_it) != SIG_ERR);
  OK(kolo_barrier(kolo_world(context), NULL, NULL, NULL));
  if (rank == 1) {
    CHECK(kill(getppid(), SIGINT) == 0);
    FAILS(KOLO_USER_EXCEPTION, kolo_barrier(kolo_world(context), "other", NULL, NULL), "interrupted");
  } else {
    OK(kolo_allreduce(kolo_world(context), NULL, &tensor, &tensor, NULL, &handle));
    while ((status = kolo_wait(handle, 0.1)) == KOLO_PENDING && !is_interrupted) {
    }
    CHECK(status == KOLO_PENDING);
    OK(kolo_abandon(context, "interrupted"));
    CHECK(kolo_wait(handle, -1.0) != KOLO_OK);
  }
  OK(kolo_shutdown(context));
}

static void on_two_processes(void (*run)(void* memory, int32_t rank), void* memory) {
  int status = -1;
  pid_t child;
  memset(memory, 0, sizeof(shared));
  CHECK(sem_init(&((shared*)memory)->is_set, 1, 0) == 0);
  child = fork();
  if (child == 0) {
    run(memory, 1);
    _exit(0);
  }
  run(memory, 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void stores(void) {
  void* const memory = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  kolo_store store = KOLO_STORE_INIT;
  kolo_init_options options = KOLO_INIT_OPTIONS_INIT;
  kolo_context* context = NULL;
  CHECK(memory != MAP_FAILED);
  on_two_processes(add_up, memory);
  on_two_processes(lose, memory);
  on_two_processes(interrupted, memory);
  store.data = memory;
  store.set = full;
  store.get = get;
  options.store = &store;
  options.ranks = 2;
  FAILS(KOLO_USER_EXCEPTION, kolo_init(&options, &context), "`set` has returned io");
}

typedef struct counted {
  int records;
  kolo_log_level level;
  char text[200];
} counted;
static void log_record(void* to, kolo_log_level level, int32_t rank, double seconds, const char* message) {
  counted* const seen = (counted*)to;
  CHECK(rank >= -1 && seconds > 1.0e9);
  seen->level = level;
  snprintf(seen->text, sizeof seen->text, "%s", message);
  ++seen->records;
}

typedef struct misuse {
  kolo_context* context;
  kolo_handle* handle;
  int calls;
} misuse;
static void misused(void* what, kolo_status status, const char* sentence) {
  misuse* const its = (misuse*)what;
  kolo_tensor tensor = four();
  CHECK(status == KOLO_OK && strcmp(sentence, "") == 0);
  FAILS(KOLO_INVALID_ARGUMENT, kolo_barrier(kolo_world(its->context), NULL, NULL, NULL), "callback");
  FAILS(KOLO_INVALID_ARGUMENT, kolo_shutdown(its->context), "callback");
  OK(kolo_allreduce(kolo_world(its->context), "in a callback", &tensor, &tensor, NULL, &its->handle));
  ++its->calls;
}

static void callbacks(kolo_context* context) {
  kolo_tensor tensor = four();
  kolo_handle* handle = NULL;
  misuse its = {NULL, NULL, 0};
  int32_t is_done = 0;
  its.context = context;
  OK(kolo_allreduce(kolo_world(context), NULL, &tensor, &tensor, NULL, &handle));
  while (is_done == 0) OK(kolo_test(handle, &is_done));
  OK(kolo_on_done(handle, misused, &its)); /* at once, on this thread */
  CHECK(its.calls == 1);
  OK(kolo_wait(its.handle, -1.0));
  OK(kolo_wait(handle, -1.0));
}

static void after_the_end(kolo_context* context, kolo_group* group) {
  kolo_tensor tensor = four();
  kolo_handle* handle = NULL;
  int32_t number = 0;
  kolo_group* const world = kolo_world(context);
  FAILS(KOLO_NOT_INITIALIZED, kolo_allreduce(world, NULL, &tensor, &tensor, NULL, NULL), "gone");
  FAILS(KOLO_NOT_INITIALIZED, kolo_allreduce(group, "x", &tensor, &tensor, NULL, &handle), "gone");
  FAILS(KOLO_NOT_INITIALIZED, kolo_rank(world, &number), "gone");
  FAILS(KOLO_NOT_INITIALIZED, kolo_local_rank(context, &number), "gone");
  FAILS(KOLO_NOT_INITIALIZED, kolo_cross_size(context, &number), "gone");
  FAILS(KOLO_NOT_INITIALIZED, kolo_abandon(context, "why"), "gone");
  FAILS(KOLO_NOT_INITIALIZED, kolo_end_step(world), "gone");
  OK(kolo_shutdown(context));
}

/* What a plug-in sees of a context that others make and end. */
static void of_others(void) {
  kolo_context *context = NULL, *current = NULL, *again = NULL;
  kolo_tensor tensor = four();
  int32_t number = 0;
  FAILS(KOLO_INVALID_ARGUMENT, kolo_current(NULL), "the place for the context is NULL");
  FAILS(KOLO_NOT_INITIALIZED, kolo_current(&current), "no context");
  CHECK(current == NULL);
  OK(kolo_init(NULL, &context));
  OK(kolo_current(&current));
  OK(kolo_current(&again));
  CHECK(current == again && current != NULL);
  OK(kolo_allreduce(kolo_world(current), NULL, &tensor, &tensor, NULL, NULL));
  FAILS(KOLO_INVALID_ARGUMENT, kolo_shutdown(current), "whoever made it ends it");
  OK(kolo_shutdown(context));
  FAILS(KOLO_NOT_INITIALIZED, kolo_rank(kolo_world(current), &number), "gone");
  FAILS(KOLO_NOT_INITIALIZED, kolo_current(&again), "no context");
  OK(kolo_init(NULL, &context)); /* perhaps at the same address */
  OK(kolo_current(&current));
  OK(kolo_allreduce(kolo_world(current), NULL, &tensor, &tensor, NULL, NULL));
  OK(kolo_shutdown(context));
}

static void contexts(void) {
  kolo_context *context = NULL, *again = NULL, *separate = NULL;
  kolo_group* group = NULL;
  kolo_handle* open = NULL;
  kolo_arena* arena = NULL;
  kolo_prepared* prepared = NULL;
  kolo_call call = KOLO_CALL_INIT;
  kolo_tensor tensor = four(), kept;
  kolo_init_options options = KOLO_INIT_OPTIONS_INIT;
  kolo_setting settings[2] = {{"KOLO_ALONE", "1"}, {"KOLO_LOG_LEVEL", "info"}};
  counted seen;

  memset(&seen, 0, sizeof seen);
  OK(kolo_init(NULL, &context));
  FAILS(KOLO_INVALID_ARGUMENT, kolo_init(NULL, &again), "was called before");
  options.separate = 1;
  options.settings = settings;
  options.setting_count = 2;
  options.log = log_record;
  options.log_data = &seen;
  OK(kolo_init(&options, &separate));
  CHECK(again == NULL && separate != context && seen.records > 0 && seen.level == KOLO_LOG_INFO && seen.text[0] != 0);
  OK(kolo_barrier(kolo_world(separate), NULL, NULL, NULL));
  OK(kolo_shutdown(separate));

  OK(kolo_group_split(kolo_world(context), 0, 0, NULL, &group));
  callbacks(context);
  call.in = call.out = &tensor;
  OK(kolo_prepare(group, "prepared", &call, &prepared));
  OK(kolo_recv(kolo_world(context), &tensor, 0, 0, NULL, NULL, &inherited_handle));
  in_child(use_inherited, context);
  OK(kolo_arena_make(kolo_world(context), 4096, KOLO_CPU, 0, NULL, &arena));
  kept = four();
  OK(kolo_arena_allocate(arena, &kept));
  OK(kolo_recv(kolo_world(context), &tensor, 0, 1, NULL, NULL, &open));
  OK(kolo_release(inherited_handle)); /* the receive goes on, and ends with the context */
  OK(kolo_shutdown(context));
  FAILS(KOLO_SHUT_DOWN, kolo_wait(open, -1.0), "");
  after_the_end(context, group);
  FAILS(KOLO_SHUT_DOWN, kolo_start(prepared, NULL), "was shut down");
  OK(kolo_prepared_release(prepared));
  OK(kolo_group_release(group)); /* a group is released after the end as before it */
  ((float*)kept.data)[3] = 1.0F; /* an arena outlives its context */
  OK(kolo_arena_release(arena));

  OK(kolo_init(NULL, &again));
  OK(kolo_allreduce(kolo_world(again), NULL, &tensor, &tensor, NULL, NULL));
  OK(kolo_shutdown(again));
}

/* A thread that is to be cancelled makes all kinds of calls, and ends after them. */
static void* is_cancelled(void* has_called) {
  kolo_init_options options = KOLO_INIT_OPTIONS_INIT;
  kolo_setting alone = {"KOLO_ALONE", "1"};
  kolo_context* context = NULL;
  kolo_handle* handle = NULL;
  kolo_tensor tensor = four();
  kolo_message_options soon = KOLO_MESSAGE_OPTIONS_INIT;
  int before = 0;
  CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0 && before == PTHREAD_CANCEL_ENABLE);
  CHECK(pthread_cancel(pthread_self()) == 0);
  options.separate = 1;
  options.settings = &alone;
  options.setting_count = 1;
  OK(kolo_init(&options, &context));
  OK(kolo_allreduce(kolo_world(context), NULL, &tensor, &tensor, NULL, NULL));
  OK(kolo_allreduce(kolo_world(context), "x", &tensor, &tensor, NULL, &handle));
  OK(kolo_wait(handle, -1.0));
  soon.timeout = 0.01; /* it sleeps until then */
  FAILS(KOLO_EXPIRED, kolo_recv(kolo_world(context), &tensor, 0, 0, &soon, NULL, NULL), "");
  OK(kolo_shutdown(context));
  *(int*)has_called = 1;
  CHECK(pthread_setcancelstate(before, NULL) == 0);
  pthread_testcancel();
  return NULL;
}

static void cancelled_threads(void) {
  pthread_t thread;
  void* result = NULL;
  int has_called = 0;
  CHECK(pthread_create(&thread, NULL, is_cancelled, &has_called) == 0 && pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED && has_called);
}

int main(void) {
  ranks_of_this_program();
  stores();
  contexts();
  of_others();
  cancelled_threads();
  printf("PASS lifecycle\n");
  return 0;
}
