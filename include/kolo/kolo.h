/* SPDX-License-Identifier: Apache-2.0 */

/// @file
/// Kolo for C, and for whatever can call C. C99; no other header of Kolo is needed. docs/c.md is its tutorial.
///
///     kolo_context* world = NULL;
///     if (kolo_init(NULL, &world) != KOLO_OK) return fprintf(stderr, "%s\n", kolo_last_error()), 1;
///     kolo_tensor g = {gradient, KOLO_FLOAT32, 1, {n}, KOLO_CPU, 0, NULL};
///     kolo_allreduce_options average = KOLO_ALLREDUCE_OPTIONS_INIT;
///     average.op = KOLO_AVERAGE;
///     kolo_allreduce(kolo_world(world), "w.grad", &g, &g, &average, NULL);  // in place; NULL: waits
///     kolo_shutdown(world);
///
/// Rules for all of it:
///
/// - **Errors.** A function returns `KOLO_OK` or says what is wrong: the sentence is `kolo_last_error()`. Only
///   `kolo_world` and the functions that give a text or a number return something else. No exception leaves a function.
///   A function that fails writes no output.
/// - **Arguments.** Every argument is checked. A pointer must not be NULL unless its comment allows it; a number must
///   be one of its enum. What is wrong is `KOLO_INVALID_ARGUMENT`, and nothing is sent. Pointers to objects that were
///   released, or to memory that is none, cannot be detected.
/// - **Ownership.** Tensors, names, options and lists are read during the call, and may be freed or changed after it.
///   The memory that a tensor describes stays the caller's. It must stay valid, and untouched, until the operation is
///   done. Each opaque object has a function that releases it; NULL can be released. An output pointer (`handle`,
///   `result`, `received`, `last`) that is given with a handle is written by `kolo_wait`, and must be valid until then.
/// - **Options** are structs that begin with their size: start from the `_INIT` macro. NULL means the defaults. New
///   fields are appended, and a library takes the shorter structs of older headers. Durations are in seconds; a
///   negative one is the default.
/// - **Handles.** Where a call takes a handle, NULL means that it waits. Otherwise it starts the operation, and
///   `kolo_wait` ends it. Releasing a handle neither waits nor cancels.
/// - **Names.** NULL means no name: then the order of the calls without a name is the same on all ranks of the group.
///   With names, ranks make their calls in any order. A name has 1 to 65,536 bytes and does not begin with "kolo.".
/// - **Threads.** All functions may be called from any threads at once. One handle, result, prepared call, arena or
///   group must not be released while another thread uses it, nor a context shut down while another thread uses it.
///   Do not cancel a thread (`pthread_cancel`) that is inside a call: that ends the process. A program that cancels
///   threads disables that around calls (`pthread_setcancelstate`). To give up a wait, use `kolo_wait` with seconds.
/// - **Fork.** In a child that is forked while its parent has a context, every call on an inherited object fails
///   (`KOLO_UNSUPPORTED`), and releasing one does nothing to the job.
/// - **ABI.** Functions, numbers and the layouts of structs never change; they only become more.
///
/// What collectives do, and when they fail, is said once in kolo/collectives.hpp; here is what C adds.
#ifndef KOLO_KOLO_H
#define KOLO_KOLO_H

#include <stddef.h>
#include <stdint.h>

#define KOLO_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/// @name versions
/// @{

/// The ABI that this header describes. It rises when functions, fields or numbers are added.
#define KOLO_ABI_VERSION 1
/// The library's `KOLO_ABI_VERSION`. A program compiled with a header of a higher one needs a newer library.
KOLO_API int32_t kolo_abi_version(void);
/// Major, minor and patch: "0.3.0".
KOLO_API const char* kolo_version(void);

/// @}
/// @name errors
/// @{

/// Why a call failed. 1 to 15 are kolo::ErrorCode's, whose comments say what can be done (kolo/error.hpp). After
/// `KOLO_TIMEOUT`, `KOLO_RANK_LOST`, `KOLO_TRANSPORT` and `KOLO_USER_EXCEPTION` the job has ended: save and leave.
typedef enum kolo_status {
  KOLO_OK = 0,
  KOLO_INVALID_ARGUMENT = 1,  ///< at the call; nothing was sent
  KOLO_DUPLICATE_NAME = 2,    ///< the name is in flight already
  KOLO_MISMATCH = 3,          ///< ranks disagree about this tensor; fails on every rank
  KOLO_UNSUPPORTED = 4,       ///< no backend does this (dtype, op, device), or the process is a fork of a rank
  KOLO_NOT_INITIALIZED = 5,   ///< the context has been shut down
  KOLO_INVALID_SETTING = 6,   ///< a bad value in the environment or in the settings
  KOLO_TIMEOUT = 7,           ///< the operation's deadline passed; ends the job
  KOLO_RANK_LOST = 8,         ///< another rank's process died, or left the job; ends the job
  KOLO_SHUT_DOWN = 9,         ///< the context was shut down before the operation ran
  KOLO_TRANSPORT = 10,        ///< MPI, TCP or the system failed; ends the job
  KOLO_USER_EXCEPTION = 11,   ///< a rank's own code failed and left the job; ends the job
  KOLO_OUT_OF_MEMORY = 12,    ///< the job goes on
  KOLO_IO = 13,               ///< a file cannot be read or written
  KOLO_EXPIRED = 14,          ///< the deadline of a message, or of a group to be made, passed; the job goes on
  KOLO_CANCELLED = 15,        ///< a receive was cancelled, or a message given up by the other side
  KOLO_PENDING = 1000         ///< no error: the operation is not done yet (`kolo_wait`), or a store has no value yet
} kolo_status;
/// The status's name in kolo/error.hpp: "rank_lost". "unknown" for a number that is none.
KOLO_API const char* kolo_status_name(kolo_status status);
/// The sentence of this thread's last call that did not return `KOLO_OK`; "" before the first. It names the tensor,
/// what was given, and what would be right. Valid until the thread's next call that fails.
KOLO_API const char* kolo_last_error(void);

