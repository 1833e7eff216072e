// SPDX-License-Identifier: Apache-2.0
#include <kolo/kolo.h>

#ifdef KOLO_HAS_CUDA
#include <kolo/cuda.hpp>
#endif

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"

using namespace kolo::c;

#ifdef KOLO_HAS_CUDA

kolo_status kolo_cuda_bind(const kolo_group* group, int32_t* index) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    int32_t& number = given(index, "the place for the device's number");
    number = kolo::cuda::bind(its);
  });
}

kolo_status kolo_cuda_wait_on(kolo_handle* handle, void* stream) {
  return guarded(
      [&] { kolo::cuda::wait_on(given(handle, "the handle").handle, static_cast<kolo::cuda::StreamHandle>(stream)); });
}

#else

namespace kolo::c {
namespace {
constexpr const char* kNoCuda = "this build has no CUDA part: configure it with -DKOLO_WITH_CUDA=ON";
}  // namespace
}  // namespace kolo::c

kolo_status kolo_cuda_bind(const kolo_group* group, int32_t* index) {
  return guarded([&] {
    static_cast<void>(given_group(group));
    given(index, "the place for the device's number");
    return fail(KOLO_UNSUPPORTED, kNoCuda);
  });
}

kolo_status kolo_cuda_wait_on(kolo_handle* handle, void* /*stream*/) {
  return guarded([&] {
    given(handle, "the handle");
    return fail(KOLO_UNSUPPORTED, kNoCuda);
  });
}

#endif
