// SPDX-License-Identifier: Apache-2.0
//
// Range checks of decoded control messages. Another process has sent them, and their ids, ranks, sizes and counts
// become indices and lengths here. Each is therefore checked before it is used: against the size of the world here, and
// against the present state by the class that has the state (`require`).
//
// A message out of range is an Error (transport), which ends the job. It does not abort this process, whose own
// invariants hold.
#pragma once

#include <cstdint>

#include "control/messages.hpp"

namespace kolo::control {

/// The most ids of tensors that a world can have (KOLO_CACHE_CAPACITY).
inline constexpr std::uint32_t kMostIds = core::kFirstRow;

/// Throws Error (transport): "a control message is not valid: " and `what`.
[[noreturn]] void refuse(const char* what);
inline void require(bool condition, const char* what) {
  if (!condition) refuse(what);
}

/// Refuses a rank that is neither of a world of `size` ranks nor -1.
inline void check_last(std::int32_t rank, std::int32_t size) {
  require(rank >= -1 && rank < size, "there is no such rank");
}

/// Refuses a message that no rank of a world of `size` ranks sends.
void check_ranges(const UpMessage& message, std::int32_t size);
/// Refuses an entry that no log of a world of `size` ranks and `capacity` ids has.
void check_ranges(const LogEntry& entry, std::int32_t size, std::uint32_t capacity);

}  // namespace kolo::control
