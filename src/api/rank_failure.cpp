// SPDX-License-Identifier: Apache-2.0
#include "api/rank_failure.hpp"

#include <kolo/error.hpp>

namespace kolo::api {

bool is_fatal_error(engine::Engine& engine, const std::exception_ptr& exception) {
  if (!engine.faulted()) return false;
  try {
    engine.check_usable();
  } catch (const Error& fatal) {
    try {
      std::rethrow_exception(exception);
    } catch (const Error& error) {
      return error.status().message() == fatal.status().message();
    } catch (...) {
    }
  }
  return false;
}

std::string what_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace kolo::api
