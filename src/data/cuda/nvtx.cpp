// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/nvtx.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define KOLO_HAS_NVTX 1
#endif

#include <cstddef>
#include <exception>
#include <string>

namespace kolo::cuda {

#ifdef KOLO_HAS_NVTX
namespace {

/// Null where nobody listens.
nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("kolo");
  return made;
}

template <class Say>
bool say(const char* what, std::string_view label, Say say_it) noexcept {
  try {
    const std::string text = std::string(what) + " " + std::string(label);
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = text.c_str();
    say_it(&attributes);
    return true;
  } catch (const std::exception&) {
    return false;  // no memory for a text that nobody needs
  }
}

}  // namespace

bool profiler_listens() noexcept { return domain() != nullptr; }

ProfilerRange::ProfilerRange(const char* what, std::string_view label) noexcept
    : open_(profiler_listens() && say(what, label, [](const nvtxEventAttributes_t* attributes) {
              nvtxDomainRangePushEx(domain(), attributes);
            })) {}

ProfilerRange::~ProfilerRange() {
  if (open_) nvtxDomainRangePop(domain());
}

void mark_for_profiler(const char* what, std::string_view label) noexcept {
  if (!profiler_listens()) return;
  say(what, label, [](const nvtxEventAttributes_t* attributes) { nvtxDomainMarkEx(domain(), attributes); });
}
#else
bool profiler_listens() noexcept { return false; }
ProfilerRange::ProfilerRange(const char* /*what*/, std::string_view /*label*/) noexcept : open_(false) {}
ProfilerRange::~ProfilerRange() = default;
void mark_for_profiler(const char* /*what*/, std::string_view /*label*/) noexcept {}
#endif

}  // namespace kolo::cuda