/// @}
/// @name tensors
/// @{

/// Element types. The numbers are kolo::DType's.
typedef enum kolo_dtype {
  KOLO_BOOL = 0,  ///< one byte; 0 is false, anything else true; results are 0 or 1
  KOLO_INT8 = 1,
  KOLO_INT16 = 2,
  KOLO_INT32 = 3,
  KOLO_INT64 = 4,
  KOLO_UINT8 = 5,
  KOLO_UINT16 = 6,
  KOLO_UINT32 = 7,
  KOLO_UINT64 = 8,
  KOLO_FLOAT16 = 9,    ///< IEEE 754 binary16; summed in float32 and rounded once
  KOLO_BFLOAT16 = 10,  ///< the upper half of a float32; summed and rounded like float16
  KOLO_FLOAT32 = 11,
  KOLO_FLOAT64 = 12
} kolo_dtype;

/// Where memory lies.
typedef enum kolo_device { KOLO_CPU = 0, KOLO_CUDA = 1 } kolo_device;

/// How many dimensions a tensor has at most.
#define KOLO_MAX_DIMS 8
/// As a tensor's stream: no work on the device writes the memory any more.
#define KOLO_NO_STREAM ((void*)-1)

/// Memory of the caller's, with a type and a shape. Elements are contiguous, the last dimension varies fastest; any
/// alignment is accepted. This struct is frozen: 96 bytes.
typedef struct kolo_tensor {
  void* data;                    ///< may be NULL if there are no elements; not written through an input
  int32_t dtype;                 ///< a `kolo_dtype`
  int32_t dims;                  ///< how many dimensions: 0 (a scalar of one element) to `KOLO_MAX_DIMS`
  int64_t shape[KOLO_MAX_DIMS];  ///< the first `dims` count
  int32_t device;                ///< a `kolo_device`
  int32_t index;                 ///< the CUDA device's number; 0 for the CPU
  void* stream;  ///< CUDA: the cudaStream_t on which the tensor is written, or `KOLO_NO_STREAM`; NULL is the legacy
                 ///< default stream. CPU: NULL
} kolo_tensor;

/// A tensor with a name. Frozen.
typedef struct kolo_named_tensor {
  const char* name;
  kolo_tensor tensor;
} kolo_named_tensor;

/// Bytes of one element; 0 for a number that is no `kolo_dtype`.
KOLO_API size_t kolo_dtype_size(int32_t dtype);

/// @}
/// @name opaque objects
/// @{

typedef struct kolo_context kolo_context;    ///< this process's membership in a job; `kolo_shutdown`
typedef struct kolo_group kolo_group;        ///< ranks that act together; `kolo_group_release`, not for a world
typedef struct kolo_handle kolo_handle;      ///< an operation that was started; `kolo_wait` or `kolo_release`
typedef struct kolo_result kolo_result;      ///< memory that Kolo made for a result; `kolo_result_release`
typedef struct kolo_prepared kolo_prepared;  ///< a call that is started often; `kolo_prepared_release`
typedef struct kolo_arena kolo_arena;        ///< memory for gradients; `kolo_arena_release`

/// @}
/// @name joining a job and leaving it
/// @{

/// A setting by the name of its environment variable: {"KOLO_TIMEOUT_S", "30"}. docs/variables.md has all.
typedef struct kolo_setting {
  const char* name;
  const char* value;
} kolo_setting;

/// A key-value service of the program's own, by which rank 0 tells the others where it listens. Both functions are
/// called by `kolo_init`, on the thread that calls it, with one short key and a value of less than 64 KiB.
typedef struct kolo_store {
  size_t size;  ///< `KOLO_STORE_INIT` sets it
  void* data;   ///< handed to both functions
  /// Sets the key's value, and replaces an earlier one. Returns `KOLO_OK`; anything else ends the start with that.
  kolo_status (*set)(void* data, const char* key, const void* value, size_t bytes);
  /// Writes the key's value, of at most `capacity` bytes, and its length. If there is none, waits for it for
  /// `seconds` at most, and then returns `KOLO_PENDING`. Any other status ends the start with that.
  kolo_status (*get)(void* data, const char* key, double seconds, void* value, size_t capacity, size_t* bytes);
} kolo_store;
#define KOLO_STORE_INIT                                                                                                \
  { sizeof(kolo_store), NULL, NULL, NULL }

/// How important a log record is. The numbers are kolo::LogLevel's.
typedef enum kolo_log_level {
  KOLO_LOG_TRACE = 0,
  KOLO_LOG_DEBUG = 1,
  KOLO_LOG_INFO = 2,
  KOLO_LOG_WARNING = 3,
  KOLO_LOG_ERROR = 4
} kolo_log_level;
/// Receives the log records of a context. `rank` is -1 until it is known; `seconds` are since 1970 (UTC); `message` is
/// valid during the call. Called from any thread, one call at a time, until `kolo_shutdown` has returned. It may call
/// Kolo, but must not wait for an operation nor shut the context down.
typedef void (*kolo_log_sink)(void* data, kolo_log_level level, int32_t rank, double seconds, const char* message);

