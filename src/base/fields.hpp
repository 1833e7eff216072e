// SPDX-License-Identifier: Apache-2.0
//
// Several texts as one, for an exchange between ranks: each field has its length before it, so it may contain any
// bytes.
#pragma once

#include <string>
#include <vector>

#include <kolo/error.hpp>

namespace kolo::base {

[[nodiscard]] std::string join_fields(const std::vector<std::string>& fields);
/// The inverse. Throws Error (transport) for a text that `join_fields` does not make: it comes from another release.
[[nodiscard]] std::vector<std::string> split_fields(const std::string& joined);
/// The code whose number the field holds. Throws as `split_fields` if there is no such code.
[[nodiscard]] ErrorCode error_code_of(const std::string& field);
/// A status as one text; that of `ok` may have a message, too.
[[nodiscard]] std::string join_status(const Status& status);
/// The inverse. Throws as `split_fields`.
[[nodiscard]] Status split_status(const std::string& joined);
/// Throws the error of `split_fields`, for a field with an impossible value.
[[noreturn]] void throw_unreadable();

}  // namespace kolo::base
