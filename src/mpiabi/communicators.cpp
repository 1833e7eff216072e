// SPDX-License-Identifier: Apache-2.0
//
// Beginning, ending, and communicators.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "mpiabi/abi.hpp"

namespace kolo::mpiabi {
namespace {

std::mutex starting;
kolo_context* context = nullptr;
bool owns_context = false;  // else its maker shuts it down (kolopy.jax)
std::atomic<bool> is_initialized{false};
std::atomic<bool> is_finalized{false};

/// Nothing but their order matches splits, so a process makes one at a time.
std::mutex splitting;

int join_job() {
  kolo_status status = kolo_current(&context);
  if (status == KOLO_NOT_INITIALIZED) {
    status = kolo_init(nullptr, &context);
    owns_context = status == KOLO_OK;
  }
  if (status == KOLO_OK) {
    world.group = kolo_world(context);
    status = std::max(kolo_rank(world.group, &world.rank), kolo_size(world.group, &world.size));
  }
  return outcome(status, "Init_thread");
}

/// XLA's keys are places in its clique. If they are not the ranks of the group, a process has several devices. MPI and
/// Kolo have one rank a process, and XLA would reduce over some of the devices only.
int check_keys(const MpiCommunicator& made, int key) {
  std::int32_t is_right = made.rank == key ? 1 : 0;
  const kolo_tensor flag = tensor_of(&is_right, 1, type(KOLO_INT32));
  kolo_allreduce_options least = KOLO_ALLREDUCE_OPTIONS_INIT;
  least.op = KOLO_MIN;
  const int code = outcome(kolo_allreduce(made.group, nullptr, &flag, &flag, &least, nullptr), "Comm_split");
  if (code != kSuccess || is_right != 0) return code;
  return fail(KOLO_UNSUPPORTED, "Kolo has one rank a process, and this JAX has several CPU devices in one: set "
                                "jax_num_cpu_devices to 1, and start a process for each device");
}

/// Null: this rank wants none.
int split(const MpiCommunicator* parent, int color, int key, std::unique_ptr<MpiCommunicator>& made) {
  if (const int code = check(parent, 0, kByte, "Comm_split"); code != kSuccess) return code;
  const bool is_none = color == kUndefinedColor;
  kolo_group_options options = KOLO_GROUP_OPTIONS_INIT;
  options.fails_alone = 1;  // a process that does not come has no part in this communicator: the others hear of it
  const kolo_status status =
      kolo_group_split(parent->group, is_none ? KOLO_NO_GROUP : color, is_none ? 0 : key, &options, &made->group);
  if (status != KOLO_OK) return outcome(status, "Comm_split");
  if (is_none) {
    kolo_group_release(made->group);
    made.reset();
    return kSuccess;
  }
  const int code =
      outcome(std::max(kolo_rank(made->group, &made->rank), kolo_size(made->group, &made->size)), "Comm_split");
  return code == kSuccess ? check_keys(*made, key) : code;
}

int answer(int* place, int value) noexcept {
  *place = value;
  return kSuccess;
}

}  // namespace

// ---------------------------------------------------------------- beginning and ending

MPIABI_EXPORT int MPIABI_Init_thread(int*, char***, int, int* provided) {
  const std::lock_guard<std::mutex> lock(starting);
  if (provided != nullptr) *provided = kThreadMultiple;
  if (is_initialized.exchange(true)) return kSuccess;
  const int code = join_job();
  if (code != kSuccess) {
    world.broken = last_failure();
    std::fprintf(stderr, "%s\n", world.broken.text);
  }
  return code;
}
MPIABI_EXPORT int MPIABI_Init(int* argc, char*** argv) { return MPIABI_Init_thread(argc, argv, 0, nullptr); }
MPIABI_EXPORT int MPIABI_Initialized(int* flag) { return answer(flag, is_initialized ? 1 : 0); }
MPIABI_EXPORT int MPIABI_Finalized(int* flag) { return answer(flag, is_finalized ? 1 : 0); }
MPIABI_EXPORT int MPIABI_Query_thread(int* provided) { return answer(provided, kThreadMultiple); }
/// XLA asks whether this thread may make a communicator: any may.
MPIABI_EXPORT int MPIABI_Is_thread_main(int* flag) { return answer(flag, 1); }
MPIABI_EXPORT int MPIABI_Finalize() {
  const std::lock_guard<std::mutex> lock(starting);
  is_finalized = true;
  return std::exchange(owns_context, false) ? outcome(kolo_shutdown(context), "Finalize") : kSuccess;
}
MPIABI_EXPORT int MPIABI_Abort(Word, int code) {
  if (context != nullptr) kolo_abandon(context, "MPI_Abort");
  std::_Exit(code);
}

// ---------------------------------------------------------------- communicators

MPIABI_EXPORT int MPIABI_Comm_rank(Word communicator, int* rank) {
  return answer(rank, communicator == 0 ? 0 : communicator_of(communicator)->rank);
}
MPIABI_EXPORT int MPIABI_Comm_size(Word communicator, int* size) {
  return answer(size, communicator == 0 ? 1 : communicator_of(communicator)->size);
}
MPIABI_EXPORT int MPIABI_Comm_split(Word parent, int color, int key, MpiCommunicator** result) {
  const std::lock_guard<std::mutex> lock(splitting);
  auto made = std::make_unique<MpiCommunicator>();
  const int code = split(communicator_of(parent), color, key, made);
  if (code != kSuccess) made->broken = last_failure();
  *result = made.release();
  return code;
}
/// Also after MPI_Finalize and after Kolo's shutdown: a group outlives its context.
MPIABI_EXPORT int MPIABI_Comm_free(MpiCommunicator** communicator) {
  const std::unique_ptr<MpiCommunicator> gone(*communicator == &world ? nullptr : *communicator);
  *communicator = nullptr;
  if (gone != nullptr && gone->group != nullptr) kolo_group_release(gone->group);
  return kSuccess;
}

// ---------------------------------------------------------------- information

MPIABI_EXPORT int MPIABI_Error_string(int code, char* text, int* length) {
  Sentence said;
  if (code >= kFirstError && !last_failure().empty()) {
    said = last_failure();
  } else {
    said.write(code == kSuccess ? "no error" : "error " + std::to_string(code));
  }
  std::memcpy(text, said.text, Sentence::kBytes);
  return answer(length, static_cast<int>(std::strlen(text)));
}
MPIABI_EXPORT int MPIABI_Get_version(int* version, int* subversion) {
  return answer(version, 3) + answer(subversion, 1);
}
MPIABI_EXPORT int MPIABI_Get_library_version(char* text, int* length) {
  return answer(length, std::snprintf(text, 8192, "Kolo %s, what JAX calls of MPI", kolo_version()));
}
MPIABI_EXPORT double MPIABI_Wtime() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
MPIABI_EXPORT int MPIXABI_Query_cuda_support() { return 0; }
MPIABI_EXPORT int MPIXABI_Query_hip_support() { return 0; }
MPIABI_EXPORT int MPIXABI_Query_rocm_support() { return 0; }
MPIABI_EXPORT int MPIXABI_Query_ze_support() { return 0; }

}  // namespace kolo::mpiabi