/// How a context is made.
typedef struct kolo_init_options {
  size_t size;                   ///< `KOLO_INIT_OPTIONS_INIT` sets it
  const kolo_setting* settings;  ///< win over the environment; NULL if there are none
  size_t setting_count;
  const kolo_store* store;      ///< where the ranks meet; NULL: the environment or KOLO_STORE says (docs/start.md)
  int32_t rank;                 ///< of this process, with `store`
  int32_t ranks;                ///< of the job, with `store`
  kolo_log_sink log;            ///< NULL: lines on standard error
  void* log_data;               ///< handed to `log`
  const char* visible_devices;  ///< which GPUs CUDA shows this process (kolo::Options); NULL leaves that alone
  int32_t separate;             ///< 1: a context beside the process's own, for a library. 0: the process's own
  int32_t reserved;             ///< 0
} kolo_init_options;
#define KOLO_INIT_OPTIONS_INIT                                                                                         \
  { sizeof(kolo_init_options), NULL, 0, NULL, 0, 1, NULL, NULL, NULL, 0, 0 }

/// Joins the job that a launcher started, or makes a world of one where none did. Waits for the other ranks, each step
/// for `KOLO_CONNECT_TIMEOUT_S` at most; if one rank fails, all do. The process's own context is the one that C++ code
/// in this process uses, too. There is one at a time; after `kolo_shutdown` there can be another. A process that ends
/// without `kolo_shutdown` shuts it down at exit. Errors: those of kolo::init.
KOLO_API kolo_status kolo_init(const kolo_init_options* options, kolo_context** context);

/// The context that calls of C++ use on this thread: that of `kolo_run_local` or a kolo::ContextGuard, else the
/// process's own, whoever has made it. For a plug-in inside a program that has joined already. Whoever made the context
/// shuts it down: `kolo_shutdown` refuses what this gives. It need not be released, and may be named for as long as the
/// process runs; once its job has ended, calls on it fail with `KOLO_NOT_INITIALIZED`. That is this function's own
/// status, too, where there is no context.
KOLO_API kolo_status kolo_current(kolo_context** context);

/// Leaves the job: waits (at most `KOLO_TIMEOUT_S`) until every rank has called it. Operations that are still open fail
/// with `KOLO_SHUT_DOWN`. Returns at once, without an error, after one that ended the job. A separate context is then
/// gone, and so is its world. The process's own may be named again: calls on it then fail with `KOLO_NOT_INITIALIZED`,
/// and shutting it down again does nothing. Errors: `KOLO_INVALID_ARGUMENT` inside a callback, and for a context of
/// `kolo_run_local`, `kolo_run_forked` or `kolo_current`. The context stays as it is then.
KOLO_API kolo_status kolo_shutdown(kolo_context* context);

/// Leaves because of an error on this rank. On the other ranks operations fail with `KOLO_USER_EXCEPTION`, and their
/// sentence contains `reason`. The context still has to be shut down, which waits for nobody then.
KOLO_API kolo_status kolo_abandon(kolo_context* context, const char* reason);

/// What a rank of `kolo_run_local` or `kolo_run_forked` runs. `context` is the rank's, valid until it returns. Any
/// status but `KOLO_OK` ends the job on all ranks.
typedef kolo_status (*kolo_body)(void* data, kolo_context* context);
/// Runs `body` as `ranks` ranks on as many threads of this process, and returns when all have ended. Fails with the
/// first rank's failure: its status, and a sentence that begins with "rank N: ". `options`: NULL, or settings and log.
KOLO_API kolo_status kolo_run_local(int32_t ranks, kolo_body body, void* data, const kolo_init_options* options);
/// The same with forked processes of this machine; see kolo::run_forked. Call it before the process starts threads.
KOLO_API kolo_status kolo_run_forked(int32_t ranks, kolo_body body, void* data, const kolo_init_options* options);

/// The group of all ranks. It belongs to the context, and ends with it. NULL (and `kolo_last_error`) if `context` is.
KOLO_API kolo_group* kolo_world(kolo_context* context);
/// This rank's place among the ranks of its node, from 0, and how many these are.
KOLO_API kolo_status kolo_local_rank(const kolo_context* context, int32_t* rank);
KOLO_API kolo_status kolo_local_size(const kolo_context* context, int32_t* size);
/// This rank's place among the ranks of the same local rank, one on each node, and how many these are.
KOLO_API kolo_status kolo_cross_rank(const kolo_context* context, int32_t* rank);
KOLO_API kolo_status kolo_cross_size(const kolo_context* context, int32_t* size);

/// @}
/// @name groups
/// @{

/// As the colour of a rank that wants no group from `kolo_group_split`.
#define KOLO_NO_GROUP (-1)

/// How a group is made; the same on every rank.
typedef struct kolo_group_options {
  size_t size;       ///< `KOLO_GROUP_OPTIONS_INIT` sets it
  const char* name;  ///< tells groups apart that several threads make of the same ranks at once; NULL: none
  double timeout;    ///< seconds to wait for the other ranks until it is a fatal error; more than 0, or negative (the
                     ///< default): KOLO_TIMEOUT_S
  int32_t fails_alone;  ///< 1: then only this call fails (`KOLO_EXPIRED`), on every rank that makes it; default 0
  int32_t reserved;     ///< 0
} kolo_group_options;
#define KOLO_GROUP_OPTIONS_INIT                                                                                        \
  { sizeof(kolo_group_options), NULL, -1.0, 0, 0 }

