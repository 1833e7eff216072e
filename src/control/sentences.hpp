// SPDX-License-Identifier: Apache-2.0
//
// The sentences of negotiation's errors and warnings. Pure functions. The sequencer makes them, so every rank gets the
// same one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control {

/// Why a rank is gone that had left and has stopped by itself ("Leaving" in messages.hpp).
inline constexpr const char* kStopped = "it has stopped";

/// Three digits, or whole seconds: "0.25 s", "1.5 s", "602 s".
std::string spell_seconds(double seconds);

/// `the group of ranks 0 and 2`, `group "pair" of ranks 0 and 2`. The members ascend.
std::string group_of(const std::string& name, const std::vector<std::int32_t>& members);
/// Gives the text of `group_of` for a set; empty for the world, and for a set that is not known any more.
using GroupOf = std::function<std::string(core::SetId)>;

/// `tensor "layer1.weight"`, `unnamed call number 17`, `the join`, each followed by ` of ` and the group unless that is
/// empty. For a request that names its members: their group.
std::string subject(const std::string& group, const Request& request);
/// The same of a join.
std::string join_of(const std::string& group);

/// The warning about a submission, a group or a join that some ranks have not made. `group`: the text for its set. It
/// says which unnamed call it is, and of what kind: `unnamed call number 17 (barrier) of the group ...`.
std::string stalled(const std::string& group, const Stalled& stall);

/// One signature, and the ranks that gave it.
struct Opinion {
  core::Signature signature;
  std::vector<std::int32_t> ranks;
};
/// `tensor "x" of allreduce: ranks disagree about shape: [3, 4] on ranks 0, 2 and 3; [4, 3] on rank 1. The
/// operation did not run; submit the same on every rank.` At least two opinions, no two of them equal. `subject` does
/// not name the group; unless that is empty it comes behind the collective: `tensor "x" of allreduce in the group ...`.
std::string disagreement(const std::string& subject, const std::string& group, const std::vector<Opinion>& opinions);

/// The state of a wait whose deadline has passed. Ranks ascend.
struct Wait {
  double waited_s = 0;
  std::vector<std::int32_t> silent;             ///< members that have not answered and are to be named
  std::vector<Answer> answers;                  ///< by rank
  std::vector<std::int32_t> departed;           ///< members that have shut down without having submitted
  std::map<std::int32_t, std::int32_t> causes;  ///< of members' ends, where other ranks are (messages.hpp)
  bool join = false;                            ///< a wait for the others to join: "submitted" means joined
  bool group = false;                           ///< a wait for a group to be made: "submitted" means has asked for it
  bool alone = false;                           ///< its end is not that of the job
};
/// Why the wait failed, and the rank that caused it (-1: none, or several). control/sequencer/questions.hpp says which
/// ranks it names.
struct Verdict {
  std::string sentence;
  std::int32_t rank = -1;
};
Verdict deadline_passed(const std::string& subject, const Wait& wait, const GroupOf& group_of_set);
/// Ranks that have left, as errors name them. Ranks ascend.
struct Leavers {
  std::vector<std::int32_t> first;           ///< that left of themselves
  std::vector<std::int32_t> followers = {};  ///< that are needed, and left because of `first`, which are not needed
};
/// Why a submission can never be complete, or a group never be made.
std::string hopeless(const std::string& subject, bool is_group, const Leavers& departed);
/// Why nothing can be decided any more: the ranks that decide have left.
std::string nothing_more(const Leavers& departed);
/// Why an operation cannot run without these absent ranks: one of them is its root; each rank sends and receives; it is
/// a product of scaled numbers.
std::string absent_root(const std::string& subject, core::CollectiveKind kind, std::int32_t root);
std::string needs_all(const std::string& subject, core::CollectiveKind kind, const std::vector<std::int32_t>& absent);
std::string scaled_product(const std::string& subject, core::CollectiveKind kind,
                           const std::vector<std::int32_t>& absent);
/// Why a group cannot be made.
std::string absent_member(const std::string& subject, const std::vector<std::int32_t>& absent);
/// Why a join never ends.
std::string endless(const std::string& join, const Leavers& departed);
/// Why a group cannot be made: this rank is in the largest number of groups.
std::string too_many_sets(const std::string& subject, std::int32_t rank, std::uint32_t most);
/// Why this rank ended the job. `because`: the first cause of its end, which has left; -1: the rank itself.
std::string rank_lost(const RankLost& lost, std::int32_t because = -1);
/// "rank 2 does not answer; its process is stopped, or kept from running".
std::string silence_of(const std::vector<std::int32_t>& silent);
/// A wait (perhaps for a group to be made) whose question got no answer; `silent`: the ranks that should have answered.
std::string unanswered(const std::string& subject, bool is_group, double waited_s, const std::string& silent);

}  // namespace kolo::control
