// SPDX-License-Identifier: Apache-2.0
//
// Whether what every member has submitted can run: who said what of it, whether they agree, and whether it can do
// without the ranks that have joined. Pure functions.
//
// Members that disagree fail that round on all of them, with one sentence: the tensor, what differs, which ranks said
// what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/sentences.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

/// Who said what; those who counted meant the present signature.
std::vector<Opinion> opinions_of(const Declared& message, const TensorTable& tensors);
/// Adds what the absent say of this name's round; what seems to be said for them is older.
void hear_absent(const Set& set, const std::string& name, std::vector<Opinion>& opinions);
/// `disagreement` about a request of a set, or one that names its members.
std::string disagreement_about(const SetTable& sets, const Request& request, const std::vector<Opinion>& opinions);

/// Why this cannot run while some are absent; empty: it can. `absent`: those that do not contribute to it.
std::string why_not(const SetTable& sets, const Set& set, const Request& request, const core::Signature& signature,
                    const std::vector<std::int32_t>& absent);
/// Why this call cannot run; empty: it can.
std::string why_not(const SetTable& sets, const Set& set, const Request& request, const Calls& calls,
                    const std::vector<std::int32_t>& absent);

}  // namespace kolo::control::sequencer
