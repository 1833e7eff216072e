// SPDX-License-Identifier: Apache-2.0
//
// Sentences with texts of programs or of other processes in them, on their way to the log or to other ranks.
#pragma once

#include <cstddef>
#include <string>

namespace kolo::base {

/// The sentence `on_one_line` (quote.hpp). Of one that is longer than `limit` bytes, the beginning, and its length:
/// "... (65536 bytes)".
std::string one_line(const std::string& text, std::size_t limit);

}  // namespace kolo::base