/// This rank's place in the group, from 0, and how many ranks the group has.
KOLO_API kolo_status kolo_rank(const kolo_group* group, int32_t* rank);
KOLO_API kolo_status kolo_size(const kolo_group* group, int32_t* size);
/// The group of `count` ranks of `parent`, in any order: a rank's place in the list is its rank in the group. Each rank
/// of the list calls it, with the same list, and waits for the others.
KOLO_API kolo_status kolo_group_of(const kolo_group* parent, const int32_t* ranks, size_t count,
                                   const kolo_group_options* options, kolo_group** group);
/// The group of all ranks of `parent` that give the same colour (0 or more), in the order of their keys. All ranks of
/// `parent` call it. With `KOLO_NO_GROUP` the result is a group without this rank, which can only be released.
KOLO_API kolo_status kolo_group_split(const kolo_group* parent, int32_t color, int32_t key,
                                      const kolo_group_options* options, kolo_group** group);
/// Writes 1 if this rank is a member, else 0.
KOLO_API kolo_status kolo_group_is_member(const kolo_group* group, int32_t* is_member);
/// Writes the group's ranks, as ranks of the world, in the group's order. `capacity`: how many `ranks` has room for; it
/// must be the group's size or more.
KOLO_API kolo_status kolo_group_members(const kolo_group* group, int32_t* ranks, size_t capacity);
/// An address of the machine of rank `rank` of the group, by which other machines may reach it: "10.0.0.2"
/// (kolo/context.hpp; `kolo_result_bytes`, 0). Local.
KOLO_API kolo_status kolo_address(const kolo_group* group, int32_t rank, kolo_result** result);
/// Releases the group. Waits for nothing; operations in flight go on. Refuses a context's world. A group outlives its
/// context: it must be released after `kolo_shutdown`, too, if it was not before, at any time and from any thread;
/// every other call on it then fails with `KOLO_NOT_INITIALIZED`.
KOLO_API kolo_status kolo_group_release(kolo_group* group);

/// @}
/// @name options of collectives
/// @{

/// How inputs are combined. The numbers are kolo::ReduceOp's. For booleans these are the logical operations.
typedef enum kolo_op {
  KOLO_SUM = 0,
  KOLO_AVERAGE = 1,  ///< the sum divided by the number of ranks; floating-point types only
  KOLO_MIN = 2,
  KOLO_MAX = 3,
  KOLO_PRODUCT = 4,
  KOLO_BIT_AND = 5,  ///< the last three: integers and booleans only
  KOLO_BIT_OR = 6,
  KOLO_BIT_XOR = 7
} kolo_op;

/// As `send_as`: elements travel in their own type.
#define KOLO_OWN_TYPE (-1)

/// Options of `kolo_allreduce`, `kolo_reduce` and `kolo_reduce_scatter`. All but `timeout` are the same on every rank.
typedef struct kolo_allreduce_options {
  size_t size;       ///< `KOLO_ALLREDUCE_OPTIONS_INIT` sets it
  int32_t op;        ///< a `kolo_op`; default `KOLO_SUM`
  int32_t send_as;   ///< `KOLO_FLOAT16` or `KOLO_BFLOAT16`: float32 and float64 travel as that; default `KOLO_OWN_TYPE`
  double prescale;   ///< every input is multiplied by this first; default 1
  double postscale;  ///< the result is multiplied by this; default 1
  double timeout;    ///< seconds until it is a fatal error; more than 0, or negative (the default): KOLO_TIMEOUT_S
  int32_t priority;  ///< among waiting calls with names the highest runs first; default 0
  int32_t reserved;  ///< 0
} kolo_allreduce_options;
#define KOLO_ALLREDUCE_OPTIONS_INIT                                                                                    \
  { sizeof(kolo_allreduce_options), KOLO_SUM, KOLO_OWN_TYPE, 1.0, 1.0, -1.0, 0, 0 }

/// Options of the other collectives. All but `timeout` are the same on every rank.
typedef struct kolo_options {
  size_t size;       ///< `KOLO_OPTIONS_INIT` sets it
  double timeout;    ///< as that of `kolo_allreduce_options`
  int32_t priority;  ///< as that of `kolo_allreduce_options`; a barrier has none
  int32_t reserved;  ///< 0
} kolo_options;
#define KOLO_OPTIONS_INIT                                                                                              \
  { sizeof(kolo_options), -1.0, 0, 0 }

/// @}
/// @name collectives
/// Every rank of the group makes the same calls, with the same type, shape, options and root. If ranks disagree, the
/// operation fails on every rank (`KOLO_MISMATCH`), and the job goes on. `in` and `out` must not overlap, unless both
/// describe the same tensor: the call is then in place (`&g, &g`).
/// @{

/// Reduces element by element over all ranks; the same shape everywhere.
KOLO_API kolo_status kolo_allreduce(const kolo_group* group, const char* name, const kolo_tensor* in,
                                    const kolo_tensor* out, const kolo_allreduce_options* options,
                                    kolo_handle** handle);
/// The same, but only rank `root` gets the result. Other ranks may give NULL as `out`.
KOLO_API kolo_status kolo_reduce(const kolo_group* group, const char* name, const kolo_tensor* in,
                                 const kolo_tensor* out, int32_t root, const kolo_allreduce_options* options,
                                 kolo_handle** handle);
/// Copies the root's `in` to every rank's `out`; the same shape everywhere.
KOLO_API kolo_status kolo_broadcast(const kolo_group* group, const char* name, const kolo_tensor* in,
                                    const kolo_tensor* out, int32_t root, const kolo_options* options,
                                    kolo_handle** handle);
