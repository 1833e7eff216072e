// SPDX-License-Identifier: Apache-2.0
//
// What is refused of messages that decode. Another process has sent them: ids, ranks, sizes and counts in them become
// indices and lengths here, so each is compared with what this world can have before it is used. What a field may be by
// itself is checked here; what it may be in the present state, by the machine that has the state (`require`).
//
// A refusal is an Error (transport), which ends the job. It is no broken invariant of this process, which would abort.
#pragma once

#include <cstdint>

#include "control/messages.hpp"

namespace kolo::control {

/// The most ids that a world can have (KOLO_CACHE_CAPACITY).
inline constexpr std::uint32_t kMostIds = std::uint32_t{1} << 20;

/// Throws Error (transport): "a control message is not valid: " and `what`.
[[noreturn]] void refuse(const char* what);
inline void require(bool condition, const char* what) {
  if (!condition) refuse(what);
}

/// Refuses a message that no rank of a world of `size` ranks sends.
void check_ranges(const UpMessage& message, std::int32_t size);
/// Refuses an entry that no log of a world of `size` ranks and `capacity` ids has.
void check_ranges(const LogEntry& entry, std::int32_t size, std::uint32_t capacity);

}  // namespace kolo::control
