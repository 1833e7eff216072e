// SPDX-License-Identifier: Apache-2.0
//
// Opens NCCL (base/shared_library.hpp): the one that the process has loaded is PyTorch's.
#include <dlfcn.h>

#include <atomic>
#include <string>
#include <type_traits>

#include <kolo/error.hpp>

#include "base/mutex.hpp"
#include "base/shared_library.hpp"
#include "data/cuda/nccl_calls.hpp"

namespace kolo::cuda {
namespace {

constexpr const char* kName = "libnccl.so.2";

NcclCalls open_nccl() {
  std::string why;
  void* const library = base::open_shared_library(kName, "nvidia/nccl/lib", why);
  if (library == nullptr) {
    throw Error(ErrorCode::transport, "NCCL could not be opened (" + why +
                                          "): install it (NVIDIA: libnccl2; pip: nvidia-nccl-cu13), or set "
                                          "KOLO_GPU_BACKEND=staged, which reduces on the CPU");
  }
  NcclCalls calls;
  for_each_nccl_call(calls, [&](const char* name, auto& place) {
    place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(::dlsym(library, name));
  });
  Dl_info its{};
  const bool known = calls.GetVersion != nullptr &&
                     ::dladdr(reinterpret_cast<const void*>(calls.GetVersion), &its) != 0 && its.dli_fname != nullptr;
  calls.file = known ? its.dli_fname : kName;
  return calls;
}

base::Mutex opening;  // held by who opens it
std::atomic<const NcclCalls*> opened{nullptr};

}  // namespace

const NcclCalls& nccl_calls() {
  if (const NcclCalls* const calls = opened_nccl(); calls != nullptr) return *calls;
  const base::MutexLock lock(opening);
  if (opened_nccl() == nullptr) opened.store(new NcclCalls(open_nccl()), std::memory_order_release);
  return *opened_nccl();
}

const NcclCalls* opened_nccl() noexcept { return opened.load(std::memory_order_acquire); }

}  // namespace kolo::cuda
