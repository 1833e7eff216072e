// SPDX-License-Identifier: Apache-2.0
//
// Interprets the exception of a rank's body, for run_local and run_forked.
#pragma once

#include <exception>
#include <string>

#include "engine/engine.hpp"

namespace kolo::api {

/// Whether this exception is the engine's fatal error, which every other rank throws, too.
[[nodiscard]] bool is_fatal_error(engine::Engine& engine, const std::exception_ptr& exception);

[[nodiscard]] std::string what_of(const std::exception_ptr& exception);

}  // namespace kolo::api