/// Concatenates all ranks' tensors along the first dimension, in the order of ranks. The first dimension may differ by
/// rank. The result is new memory of the CPU (`kolo_result_tensor`).
KOLO_API kolo_status kolo_allgather(const kolo_group* group, const char* name, const kolo_tensor* in,
                                    const kolo_options* options, kolo_result** result, kolo_handle** handle);
/// The same into `out`, which must have as many elements as the result. In place: `in` is exactly this rank's rows of
/// `out`.
KOLO_API kolo_status kolo_allgather_into(const kolo_group* group, const char* name, const kolo_tensor* in,
                                         const kolo_tensor* out, const kolo_options* options, kolo_handle** handle);
/// As `kolo_allgather`, but only rank `root` gets the rows; on other ranks the result has none.
KOLO_API kolo_status kolo_gather(const kolo_group* group, const char* name, const kolo_tensor* in, int32_t root,
                                 const kolo_options* options, kolo_result** result, kolo_handle** handle);
/// The same into the root's `out`. Other ranks may give NULL as `out`.
KOLO_API kolo_status kolo_gather_into(const kolo_group* group, const char* name, const kolo_tensor* in,
                                      const kolo_tensor* out, int32_t root, const kolo_options* options,
                                      kolo_handle** handle);
/// Distributes the root's rows in the order of ranks. `splits` has the number of rows for each rank, `split_count` of
/// them (the group's size); NULL and 0: every rank gets the same number. Only the root's `in` and `splits` are read;
/// other ranks may give NULL.
KOLO_API kolo_status kolo_scatter(const kolo_group* group, const char* name, const kolo_tensor* in,
                                  const kolo_tensor* out, int32_t root, const int64_t* splits, size_t split_count,
                                  const kolo_options* options, kolo_handle** handle);
/// Every rank sends `splits[r]` of its rows to rank r, and receives the others' rows in the order of ranks. NULL and 0:
/// the same number to each. `kolo_result_splits` has the number of rows that came from each rank.
KOLO_API kolo_status kolo_alltoall(const kolo_group* group, const char* name, const kolo_tensor* in,
                                   const int64_t* splits, size_t split_count, const kolo_options* options,
                                   kolo_result** result, kolo_handle** handle);
/// The same into `out`, which must have as many elements as the result.
KOLO_API kolo_status kolo_alltoall_into(const kolo_group* group, const char* name, const kolo_tensor* in,
                                        const kolo_tensor* out, const int64_t* splits, size_t split_count,
                                        const kolo_options* options, kolo_handle** handle);
/// As an all-reduce of which each rank gets its rows alone: of `rows` rows on n ranks rows / n, in the order of ranks,
/// and the first rows % n ranks one more.
KOLO_API kolo_status kolo_reduce_scatter(const kolo_group* group, const char* name, const kolo_tensor* in,
                                         const kolo_allreduce_options* options, kolo_result** result,
                                         kolo_handle** handle);
/// The same into `out`. In place: `out` is exactly this rank's rows of `in`.
KOLO_API kolo_status kolo_reduce_scatter_into(const kolo_group* group, const char* name, const kolo_tensor* in,
                                              const kolo_tensor* out, const kolo_allreduce_options* options,
                                              kolo_handle** handle);
/// Completes when every rank has called it. Operations that were started may still be open then.
KOLO_API kolo_status kolo_barrier(const kolo_group* group, const char* name, const kolo_options* options,
                                  kolo_handle** handle);

/// @}
/// @name calls as values
/// One function makes every collective, prepares it, or groups it with others.
/// @{

/// Which collective a `kolo_call` is.
typedef enum kolo_collective {
  KOLO_ALLREDUCE = 0,
  KOLO_REDUCE = 1,
  KOLO_BROADCAST = 2,
  KOLO_ALLGATHER = 3,
  KOLO_GATHER = 4,
  KOLO_SCATTER = 5,
  KOLO_ALLTOALL = 6,
  KOLO_REDUCE_SCATTER = 7,
  KOLO_BARRIER = 8
} kolo_collective;

/// A collective that has not been made yet. A field that the collective does not use has its default.
typedef struct kolo_call {
  size_t size;             ///< `KOLO_CALL_INIT` sets it
  int32_t collective;      ///< a `kolo_collective`; default `KOLO_ALLREDUCE`
  int32_t root;            ///< of a reduce, broadcast, gather or scatter; default 0
  const kolo_tensor* in;   ///< as the function of the collective takes it; default NULL
  const kolo_tensor* out;  ///< the same; NULL where the result is new memory
  const int64_t* splits;   ///< of a scatter or an all-to-all; default NULL
  size_t split_count;
  const kolo_allreduce_options* reduction;  ///< of an allreduce, reduce or reduce_scatter; default NULL
  const kolo_options* options;              ///< of the others; default NULL
} kolo_call;
#define KOLO_CALL_INIT                                                                                                 \
  { sizeof(kolo_call), KOLO_ALLREDUCE, 0, NULL, NULL, NULL, 0, NULL, NULL }

/// Makes the call. `result` gets the result of an allgather, gather, alltoall or reduce_scatter without `out`, and is
/// NULL for any other call.
KOLO_API kolo_status kolo_run(const kolo_group* group, const char* name, const kolo_call* call, kolo_result** result,
                              kolo_handle** handle);
