// SPDX-License-Identifier: Apache-2.0
//
// Operations that are used again, for unnamed asynchronous calls and for all-reduces by name.
//
// Programs start many small tensors at once, and an atomic step costs 5 ns for each. So these operations have one
// owner, the handle. The engine borrows the operation until it is settled. When the handle is destroyed after that, the
// operation becomes a spare: the next call uses it, without a lock or a count. When the handle is destroyed before, the
// engine becomes the owner (detail::HandleState::leave).
//
// Each thread has a chunk of spares that it takes from and one that it adds to. Full chunks go to a shelf that all
// threads share, because one thread may make the calls and another one destroy the handles. The oldest chunk is taken
// first. So in one thread spares come back in the order of the calls, and a program that repeats its calls finds the
// signature of each in its spare.
#pragma once

#include "engine/operation.hpp"

namespace kolo::api {

/// Operations on the shelf, at most, and operations in a chunk.
inline constexpr std::size_t kMostSpares = 4096;
inline constexpr std::size_t kSparesOfChunk = 64;

/// An open operation for a call of that entry: a spare, or a new one. A spare has the signature and perhaps the buffers
/// of an earlier call, of any entry, and nothing else. The caller is its only owner, and must lend it. Any thread.
[[nodiscard]] engine::OperationPtr take_spare(engine::Entry& entry);
/// The end of a handle. Keeps the operation as a spare if it is over, and leaves it to the engine if it is lent and
/// open. Any thread.
void drop(engine::OperationPtr&& operation) noexcept;

}  // namespace kolo::api
