// SPDX-License-Identifier: Apache-2.0
//
// From a `Request` (request.hpp) to an operation that the engine takes. A call goes one of these ways:
//
//   start_named            by its name; a blocking call waits for it
//   start_unnamed          asynchronous, without a name: the order of the group's calls is the name
//   run_blocking_unnamed   in the order of the calls, too; past the log where that is possible (control/shortcut.hpp)
//
// Prepared requests are submitted in prepared.cpp.
#pragma once

#include <string_view>
#include <vector>

#include <kolo/types.hpp>

#include "api/context_impl.hpp"
#include "api/request.hpp"
#include "base/mutex.hpp"
#include "engine/engine.hpp"

namespace kolo::api {

/// Throws Error (unsupported) when tensors of the request's device cannot be used with this engine. Notes which of them
/// lie in an arena of the device.
void settle_device(const detail::GroupParts& group, std::string_view name, Request& request);
/// Where the request's streams stand now: what its operation is held back behind. Throws Error (invalid_argument) when
/// one of them is being captured.
std::vector<data::DeviceEventPtr> record(engine::Engine& engine, Device device, const std::vector<Stream>& streams);

/// Kolo's own calls have names that no program can use, so they take no place in the order of a program's calls. Only
/// one thread at a time makes them: it holds this lock. Throws Error (invalid_argument) inside a callback.
[[nodiscard]] base::Mutex& lock_of_own_calls(const Group& group);
/// As `run`, under a name that begins with "kolo.". With the lock.
void run_own(const Group& group, std::string_view name, const Call& call, CallResult* result = nullptr);

}  // namespace kolo::api
