// SPDX-License-Identifier: Apache-2.0
//
// Messages as bytes: little-endian, lengths before contents, varints for the numbers that are small in a steady step
// (a `PlannedBatch` is three bytes, a `Counted` at most 16). Decoding trusts nothing: any byte string either decodes or
// throws `Error` (transport), and never reads outside its input or allocates more than the input's length justifies.
#pragma once

#include <cstddef>
#include <vector>

#include <kolo/types.hpp>

#include "control/messages.hpp"

namespace kolo::control {

using Bytes = std::vector<std::byte>;
using ByteView = Span<const std::byte>;
inline ByteView view_of(const Bytes& bytes) noexcept { return {bytes.data(), bytes.size()}; }

/// Appends one encoded message to `out`.
void encode(const UpMessage& message, Bytes& out);
void encode(const LogEntry& entry, Bytes& out);

/// Decodes exactly one message from the whole of `bytes`.
UpMessage decode_up(ByteView bytes);
LogEntry decode_log(ByteView bytes);

}  // namespace kolo::control
