// SPDX-License-Identifier: Apache-2.0
//
// What negotiation says to people. Pure functions; every rank gets the same sentence, because the sequencer makes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/messages.hpp"

namespace kolo::negotiation {

/// `tensor "layer1.weight"`, `unnamed call number 17`, each followed by ` of process set 3` unless that is the world's.
std::string subject(core::SetId set, const std::string& name, core::Round round);

/// One signature and who said it.
struct Opinion {
  core::Signature signature;
  std::vector<std::int32_t> ranks;
};
/// `tensor "x" of allreduce: ranks disagree about shape: [3, 4] on ranks 0, 2-3; [4, 3] on rank 1. Nothing was reduced;
/// submit the same everywhere.` At least two opinions, no two of them equal.
std::string disagreement(const std::string& subject, const std::vector<Opinion>& opinions);

struct Wait {
  double waited_s = 0;
  std::vector<std::int32_t> missing;  ///< ascending
  std::vector<std::int32_t> left;     ///< of these, who has shut down
  int silent_nodes = 0;               ///< nodes that did not answer
};
/// Why a wait ended by its deadline.
std::string deadline_passed(const std::string& subject, const Wait& wait);
/// Why a submission can never be complete.
std::string hopeless(const std::string& subject, const std::vector<std::int32_t>& left);
std::string rank_lost(const core::RankLost& lost);

}  // namespace kolo::negotiation
