// SPDX-License-Identifier: Apache-2.0
#include "c/guard.hpp"

#include <string>

#include <kolo/info.hpp>

namespace kolo::c {
namespace {

struct LastError {
  std::string text;
  const char* shown = "";
};
thread_local LastError last_error;

}  // namespace

kolo_status fail(kolo_status status, std::string_view sentence) noexcept {
  try {
    last_error.text = sentence;
    last_error.shown = last_error.text.c_str();
  } catch (const std::bad_alloc&) {
    last_error.shown = "there is no memory for this error's sentence";
  }
  return status;
}

}  // namespace kolo::c

int32_t kolo_abi_version() { return KOLO_ABI_VERSION; }

const char* kolo_version() { return kolo::version(); }

const char* kolo_status_name(kolo_status status) {
  const int number = status;  // any number may come from C
  if (number == KOLO_PENDING) return "pending";
  if (number < 0 || number >= kolo::kErrorCodeCount) return "unknown";
  return kolo::to_string(static_cast<kolo::ErrorCode>(number)).data();
}

const char* kolo_last_error() { return kolo::c::last_error.shown; }

namespace kolo::c {

static_assert(KOLO_CANCELLED + 1 == kErrorCodeCount, "kolo.h lists every ErrorCode");
static_assert(KOLO_OK == static_cast<int>(ErrorCode::ok));
static_assert(KOLO_INVALID_ARGUMENT == static_cast<int>(ErrorCode::invalid_argument));
static_assert(KOLO_DUPLICATE_NAME == static_cast<int>(ErrorCode::duplicate_name));
static_assert(KOLO_MISMATCH == static_cast<int>(ErrorCode::mismatch));
static_assert(KOLO_UNSUPPORTED == static_cast<int>(ErrorCode::unsupported));
static_assert(KOLO_NOT_INITIALIZED == static_cast<int>(ErrorCode::not_initialized));
static_assert(KOLO_INVALID_SETTING == static_cast<int>(ErrorCode::invalid_setting));
static_assert(KOLO_TIMEOUT == static_cast<int>(ErrorCode::timeout));
static_assert(KOLO_RANK_LOST == static_cast<int>(ErrorCode::rank_lost));
static_assert(KOLO_SHUT_DOWN == static_cast<int>(ErrorCode::shut_down));
static_assert(KOLO_TRANSPORT == static_cast<int>(ErrorCode::transport));
static_assert(KOLO_USER_EXCEPTION == static_cast<int>(ErrorCode::user_exception));
static_assert(KOLO_OUT_OF_MEMORY == static_cast<int>(ErrorCode::out_of_memory));
static_assert(KOLO_IO == static_cast<int>(ErrorCode::io));
static_assert(KOLO_EXPIRED == static_cast<int>(ErrorCode::expired));
static_assert(KOLO_CANCELLED == static_cast<int>(ErrorCode::cancelled));

}  // namespace kolo::c
