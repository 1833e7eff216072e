// SPDX-License-Identifier: Apache-2.0
#include <kolo/kolo.h>

#ifdef KOLO_HAS_CUDA
#include <kolo/cuda.hpp>
#endif

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"

using namespace kolo::c;

namespace {
#ifdef KOLO_HAS_CUDA
using kolo::cuda::bind;
void wait_on(kolo::Handle& handle, void* stream) {
  kolo::cuda::wait_on(handle, static_cast<kolo::cuda::StreamHandle>(stream));
}
#else
constexpr const char* kNoCuda = "this build has no CUDA part: configure it with -DKOLO_WITH_CUDA=ON";
int bind(const kolo::Group& /*group*/) { throw kolo::Error(kolo::ErrorCode::unsupported, kNoCuda); }
void wait_on(kolo::Handle& /*handle*/, void* /*stream*/) { throw kolo::Error(kolo::ErrorCode::unsupported, kNoCuda); }
#endif
}  // namespace

kolo_status kolo_cuda_bind(const kolo_group* group, int32_t* index) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    int32_t& number = given(index, "the place for the device's number");
    number = bind(its);
  });
}

kolo_status kolo_cuda_wait_on(kolo_handle* handle, void* stream) {
  return guarded([&] { wait_on(given(handle, "the handle").handle, stream); });
}
