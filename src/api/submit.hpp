// SPDX-License-Identifier: Apache-2.0
//
// From a `Request` (request.hpp) to an operation that the engine takes. A call goes one of these ways:
//
//   submit                   asynchronous, by name
//   call                     asynchronous, without a name: the order of the group's calls is the name
//   run                      synchronous: by name, or in the order of the calls; then past the log where that is
//                            possible (control/express.hpp)
//   submit_allreduce, ..._into, call_allreduce, run_unnamed_allreduce
//                            the same for one all-reduce of CPU memory, the call that training makes most: they compare
//                            it with what the name, or the call, meant last time, and make a `Request` only when it
//                            differs
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <kolo/options.hpp>
#include <kolo/types.hpp>

#include "api/request.hpp"
#include "base/mutex.hpp"
#include "engine/engine.hpp"

namespace kolo::api {

/// An all-reduce of one tensor, as `submit` of its request; without making one when the name is known.
std::shared_ptr<detail::HandleState> submit_allreduce(const Group& group, std::string_view name,
                                                      const TensorView& inout, const AllreduceOptions& options);
std::shared_ptr<detail::HandleState> submit_allreduce_into(const Group& group, std::string_view name,
                                                           const ConstTensorView& in, const TensorView& out,
                                                           const AllreduceOptions& options);
/// Throws Error (unsupported) when tensors of the request's device cannot be used with this engine. Notes which of them
/// lie in an arena of the device.
void settle_device(const Group& group, std::string_view name, Request& request);
/// Where the request's streams stand now: what its operation is held back behind. Throws Error (invalid_argument) when
/// one of them is being captured.
std::vector<data::DeviceEventPtr> record(engine::Engine& engine, Device device, const std::vector<Stream>& streams);

/// Submits without a name, as the next of the group's calls.
std::shared_ptr<detail::HandleState> call(const Group& group, Request request);
/// An all-reduce of one tensor, as `call` of its request; without making one when an earlier call was alike.
std::shared_ptr<detail::HandleState> call_allreduce(const Group& group, const TensorView& inout,
                                                    const AllreduceOptions& options);
std::shared_ptr<detail::HandleState> call_allreduce_into(const Group& group, const ConstTensorView& in,
                                                         const TensorView& out, const AllreduceOptions& options);
/// Claims the name and submits.
std::shared_ptr<detail::HandleState> submit(const Group& group, std::string_view name, Request request);
/// What a synchronous call leaves behind.
struct Result {
  Tensor tensor;
  std::vector<std::int64_t> received_splits;
};

/// Submits under the name - or, when it is empty, in the order of the calls, past the log where that is possible -,
/// waits, and throws what went wrong.
Result run(const Group& group, std::string_view name, Request request);

/// Kolo's own calls have names that no program can use, so they take no place in the order of a program's calls. Only
/// one thread at a time makes them: it holds this lock. Throws Error (invalid_argument) inside a callback.
[[nodiscard]] base::Mutex& lock_of_own_calls(const Group& group);
/// As `run`, under a name that begins with "kolo.". With the lock.
Result run_own(const Group& group, std::string_view name, Request request);

/// A synchronous all-reduce without a name, as `run` of its request; without making one when it passes by the log.
void run_unnamed_allreduce(const Group& group, const ConstTensorView& in, const TensorView& out, bool in_place,
                           const AllreduceOptions& options);

}  // namespace kolo::api
