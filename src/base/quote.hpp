// SPDX-License-Identifier: Apache-2.0
//
// Names as messages and the log show them. A name is the program's own text, and may hold anything.
#pragma once

#include <string>
#include <string_view>

namespace kolo::base {

/// The name in double quotes, on one line: control characters, quotes, backslashes and bytes that are not UTF-8 are
/// written as escapes (\n, \", \\, \x1b). Of a name longer than 200 bytes only the beginning is shown, and how long it
/// is: "layer1..." (65536 bytes).
std::string quoted(std::string_view name);

}  // namespace kolo::base
