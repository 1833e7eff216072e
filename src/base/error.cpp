// SPDX-License-Identifier: Apache-2.0
#include <kolo/error.hpp>

namespace kolo {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
  case ErrorCode::ok:
    return "ok";
  case ErrorCode::invalid_argument:
    return "invalid_argument";
  case ErrorCode::duplicate_name:
    return "duplicate_name";
  case ErrorCode::mismatch:
    return "mismatch";
  case ErrorCode::unsupported:
    return "unsupported";
  case ErrorCode::not_initialized:
    return "not_initialized";
  case ErrorCode::invalid_setting:
    return "invalid_setting";
  case ErrorCode::timeout:
    return "timeout";
  case ErrorCode::rank_lost:
    return "rank_lost";
  case ErrorCode::shut_down:
    return "shut_down";
  case ErrorCode::transport:
    return "transport";
  case ErrorCode::user_exception:
    return "user_exception";
  case ErrorCode::out_of_memory:
    return "out_of_memory";
  case ErrorCode::io:
    return "io";
  case ErrorCode::expired:
    return "expired";
  case ErrorCode::cancelled:
    return "cancelled";
  }
  return "unknown";
}

bool is_fatal(ErrorCode code) noexcept {
  return code == ErrorCode::timeout || code == ErrorCode::rank_lost || code == ErrorCode::transport ||
         code == ErrorCode::user_exception;
}

Error::Error(ErrorCode code, const std::string& message) : Error(Status(code, message)) {}
Error::Error(const Status& status) : std::runtime_error("kolo: " + status.message()), status_(status) {}
Error::~Error() = default;

}  // namespace kolo
