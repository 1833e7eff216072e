// SPDX-License-Identifier: Apache-2.0
//
// The ranks that texts in recorders mention: a group's words, and the sentences of errors (control/sentences.hpp).
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kolo::why {

/// The ranks that the text of a group names, "the group of ranks 0-2 and 5", of `size` ranks that there are.
[[nodiscard]] std::vector<int> ranks_in(const std::string& text, int size);

/// The rank that the sentence of a fatal error blames: "rank 2 was lost: ...", "...: rank 2 has not submitted it",
/// "rank 0, which coordinates the job, does not answer"; -1: none, or several.
[[nodiscard]] int rank_blamed_by(std::string_view sentence, int size);

}  // namespace kolo::why
