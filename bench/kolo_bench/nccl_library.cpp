// SPDX-License-Identifier: Apache-2.0
//
// NCCL's functions that kolo-bench calls (nccl_peer.cpp, cuda_device.cpp). They lead to the library that the loader
// finds when the first is called, so that kolo-bench also starts where there is none. With the emulated GPU its NCCL
// stands here.
#include <dlfcn.h>
#include <nccl.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace {

constexpr const char* kName = "libnccl.so.2";

void* open_library() {
  void* const library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error("NCCL could not be opened (" + std::string(::dlerror()) +
                             "): install it (NVIDIA: libnccl2), or leave out --baseline");
  }
  return library;
}

/// Throws std::runtime_error where the library lacks it.
template <class Function>
Function* find(Function& /*stub*/, const char* name) {
  static void* const library = open_library();
  void* const found = ::dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string(kName) + " has no " + name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

// In the body of the function of this name: calls the library's.
#define KOLO_CALL_NCCL(name, ...)                                                                                      \
  static auto* const there = find(name, #name);                                                                        \
  return there(__VA_ARGS__)

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) { KOLO_CALL_NCCL(ncclGetErrorString, result); }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { KOLO_CALL_NCCL(ncclGetUniqueId, id); }
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  KOLO_CALL_NCCL(ncclCommInitRank, comm, ranks, id, rank);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { KOLO_CALL_NCCL(ncclCommDestroy, comm); }
ncclResult_t ncclGroupStart() { KOLO_CALL_NCCL(ncclGroupStart); }
ncclResult_t ncclGroupEnd() { KOLO_CALL_NCCL(ncclGroupEnd); }
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  KOLO_CALL_NCCL(ncclAllReduce, in, out, count, type, op, comm, stream);
}
ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  KOLO_CALL_NCCL(ncclReduce, in, out, count, type, op, root, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  KOLO_CALL_NCCL(ncclReduceScatter, in, out, count, type, op, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  KOLO_CALL_NCCL(ncclAllGather, in, out, count, type, comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  KOLO_CALL_NCCL(ncclBroadcast, in, out, count, type, root, comm, stream);
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  KOLO_CALL_NCCL(ncclSend, in, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  KOLO_CALL_NCCL(ncclRecv, out, count, type, peer, comm, stream);
}

}  // extern "C"