/// Makes several calls of one kind as one operation, which runs on all ranks or on none. They differ in memory, type
/// and shape only, and every rank gives the same number. Each has an output of the caller's (kolo/call.hpp, "grouped
/// calls"). All calls of an array have the same `size`.
KOLO_API kolo_status kolo_grouped(const kolo_group* group, const char* name, const kolo_call* calls, size_t count,
                                  kolo_handle** handle);
/// Reduces several tensors in place as one operation. All ranks give the same names, types and shapes in the same
/// order; types may differ within the list.
KOLO_API kolo_status kolo_grouped_allreduce(const kolo_group* group, const char* name, const kolo_named_tensor* tensors,
                                            size_t count, const kolo_allreduce_options* options, kolo_handle** handle);

/// Checks a call and claims its name, once, for an operation that is started often. It meets calls of the same name on
/// the other ranks, prepared or not. The tensors' memory must outlive the last operation. Local: waits for nobody. The
/// call has a name and an output of the caller's.
KOLO_API kolo_status kolo_prepare(const kolo_group* group, const char* name, const kolo_call* call,
                                  kolo_prepared** prepared);
/// The same for what `kolo_grouped` makes.
KOLO_API kolo_status kolo_prepare_grouped(const kolo_group* group, const char* name, const kolo_call* calls,
                                          size_t count, kolo_prepared** prepared);
/// The same for what `kolo_grouped_allreduce` makes.
KOLO_API kolo_status kolo_prepare_grouped_allreduce(const kolo_group* group, const char* name,
                                                    const kolo_named_tensor* tensors, size_t count,
                                                    const kolo_allreduce_options* options, kolo_prepared** prepared);
/// Starts the operation, or with NULL runs it. `KOLO_DUPLICATE_NAME` while the last one is in flight. One thread at a
/// time.
KOLO_API kolo_status kolo_start(kolo_prepared* prepared, kolo_handle** handle);
/// Gives the name back. An operation in flight goes on.
KOLO_API kolo_status kolo_prepared_release(kolo_prepared* prepared);

/// @}
/// @name handles
/// @{

/// Waits for an operation, and returns its outcome. Then its outputs are written, if it succeeded, and the handle is
/// gone: every status but `KOLO_PENDING` frees it. Negative `seconds` (or NaN) wait until the operation's own deadline.
/// Otherwise `KOLO_PENDING` says that it is not done after `seconds`: that is no error, the operation goes on, and the
/// handle can be waited for again, or released. Inside a callback it must not be called: then it returns
/// `KOLO_INVALID_ARGUMENT`, frees the handle, and the operation goes on.
KOLO_API kolo_status kolo_wait(kolo_handle* handle, double seconds);
/// Waits for all of them, also when one fails, and frees all. Returns the first failure in the order given; outputs of
/// the others are written. No handle may be NULL, or be there twice.
KOLO_API kolo_status kolo_wait_all(kolo_handle* const* handles, size_t count);
/// Writes 1 if the operation has completed or failed, else 0. Does not wait, and does not free the handle.
KOLO_API kolo_status kolo_test(kolo_handle* handle, int32_t* is_done);
/// Frees the handle. Neither waits nor cancels: the memory must still outlive the operation, and outputs are not
/// written.
KOLO_API kolo_status kolo_release(kolo_handle* handle);

/// Receives an operation's outcome; `sentence` is "" for `KOLO_OK`, and valid during the call.
typedef void (*kolo_done)(void* data, kolo_status status, const char* sentence);
/// Calls `done` once, when the operation has completed or failed: at once on this thread if it already has, else on the
/// thread that runs the engine then, which may be any that waits, or a thread of Kolo's. It must be short. It may start
/// operations; it must not wait for one, nor shut the context down (`KOLO_INVALID_ARGUMENT`), and no C++ exception may
/// leave it. `kolo_wait` may return before it has run, so `data` must outlive it. The handle may be released before.
/// Outputs are not written yet: only the memory of tensors is.
KOLO_API kolo_status kolo_on_done(kolo_handle* handle, kolo_done done, void* data);

/// Cancels a receive for which no message has come: writes 1, and the receive ends with `KOLO_CANCELLED`. Writes 0 if
/// it has a message already, or has ended. The handle is still to be waited for or released.
KOLO_API kolo_status kolo_cancel(kolo_handle* handle, int32_t* is_cancelled);
/// Ends the operation, so that the caller can use its memory again. A message fails alone; anything else ends this
/// rank's part of the job (kolo/handle.hpp). The handle is still to be waited for or released.
KOLO_API kolo_status kolo_end(kolo_handle* handle, const char* reason);
/// Writes which ranks of the group have not made this call yet, ascending, `capacity` of them at most, and how many
/// there are. Asks all ranks, and waits for answers for `seconds` at most; none in time: 0 ranks. `ranks` may be NULL
/// if `capacity` is 0.
KOLO_API kolo_status kolo_late_ranks(kolo_handle* handle, double seconds, int32_t* ranks, size_t capacity,
                                     size_t* count);

/// @}
/// @name results
/// Memory that Kolo made. It is read where it lies, and valid until the result is released.
/// @{

/// Describes the result of a collective as a tensor.
KOLO_API kolo_status kolo_result_tensor(const kolo_result* result, kolo_tensor* tensor);
/// How many rows came from each rank, by rank: only of an all-to-all.
KOLO_API kolo_status kolo_result_splits(const kolo_result* result, const int64_t** splits, size_t* count);
/// Bytes of `kolo_broadcast_bytes`, `kolo_address`, `kolo_metrics`, `kolo_describe`, `kolo_settings`, `kolo_devices`
/// and `kolo_explain_job` (`index` 0), or those of rank `index` of `kolo_allgather_bytes`. A zero that `size` does not
/// count follows them, so that a text can be used as a string.
KOLO_API kolo_status kolo_result_bytes(const kolo_result* result, size_t index, const void** data, size_t* size);
KOLO_API kolo_status kolo_result_release(kolo_result* result);

