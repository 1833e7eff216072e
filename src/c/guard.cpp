// SPDX-License-Identifier: Apache-2.0
#include "c/guard.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <kolo/info.hpp>

namespace kolo::c {
namespace {

// Nothing that is destroyed: a program may call Kolo while its thread, or the process, ends.
constexpr std::size_t kLongest = 8192;
thread_local char last_error[kLongest];

}  // namespace

kolo_status fail(kolo_status status, std::string_view sentence) noexcept {
  constexpr std::string_view kCut = "...";
  const std::size_t length = std::min(sentence.size(), kLongest - 1);
  std::memmove(last_error, sentence.data(), length);
  last_error[length] = 0;
  if (length < sentence.size()) kCut.copy(last_error + length - kCut.size(), kCut.size());
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

const char* kolo_last_error() { return kolo::c::last_error; }

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
