// SPDX-License-Identifier: Apache-2.0
//
// Operations of asynchronous calls: of unnamed ones, and of all-reduces by name. Many small tensors are in flight at
// once, and what each of them costs is counted in nanoseconds: an atomic step takes five. So such an operation has one
// owner, its handle; the engine borrows it until it is settled; and when it is over it serves again, without a step for
// a lock or a count.
//
// A handle that goes before its operation is over leaves it to the engine (detail::HandleState::leave).
//
// Each thread has a chunk of spares that it takes from and one that it gives to. Full chunks lie on a shelf that all
// threads share, the oldest first: handles may be dropped by another thread than the one that calls. In a thread that
// does both, spares come back in the order of the calls, so a program that repeats its calls meets the signature of
// each again.
#pragma once

#include "engine/operation.hpp"

namespace kolo::api {

/// So many operations lie on the shelf at most, and so many in a chunk.
inline constexpr std::size_t kMostSpares = 4096;
inline constexpr std::size_t kSparesOfChunk = 64;

/// An open operation for a call of that entry. It may have a signature: that of an earlier call, of any entry, and then
/// perhaps its buffers; nothing else. It has one owner, and must be lent.
[[nodiscard]] engine::OperationPtr take_spare(engine::Entry& entry);
/// The end of a handle: what is over may serve again, what is lent and open is left to the engine.
void drop(engine::OperationPtr&& operation) noexcept;

}  // namespace kolo::api
