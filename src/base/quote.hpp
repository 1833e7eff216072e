// SPDX-License-Identifier: Apache-2.0
//
// Names as messages and the log show them. A name is a text of the program, and may contain any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kolo::base {

/// The name in double quotes, on one line: control characters, quotes, backslashes, bytes that are not UTF-8, and
/// characters of Unicode that end lines or turn the direction of writing, are written as escapes (\n, \", \\, \x1b).
/// For a name longer than 200 bytes, its beginning and its length are shown: "layer1..." (65536 bytes).
std::string quoted(std::string_view name);

/// The same for one of several texts. `differs_at` is the byte at which it begins to differ from all others. If the cut
/// hides that byte, the rest from there on is shown, too: "layer1..." (10014 bytes; after the first 10000: "weight").
std::string quoted(std::string_view text, std::size_t differs_at);

/// The same without quotes around it, for text that is part of a longer word: DistributedOptimizer(gradients).
std::string escaped(std::string_view text);

/// A sentence that holds names of others, whole: what is no plain text is escaped as above, but quotes and backslashes
/// stay. One sentence stays one line, whatever another process has put into it.
std::string on_one_line(std::string_view text);

/// The text as a string of JSON, whole. A byte that is part of no UTF-8 becomes the character of its number.
std::string quoted_json(std::string_view text);

/// The sentence `on_one_line` (quote.hpp). Of one that is longer than `limit` bytes, the beginning, and its length:
/// "... (65536 bytes)".
std::string one_line(const std::string& text, std::size_t limit);

}  // namespace kolo::base
