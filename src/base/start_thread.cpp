// SPDX-License-Identifier: Apache-2.0
#include "base/start_thread.hpp"

#include <string>
#include <system_error>
#include <utility>

#include <kolo/error.hpp>

#include "base/system_error.hpp"

namespace kolo::base {

std::thread start_thread(std::string_view what, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    throw Error(ErrorCode::transport,
                std::string(what) + " cannot be started: " + errno_text(code) + start_remedy(code));
  }
}

}  // namespace kolo::base
