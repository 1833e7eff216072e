// SPDX-License-Identifier: Apache-2.0
//
// A rank's table of names: the sets that it knows, its slots in them, and which slot an id means. Ids come from the log
// and are the same on all ranks; a slot's number is local to this rank.
//
// If this rank is no member of a set, the table has the set's members and no names. A slot ends when its name is
// evicted while idle, when its set is removed, or with the request that it stands for.
//
// Functions `..._in_log` are for entries of the log, and throw if the id or set is not known. The others are for the
// program's calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/stable_vector.hpp"
#include "control/participant/set.hpp"
#include "control/ranges.hpp"

namespace kolo::control::participant {

class SlotTable {
 public:
  explicit SlotTable(std::int32_t rank) : rank_(rank) {}

  // ---- sets

  /// `members` ascend.
  Set& add_set(core::SetId number, core::TensorId base, std::uint16_t generation, Members members);
  [[nodiscard]] Set& set_of(core::SetId number);
  [[nodiscard]] Set& set_in_log(core::SetId number);
  /// Slots point into it.
  [[nodiscard]] std::map<core::SetId, Set>& sets() noexcept { return sets_; }

  // ---- slots

  [[nodiscard]] Slot& operator[](SlotId slot) noexcept { return slots_[slot]; }
  [[nodiscard]] const Slot& operator[](SlotId slot) const noexcept { return slots_[slot]; }
  /// All numbers of slots, free ones included, lie below.
  [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }

  /// The slot of a name, made when it is new.
  SlotId open(Set& set, const std::string& name);
  /// A slot that cannot be found by a name.
  SlotId open_unnamed(Set& set, const std::string& name);
  /// A slot for a request that names its members, which ascend. There must be none yet.
  SlotId open_request(const Members& members, const std::string& name);
  void forget(SlotId slot, std::vector<Action>& actions);
  /// kNoSlot: there is none.
  [[nodiscard]] SlotId find(const Set& set, const std::string& name) const;
  [[nodiscard]] SlotId find(const Set& set, const std::string& name, const Members& members) const;
  /// The slots in flight of the set's names, by name, ascending.
  [[nodiscard]] std::vector<SlotId> in_flight_of(const Set& set) const;
  /// The requests that name their members. All are in flight.
  [[nodiscard]] const std::map<std::pair<Members, std::string>, SlotId>& requests() const noexcept { return requests_; }
  /// The log runs the slot's submission.
  void run(SlotId slot) {
    Slot& running = slots_[slot];
    require(running.in_flight, "the log runs what this rank has not submitted");
    running.in_flight = false;
    if (running.pending) running.pending.reset();
  }

  // ---- ids

  void reserve_id(core::TensorId id);
  [[nodiscard]] bool is_known(core::TensorId id) const { return id < slot_of_name_.size(); }
  /// The slot of an id that is known; kNoSlot: it means nothing here.
  [[nodiscard]] SlotId& slot_of(core::TensorId id) { return slot_of_name_[id]; }
  /// The slot of an id that an entry of the log gives for a set.
  [[nodiscard]] SlotId slot_in_log(const Set& set, core::TensorId id);
  /// All ids of names lie below.
  [[nodiscard]] core::TensorId id_bound() const noexcept { return static_cast<core::TensorId>(slot_of_name_.size()); }

 private:
  const std::int32_t rank_;
  std::map<core::SetId, Set> sets_;  ///< slots point into it
  base::StableVector<Slot> slots_;   ///< names are handed out by reference
  std::vector<SlotId> free_;
  std::map<std::pair<Members, std::string>, SlotId> requests_;
  std::vector<SlotId> slot_of_name_;  ///< by id; its length is the bound of ids
};

}  // namespace kolo::control::participant
