// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace kolo_bench {
namespace {

// CUPTI's callbacks have no argument of ours.
std::mutex mutex;
Traced traced;
bool is_tracing = false;

void check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  static_cast<void>(cuptiGetResultString(result, &text));
  throw std::runtime_error(std::string(call) + ": " + (text != nullptr ? text : "failed"));
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, kBytes));
  *bytes = *buffer != nullptr ? kBytes : 0;
  *most_records = 0;  // as many as there is room for
}

void keep(const CUpti_Activity& record) {
  switch (record.kind) {
  case CUPTI_ACTIVITY_KIND_RUNTIME:
  case CUPTI_ACTIVITY_KIND_DRIVER: {
    const auto& call = reinterpret_cast<const CUpti_ActivityAPI&>(record);
    traced.calls.push_back({call.start, call.end, static_cast<pid_t>(call.threadId), call.correlationId});
    break;
  }
  case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
    const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
    traced.work.push_back({kernel.start, kernel.end, kernel.correlationId, kernel.name});
    break;
  }
  case CUPTI_ACTIVITY_KIND_MEMCPY: {
    const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
    if (copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD)
      traced.work.push_back({copy.start, copy.end, copy.correlationId, "copy"});
    break;
  }
  default:
    break;
  }
}

void CUPTIAPI take_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer, std::size_t /*bytes*/,
                          std::size_t valid) {
  const std::scoped_lock lock(mutex);
  CUpti_Activity* record = nullptr;
  while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) keep(*record);
  std::free(buffer);
}

}  // namespace

std::string begin_trace() {
  try {
    check(cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM), "cuptiSetThreadIdType");
    check(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
    for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER,
                                          CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY})
      check(cuptiActivityEnable(kind), "cuptiActivityEnable");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  is_tracing = true;
  return {};
}

Nanoseconds trace_now() {
  Nanoseconds now = 0;
  if (is_tracing) {
    check(cuptiGetTimestamp(&now), "cuptiGetTimestamp");
  } else {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    now = static_cast<Nanoseconds>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
  }
  return now;
}

Traced take_trace() {
  if (is_tracing) check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  const std::scoped_lock lock(mutex);
  Traced all = std::exchange(traced, {});
  const auto earlier = [](const auto& one, const auto& other) { return one.begin < other.begin; };
  std::sort(all.calls.begin(), all.calls.end(), earlier);
  std::sort(all.work.begin(), all.work.end(), earlier);
  return all;
}

}  // namespace kolo_bench
