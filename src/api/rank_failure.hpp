// SPDX-License-Identifier: Apache-2.0
//
// Runs the body of a rank, for run_local and run_forked, and tells how it failed.
#pragma once

#include <functional>

#include <kolo/context.hpp>
#include <kolo/error.hpp>

namespace kolo::api {

/// Runs `body` with this context, whose ContextImpl outlives the call, bound to the calling thread, and ends the
/// context. If that throws, returns false; `failed` then gets what was thrown before the other ranks are told.
/// `repeats`: it is a fatal error, which every other rank throws, too.
[[nodiscard]] bool run_rank(Context&& context, const std::function<void()>& body,
                            const std::function<void(const Status& what, bool repeats)>& failed);

/// Throws Error (invalid_argument) for fewer than one.
void require_ranks(int ranks, const char* caller);
/// In a handler: the exception as a status; user_exception where it is no Error.
[[nodiscard]] Status current_failure();

}  // namespace kolo::api
