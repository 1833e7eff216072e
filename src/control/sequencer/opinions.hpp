// SPDX-License-Identifier: Apache-2.0
//
// Whether a request that every member has submitted can run: which rank gave which signature, whether they agree, and
// whether it can run without the ranks that have joined. Pure functions.
//
// If members disagree, the round fails on all of them with one sentence: the tensor, what differs, and which ranks gave
// what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/sentences.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

/// The signatures and their ranks. Ranks that submitted by a count gave the present signature.
std::vector<Opinion> opinions_of(const Declared& message, const TensorTable& tensors);
/// Adds the absent ranks' signatures of this name's round, and removes what was merged for them before they joined.
void hear_absent(const Set& set, const std::string& name, std::vector<Opinion>& opinions);
/// `disagreement` about a request of a set, or one that names its members.
std::string disagreement_about(const SetTable& sets, const Request& request, const std::vector<Opinion>& opinions);

/// Why this request cannot run while some ranks are absent; empty: it can. `absent`: the ranks that do not contribute
/// to it.
std::string why_not(const SetTable& sets, const Set& set, const Request& request, const core::Signature& signature,
                    const std::vector<std::int32_t>& absent);
/// Why this call cannot run; empty: it can.
std::string why_not(const SetTable& sets, const Set& set, const Request& request, const Calls& calls,
                    const std::vector<std::int32_t>& absent);

}  // namespace kolo::control::sequencer