/// @}
/// @name messages
/// From one rank of the group to another (kolo/point_to_point.hpp). A failed message does not end the job.
/// @{

#define KOLO_ANY_RANK (-1)
#define KOLO_ANY_TAG (-1)

/// Options of messages.
typedef struct kolo_message_options {
  size_t size;     ///< `KOLO_MESSAGE_OPTIONS_INIT` sets it
  double timeout;  ///< seconds; more than 0, or negative (the default): KOLO_TIMEOUT_S. Then `KOLO_EXPIRED`
} kolo_message_options;
#define KOLO_MESSAGE_OPTIONS_INIT                                                                                      \
  { sizeof(kolo_message_options), -1.0 }

/// What was received. Frozen.
typedef struct kolo_received {
  int64_t elements;  ///< at the beginning of the memory
  int32_t source;    ///< rank of the group
  int32_t tag;
} kolo_received;

/// Sends a tensor to rank `to`, which may be this one. `tag` is not negative. The send is done when its memory may be
/// used again; a long one waits for its receive.
KOLO_API kolo_status kolo_send(const kolo_group* group, const kolo_tensor* tensor, int32_t to, int32_t tag,
                               const kolo_message_options* options, kolo_handle** handle);
/// Receives a message of at most as many elements as the tensor has, of the same type. `from` may be `KOLO_ANY_RANK`,
/// `tag` `KOLO_ANY_TAG`, and `received` NULL.
KOLO_API kolo_status kolo_recv(const kolo_group* group, const kolo_tensor* tensor, int32_t from, int32_t tag,
                               const kolo_message_options* options, kolo_received* received, kolo_handle** handle);
/// Sends one tensor and receives another at the same time, and waits for both. `received` may be NULL.
KOLO_API kolo_status kolo_sendrecv(const kolo_group* group, const kolo_tensor* tensor, int32_t to, int32_t send_tag,
                                   const kolo_tensor* into, int32_t from, int32_t recv_tag,
                                   const kolo_message_options* options, kolo_received* received);

/// @}
/// @name uneven data and steps
/// @{

/// Options of `kolo_join`.
typedef struct kolo_join_options {
  size_t size;                 ///< `KOLO_JOIN_OPTIONS_INIT` sets it
  double timeout;              ///< how long the other ranks may run nothing; as that of `kolo_allreduce_options`
  int32_t counts_in_averages;  ///< 1: averages count this rank while it is absent; default 0
  int32_t reserved;            ///< 0
} kolo_join_options;
#define KOLO_JOIN_OPTIONS_INIT                                                                                         \
  { sizeof(kolo_join_options), -1.0, 0, 0 }

/// This rank is out of data; the others go on without it. Done when all ranks of the group have joined. Writes the rank
/// that joined last, whose parameters the others take. `last` may be NULL.
KOLO_API kolo_status kolo_join(const kolo_group* group, const kolo_join_options* options, int32_t* last,
                               kolo_handle** handle);
/// A training step ends here. A program may call it once per step on every rank, or never.
KOLO_API kolo_status kolo_end_step(const kolo_group* group);

/// @}
/// @name bytes and parameters
/// Synchronous. All ranks of the group make these calls in the same order.
/// @{

/// Rank `root`'s bytes, on every rank (`kolo_result_bytes`). Only the root's `data` and `size` are read; others may
/// give NULL and 0.
KOLO_API kolo_status kolo_broadcast_bytes(const kolo_group* group, const void* data, size_t size, int32_t root,
                                          kolo_result** result);
/// All ranks' bytes, by rank; lengths may differ.
KOLO_API kolo_status kolo_allgather_bytes(const kolo_group* group, const void* data, size_t size, kolo_result** result);
/// Copies rank `root`'s tensors to every rank. The lists agree in number, order, names, types and shapes; that is
/// checked before anything is copied (`KOLO_MISMATCH` on every rank).
KOLO_API kolo_status kolo_broadcast_parameters(const kolo_group* group, const kolo_named_tensor* parameters,
                                               size_t count, int32_t root);
/// What KOLO_CHECK_REPLICAS says to whatever steps parameters: -1: compare nothing; 0: compare them before the first
/// step; N: also after every N-th step.
KOLO_API kolo_status kolo_replica_interval(const kolo_group* group, int64_t* interval);
/// Compares the tensors over the ranks, bit by bit. If they differ, all ranks get the same `KOLO_MISMATCH`: the
/// sentence names the first tensor that differs, and the ranks that have other values. Ranks that have joined are
/// passed over. With a name ranks may make such calls in any order (from several threads, say); `name` may be NULL.
/// `step`: after which step, or 0: before the first; then tensors that KOLO_CHECK_REPLICAS leaves out by their names
/// are left out. Negative: all are compared, whatever it says. Compares always; the interval is the caller's to keep.
KOLO_API kolo_status kolo_check_replicas(const kolo_group* group, const char* name, const kolo_named_tensor* tensors,
                                         size_t count, int64_t step);

/// @}
/// @name arenas
/// Memory for gradients that is reduced in place, without a copy in or out (kolo/gradient_arena.hpp).
/// @{

