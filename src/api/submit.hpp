// SPDX-License-Identifier: Apache-2.0
//
// Makes an operation from a `Request` (request.hpp), and gives it to the engine. A call takes one of these functions:
//
//   start_named            by its name; a blocking call waits for it
//   start_unnamed          asynchronous, without a name: the order of the group's calls is the name
//   run_blocking_unnamed   also in the order of the calls; without the log if possible (control/shortcut.hpp)
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

/// The backend for devices. Throws Error (unsupported) if there is none: the end of a sentence, behind "..., but ".
data::DeviceBackend& device_of(const engine::Engine& engine);
/// Throws Error (unsupported) if this engine cannot use tensors of the request's device. Notes which tensors lie in an
/// arena of the device.
void prepare_device(const detail::GroupParts& group, std::string_view name, Request& request);
/// Records an event on each of the request's streams; the operation waits for them. Throws Error (invalid_argument) if
/// a stream is being captured.
std::vector<data::DeviceEventPtr> record(engine::Engine& engine, Device device, const std::vector<Stream>& streams);

/// The lock for Kolo's own calls. These have names that no program can use, so they take no place in the order of a
/// program's calls. One thread at a time makes them, and holds this lock. Throws Error (invalid_argument) inside a
/// callback.
[[nodiscard]] base::Mutex& lock_of_own_calls(const Group& group);
/// As `run`, under a name that begins with "kolo.". The caller holds the lock. Returns the call's result, if it owns
/// one.
Tensor run_own(const Group& group, std::string_view name, const Call& call);

}  // namespace kolo::api
