// SPDX-License-Identifier: Apache-2.0
//
// What a rank knows of one set, and its records of the names in it. Plain data, no threads.
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

/// A planned batch as this rank sees it. `submitted` counts its members that are in flight here.
struct PlannedPart {
  std::uint32_t plan = 0;
  std::uint32_t number = 0;
  std::vector<SlotId> members;
  std::size_t submitted = 0;
  bool reported = false;  ///< a `PartAwaited` of its present state has been sent
  [[nodiscard]] bool partial() const noexcept { return submitted > 0 && submitted < members.size(); }
};

/// Of this rank's calls without a name in a set. All are numbers of calls.
struct Sequence {
  explicit Sequence(core::SetId set) : said(set) {}
  SequenceSender said;
  core::Round made = 0;                ///< the last that this rank has given to the log
  core::Round run = 0;                 ///< the last that the log has run or failed
  core::Round passed = 0;              ///< the last that has avoided the log, or that a join has ended with
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
  bool member = false;        ///< this rank is
  bool has_departed = false;  ///< some member has left
  bool is_dropped = false;    ///< by this rank's program
  bool said_so = false;       ///< and this rank has done with it
  SlotId join = kNoSlot;      ///< of this rank, which has joined
  Absentees absent;           ///< of the members, if this rank is one
  std::uint64_t joins = 0;    ///< that have ended
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
  core::TensorId id = core::kNoTensor;
  std::uint16_t generation = 0;
  bool in_flight = false;
  bool whole = false;  ///< the submission in flight was sent whole
  bool is_join = false;
  bool counted = false;                            ///< the count word of the present id has been written
  std::shared_ptr<const core::Signature> pending;  ///< of the submission in flight, when it was sent whole
  std::string name;
  Members members;  ///< of a request that names them, ascending
};

}  // namespace kolo::control::participant