/// An arena of `bytes`, rounded up to pages, in memory of the CPU (`KOLO_CPU`, 0) or of a device (`KOLO_CUDA` and its
/// number). Every rank of the group calls it, with the same size and name. `name` may be NULL: "gradients".
KOLO_API kolo_status kolo_arena_make(const kolo_group* group, size_t bytes, int32_t device, int32_t index,
                                     const char* name, kolo_arena** arena);
/// An arena with room for these gradients. Each tensor's `data` is set to memory of the arena, filled with zeros; the
/// backward pass must write there. All lie on one device.
KOLO_API kolo_status kolo_arena_for(const kolo_group* group, kolo_named_tensor* gradients, size_t count,
                                    const char* name, kolo_arena** arena);
/// Memory for one tensor, zeroed, aligned to 64 bytes, valid until the arena is released. Reads the tensor's `dtype`,
/// `dims`, `shape` and, on a device, `stream`; writes `data`, `device` and `index`.
KOLO_API kolo_status kolo_arena_allocate(kolo_arena* arena, kolo_tensor* tensor);
/// The bytes that `kolo_arena_allocate` takes for such a tensor.
KOLO_API kolo_status kolo_arena_room_for(const kolo_tensor* tensor, size_t* bytes);
/// The arena's bytes, and how many of them are allocated. Either may be NULL.
KOLO_API kolo_status kolo_arena_sizes(const kolo_arena* arena, size_t* capacity, size_t* allocated);
/// Writes 1 if this address lies in the arena, else 0.
KOLO_API kolo_status kolo_arena_contains(const kolo_arena* arena, const void* address, int32_t* contains);
/// Releases the arena with its memory. Operations on it must be done. It may outlive its context.
KOLO_API kolo_status kolo_arena_release(kolo_arena* arena);

/// @}
/// @name information
/// @{

/// This rank's counters as a JSON object of numbers: kolo::metrics_json (`kolo_result_bytes`, 0). A collective is an
/// object of "calls" and "bytes", a histogram one of "bounds", "counts", "count" and "sum".
KOLO_API kolo_status kolo_metrics(const kolo_group* group, kolo_result** result);
/// Several lines for a person: version, place, nodes, transports and backends chosen (`kolo_result_bytes`, 0).
KOLO_API kolo_status kolo_describe(const kolo_group* group, kolo_result** result);
/// The settings as the context uses them: a JSON array of objects with the texts "name", "value", "default", "source"
/// ("default", "environment", "option", "rank 0"), "range" and "help" (`kolo_result_bytes`, 0).
KOLO_API kolo_status kolo_settings(const kolo_group* group, kolo_result** result);
/// The machine's GPUs: a JSON array of objects with "machine_number", "process_number" (null where
/// CUDA_VISIBLE_DEVICES hides the GPU), "name", "uuid", "memory_bytes", "free_bytes" and "driver", as
/// kolo/devices.hpp explains them; without a GPU "[]". Needs no context (`kolo_result_bytes`, 0).
KOLO_API kolo_status kolo_devices(kolo_result** result);
/// A timeline of all ranks, as kolo/looking.hpp explains it: all of them call it, with the same path.
KOLO_API kolo_status kolo_start_timeline(kolo_context* context, const char* path);
/// Ends this rank's timeline.
KOLO_API kolo_status kolo_stop_timeline(kolo_context* context);
/// Why a job is as it is, by its recorders in this directory (NULL: where jobs of this user record): a JSON object,
/// what `kolo-why --json` prints. Needs no context (`kolo_result_bytes`, 0).
KOLO_API kolo_status kolo_explain_job(const char* directory, kolo_result** result);

/// @}
/// @name CUDA
/// `KOLO_UNSUPPORTED` in a build without CUDA. kolo/cuda.hpp has the rules.
/// @{

/// Chooses the rank's device, makes it the calling thread's current one, and writes CUDA's number of it.
KOLO_API kolo_status kolo_cuda_bind(const kolo_group* group, int32_t* index);
/// Work that is given to `stream` (a cudaStream_t) from now on runs after the operation. The handle is still to be
/// waited for or released.
KOLO_API kolo_status kolo_cuda_wait_on(kolo_handle* handle, void* stream);

/// @}
/// @name LightGBM
/// Its parallel learners over a group, in place of sockets and a list of machines (kolo/lightgbm.hpp has the rules).
/// @{

/// From now on LightGBM, on this thread, reaches the other ranks of the group through Kolo. Every rank of the group
/// calls it, on the thread that will train. `KOLO_INVALID_ARGUMENT` if no lib_lightgbm is loaded.
KOLO_API kolo_status kolo_lightgbm_attach(const kolo_group* group);
/// How many collectives LightGBM has run on this thread since then.
KOLO_API uint64_t kolo_lightgbm_calls(void);
/// A training has ended on this rank; `reason`: the error that has ended it, or NULL. Every rank of the group calls it,
/// or `kolo_lightgbm_detach`, and waits for the others. `KOLO_MISMATCH` on all ranks if LightGBM goes on on one of
/// them.
KOLO_API kolo_status kolo_lightgbm_end_training(const char* reason);
/// LightGBM is alone again on this thread. Ends a training, as `kolo_lightgbm_end_training` does.
/// `KOLO_INVALID_ARGUMENT` if LightGBM has never called, though the group has several ranks: then each has trained on
/// its own data alone.
KOLO_API kolo_status kolo_lightgbm_detach(void);

/// @}

#ifdef __cplusplus
}
#endif

#endif
