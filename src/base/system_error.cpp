// SPDX-License-Identifier: Apache-2.0
#include "base/system_error.hpp"

#include <system_error>

#include <kolo/error.hpp>

namespace kolo::base {

std::string errno_text(int error) {
  return std::generic_category().message(error) + " (errno " + std::to_string(error) + ")";
}

void throw_errno(std::string_view what, int error) {
  throw Error(ErrorCode::transport, std::string(what) + ": " + errno_text(error));
}

}  // namespace kolo::base
