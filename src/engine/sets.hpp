// SPDX-License-Identifier: Apache-2.0
//
// The process sets of a rank: what it knows of each of which it is a member, its open joins there, and where each set
// has its part of the node's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/columns.hpp"
#include "base/mutex.hpp"
#include "control/messages.hpp"
#include "control/participant.hpp"
#include "core/signature.hpp"
#include "core/topology.hpp"
#include "data/backend.hpp"
#include "data/small_calls.hpp"
#include "engine/name_table.hpp"
#include "engine/node_memory.hpp"
#include "engine/operation.hpp"
#include "engine/sequence.hpp"

namespace kolo::engine {

/// A rank's state of a process set of which it is a member: the members, the names that it has used there, and its
/// calls without a name. A `Group` points to it. Exists as long as something refers to it, perhaps only an operation's
/// entry. Any thread.
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

/// The open joins of this rank, at most one for each set. One thread at a time (the engine's driver).
class Joins {
 public:
  struct Open {
    control::NameId name_id = 0;
    OperationPtr operation;
  };

  [[nodiscard]] bool any() const noexcept { return !open_.empty(); }
  void add(core::SetId set, control::NameId name_id, OperationPtr&& operation) {
    Open& open = open_[set];  // first: the caller keeps the operation if there is no memory
    open = {name_id, std::move(operation)};
  }
  /// Null: there is none.
  [[nodiscard]] const Open* find(core::SetId set) const {
    const auto found = open_.find(set);
    return found == open_.end() ? nullptr : &found->second;
  }
  /// Its end.
  [[nodiscard]] OperationPtr take(core::SetId set) {
    OperationPtr operation = std::move(open_.at(set).operation);
    open_.erase(set);
    return operation;
  }

 private:
  std::map<core::SetId, Open> open_;
};

/// What a rank takes part with in a batch of these signatures, in which it is absent: operations whose inputs are
/// neutral elements, in memory of their own. On a device they need no memory, because the backend fills in neutral
/// elements (data::Job). `rank` of `size` is its place in the set.
[[nodiscard]] std::vector<OperationPtr> stand_ins(const std::vector<std::shared_ptr<const core::Signature>>& signatures,
                                                  int rank, int size);

/// The operation that asks for the set of these ranks of the world, in this order. `names`: the world's.
[[nodiscard]] OperationPtr request_for_set(NameTable& names, const std::vector<std::int32_t>& ranks,
                                           const GroupOptions& options);

/// What a set's data plane on the CPU is made from: that of its tensors there, or that of its tensors of a device.
struct PlaneSite {
  const core::Topology& topology;   ///< the set's
  const std::vector<int>& members;  ///< as ranks of the world, by rank of the set
  std::vector<int> local_ranks;     ///< those of this node: their local ranks in the world, in the order of the set's
  base::Columns columns;            ///< likewise, their parts of the node's memory, of NodeLayout::ring_bytes
  std::uint32_t number = 0;         ///< no other set has it at the same time; 0: the world
};
using MakePlane = std::function<std::unique_ptr<data::Backend>(const PlaneSite&)>;
/// Makes its part of the node's memory at once, before a peer may look at it, and the plane when that is called for.
using MakeLatePlane = std::function<std::function<std::unique_ptr<data::Backend>()>(const PlaneSite&)>;

/// One thread at a time (the engine's driver), but for what is constant.
class Sets {
 public:
  struct Parts {
    NodeLayout layout;
    std::byte* memory = nullptr;  ///< of the node
    MakePlane make_plane;
    MakeLatePlane make_device_plane;  ///< empty: there is no device
    data::MakeSmallCalls make_small_calls;
  };
  /// All that is referred to outlives it.
  Sets(const core::Topology& world, Parts parts);

  [[nodiscard]] const SetStatePtr& world() const noexcept { return world_; }
  [[nodiscard]] std::unique_ptr<data::Backend> make_world_plane() { return make_plane(*world_, 0); }

  /// Every entry of the log comes here, checked, before anybody acts upon it.
  void on_log(const control::LogEntry& entry);
  /// This rank is a member of a set that the log has added just now.
  struct Made {
    SetStatePtr state;
    std::unique_ptr<data::Backend> plane;
    std::function<std::unique_ptr<data::Backend>()> make_device_plane;  ///< empty: there is no device
  };
  [[nodiscard]] Made make(core::SetId set, const std::vector<std::int32_t>& members, const std::string& name);
  /// The log has removed it. Returns its serial number.
  std::uint64_t forget(core::SetId set);
  /// Of a set that this rank is a member of.
  [[nodiscard]] Sequence& sequence_of(core::SetId set) const {
    return set == core::kGlobalSet ? world_->sequence : states_.at(set)->sequence;
  }
  /// All calls that were in flight have been completed.
  void clear_sequences() noexcept;
  /// From now on no call avoids the log: a rank has left, or there is a fatal error.
  void close_shortcuts() noexcept;
  /// The set's join is over, and all are back: calls may avoid the log again.
  void reopen(SetState& set);
  /// By set: the last call that has avoided the log.
  [[nodiscard]] std::vector<std::pair<core::SetId, core::Round>> avoided() const;
  /// Of a set that this rank is a member of.
  [[nodiscard]] SetState& state_of(core::SetId set) const {
    return set == core::kGlobalSet ? *world_ : *states_.at(set);
  }

  /// The text for a set of which this rank is a member; empty for the world.
  [[nodiscard]] std::string words_of(core::SetId set) const;
  /// Calls of all sets, removed ones included, that have avoided the log.
  [[nodiscard]] CountsByKind shortcuts() const noexcept;

  EntriesByNameId entries;  ///< of all of them
  Joins joins;

 private:
  [[nodiscard]] std::size_t block_of(const SetState& set, int local_rank) const;
  [[nodiscard]] std::vector<int> local_ranks_of(const SetState& set) const;
  [[nodiscard]] base::Columns columns_of(const SetState& set) const;
  void make_shortcut(SetState& set);
  [[nodiscard]] std::unique_ptr<data::Backend> make_plane(SetState& set, std::uint32_t number);
  [[nodiscard]] PlaneSite site_of(const SetState& set, std::uint32_t number, std::size_t ring) const;

  const core::Topology& topology_;
  const Parts parts_;
  const SetStatePtr world_;
  Blocks blocks_;
  std::unordered_map<core::SetId, std::uint32_t> numbers_;  // of all sets of the log
  std::uint64_t added_ = 0;                                 // sets that the log has added so far
  std::unordered_map<core::SetId, SetStatePtr> states_;     // of those that this rank is a member of
  bool is_closed_ = false;
  CountsByKind gone_ = {};  // by those that were removed
};

}  // namespace kolo::engine
