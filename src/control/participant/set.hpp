// SPDX-License-Identifier: Apache-2.0
//
// A rank's state of one set, and of the names in it. Plain data, no threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/absentees.hpp"
#include "control/participant.hpp"
#include "control/sequence.hpp"

namespace kolo::control::participant {

inline constexpr SlotId kNoSlot = ~SlotId{0};

using Members = std::vector<std::int32_t>;

/// A planned batch on this rank. `submitted` counts its members that are in flight here.
struct PlannedPart {
  std::uint32_t plan = 0;
  std::uint32_t number = 0;
  std::vector<SlotId> members;
  std::size_t submitted = 0;
  bool reported = false;  ///< a `PartAwaited` of its present state has been sent
  [[nodiscard]] bool partial() const noexcept { return submitted > 0 && submitted < members.size(); }
};

/// The state of this rank's calls without a name in a set. All members are numbers of calls.
struct Sequence {
  explicit Sequence(core::SetId set) : said(set) {}
  SequenceSender said;
  core::Round made = 0;                ///< the last that this rank has given to the log
  core::Round run = 0;                 ///< the last that the log has run or failed
  core::Round passed = 0;              ///< the last that has avoided the log, or with which a join has ended
  core::Round last = ~core::Round{0};  ///< no later call can run: a rank has left
  AbsentCallers absent;
  /// The last that is over in the log, or has avoided it.
  [[nodiscard]] core::Round over() const noexcept { return std::max(run, passed); }
};

struct Set {
  explicit Set(core::SetId its_number) : number(its_number), sequence(its_number) {}
  core::SetId number = 0;
  core::TensorId base = 0;
  Members members;
  bool member = false;        ///< this rank is a member
  bool has_departed = false;  ///< some member has left
  bool is_dropped = false;    ///< by this rank's program
  bool said_so = false;       ///< and the log knows that this rank is done with it
  SlotId join = kNoSlot;      ///< the slot of this rank's join; kNoSlot: it has not joined
  Absentees absent;           ///< the absent members, if this rank is a member
  std::uint64_t joins = 0;    ///< joins of the set that have ended
  std::uint64_t run = 0;      ///< batches that were handed out
  std::uint64_t completed = 0;
  std::uint64_t steps = 0;
  std::uint16_t generation = 0;  ///< of the completed and steps counts
  std::unordered_map<std::string, SlotId> names;
  Sequence sequence;
};

inline bool has_calls_in_flight(const Set& set) { return set.sequence.made > set.sequence.over(); }

struct Slot {
  Set* set = nullptr;                              ///< null when the slot is free
  std::shared_ptr<const core::Signature> current;  ///< what the id means in this generation
  PlannedPart* part = nullptr;
  core::Round round = 0;
  std::uint64_t serial = 0;  ///< of the last submission, on this rank; 0: it has failed
  core::TensorId id = core::kNoTensor;
  std::uint16_t generation = 0;
  bool in_flight = false;
  bool whole = false;  ///< the submission in flight was sent whole
  bool is_join = false;
  bool counted = false;                            ///< this rank has written the count word of the present id
  std::shared_ptr<const core::Signature> pending;  ///< the signature of the submission in flight, if it was sent whole
  std::string name;
  Members members;  ///< the members of a request that names them, ascending
};

}  // namespace kolo::control::participant
