// SPDX-License-Identifier: Apache-2.0
//
// A rank's state of a process set of which it is a member: the members, the names that it has used there, and its calls
// without a name. A `Group` points to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "core/signature.hpp"
#include "core/topology.hpp"
#include "engine/name_table.hpp"
#include "engine/sequence.hpp"

namespace kolo::engine {

/// Exists as long as something refers to it, perhaps only an operation's entry. Any thread.
class SetState : public std::enable_shared_from_this<SetState> {
 public:
  SetState(core::SetId set, core::Topology its_topology, std::vector<int> its_members, std::string its_words,
           std::uint64_t its_serial = 0)
      : number(set), serial(its_serial), topology(std::move(its_topology)), members(std::move(its_members)),
        words(std::move(its_words)), names(set), sequence(set, names) {}

  const core::SetId number;
  const std::uint64_t serial;      ///< creation index in the log, the same on all ranks and unique; 0: the world
  const core::Topology topology;   ///< of the set: its ranks are places in `members`
  const std::vector<int> members;  ///< as ranks of the world, in the set's order
  const std::string words;         ///< the group's text in messages; empty for the world
  std::string plane;               ///< how its tensors of the CPU are moved, for a person; constant once it is made
  NameTable names;
  Sequence sequence;      ///< its calls without a name
  base::Mutex own_calls;  ///< held by the thread that makes calls of Kolo's own, which have names of Kolo's own
};
using SetStatePtr = std::shared_ptr<SetState>;

}  // namespace kolo::engine
