// SPDX-License-Identifier: Apache-2.0
//
// What a rank tells the others in one exchange, when that is several things: each field with its length before it, so
// that contents are free.
#pragma once

#include <string>
#include <vector>

#include <kolo/error.hpp>

namespace kolo::base {

[[nodiscard]] std::string join_fields(const std::vector<std::string>& fields);
/// The inverse. Throws Error (transport) for what `join_fields` does not make: another release said it.
[[nodiscard]] std::vector<std::string> split_fields(const std::string& joined);
/// A field that holds the number of a code. Throws as `split_fields` where there is no such code.
[[nodiscard]] ErrorCode error_code_of(const std::string& field);
/// The error of `split_fields`, for a field that says what none can.
[[noreturn]] void throw_unreadable();

}  // namespace kolo::base
