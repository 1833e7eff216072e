// SPDX-License-Identifier: Apache-2.0
//
// What the exception of a rank's own code tells, for those who run ranks.
#pragma once

#include <exception>
#include <string>

#include "engine/engine.hpp"

namespace kolo::api {

/// Whether this exception is the engine's fatal error: what every other rank throws as well.
[[nodiscard]] bool is_fatal_error(engine::Engine& engine, const std::exception_ptr& exception);

[[nodiscard]] std::string what_of(const std::exception_ptr& exception);

}  // namespace kolo::api
