// SPDX-License-Identifier: Apache-2.0
//
// The words of which kolo-why's sentences are made: ranks, times, kinds of requests. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::why {

/// "rank 2".
[[nodiscard]] std::string rank_text(int rank);
/// "ranks 0-2 and 5".
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);
/// "Rank 2", of "rank 2": the begin of a sentence.
[[nodiscard]] std::string upper(std::string text);
/// "1.234 s".
[[nodiscard]] std::string seconds_text(double seconds);
/// "allreduce"; of a number that stands in a file, so it may be none.
[[nodiscard]] std::string kind_text(std::uint8_t kind);

}  // namespace kolo::why
