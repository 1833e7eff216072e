// SPDX-License-Identifier: Apache-2.0
//
// The words of which kolo-why's sentences are made: ranks, times, kinds of requests; and the ranks
// that texts in recorders mention: a group's words, and the sentences of errors (control/sentences.hpp). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

/// The ranks that the text of a group names, "the group of ranks 0-2 and 5", of `size` ranks that there are.
[[nodiscard]] std::vector<int> ranks_in(const std::string& text, int size);

/// The rank that the sentence of a fatal error blames: "rank 2 was lost: ...", "...: rank 2 has not submitted it",
/// "rank 0, which coordinates the job, does not answer"; -1: none, or several.
[[nodiscard]] int rank_blamed_by(std::string_view sentence, int size);

}  // namespace kolo::why
