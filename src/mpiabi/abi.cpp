// SPDX-License-Identifier: Apache-2.0
#include "mpiabi/abi.hpp"

#include <cstdio>

namespace kolo::mpiabi {
namespace {

thread_local Sentence failure;  // of this thread

}  // namespace

MpiCommunicator world;

kolo_tensor tensor_of(const void* data, std::int64_t count, Word type) noexcept {
  kolo_tensor tensor = {};
  tensor.data = const_cast<void*>(data);
  tensor.dtype = dtype_of(type);
  tensor.dims = parts_of(type) == 1 ? 1 : 2;
  tensor.shape[0] = count;
  tensor.shape[1] = parts_of(type);
  tensor.device = KOLO_CPU;
  return tensor;
}

int fail(kolo_status status, const std::string& text) {
  failure.write(text);
  return kFirstError + static_cast<int>(status);
}

int outcome(kolo_status status, const char* call) {
  if (status == KOLO_OK) return kSuccess;
  return fail(status, "Kolo (" + std::string(kolo_status_name(status)) + ") in MPI_" + call + ": " + kolo_last_error());
}

const Sentence& last_failure() noexcept { return failure; }

int absent(const char* name) {
  const std::string text = "MPI_" + std::string(name) +
                           " is not in libkolo_mpiabi, which has what JAX's CPU collectives call, and no more of MPI";
  std::fprintf(stderr, "kolo: %s\n", text.c_str());
  return fail(KOLO_UNSUPPORTED, text);
}

int check(const MpiCommunicator* communicator, std::int64_t count, Word type, const char* call) {
  const std::string where = "MPI_" + std::string(call);
  if (communicator == nullptr) return fail(KOLO_INVALID_ARGUMENT, where + " on MPI_COMM_NULL");
  if (!communicator->broken.empty()) return fail(KOLO_UNSUPPORTED, communicator->broken.text);
  if (communicator->group == nullptr) return fail(KOLO_NOT_INITIALIZED, where + " before MPI_Init_thread");
  if (!is_type(type)) return fail(KOLO_UNSUPPORTED, where + ": Kolo has no such datatype");
  if (count >= 0) return kSuccess;
  return fail(KOLO_INVALID_ARGUMENT, where + ": the count is negative. JAX gives MPI 2,147,483,647 elements at most; "
                                             "reduce an array in several parts");
}

}  // namespace kolo::mpiabi
