// SPDX-License-Identifier: Apache-2.0
//
// A rank's table of names: the sets that it knows, its names in them, and which name an id means. Ids come from the log
// and are the same on all ranks; a name's number (`NameId`) is local to this rank. Joins and requests for sets have
// such a number, too, while they are under way.
//
// If this rank is no member of a set, the table has the set's members and no names. A record ends when its name is
// evicted while idle, when its set is removed, or with the request that it stands for.
//
// Functions `..._in_log` are for entries of the log, and throw if the id or set is not known. The others are for the
// program's calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/stable_vector.hpp"
#include "control/absentees.hpp"
#include "control/participant.hpp"
#include "control/ranges.hpp"
#include "control/sequence_link.hpp"

namespace kolo::control::participant {

inline constexpr NameId kNoName = ~NameId{0};

using Members = std::vector<std::int32_t>;

/// A planned batch on this rank. `submitted` counts its members that are in flight here.
struct PlannedPart {
  std::uint32_t plan = 0;
  std::uint32_t number = 0;
  std::vector<NameId> members;
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
  NameId join = kNoName;      ///< the number of this rank's join; kNoName: it has not joined
  Absentees absent;           ///< the absent members, if this rank is a member
  std::uint64_t joins = 0;    ///< joins of the set that have ended
  std::uint64_t run = 0;      ///< batches that were handed out
  std::uint64_t completed = 0;
  std::uint64_t steps = 0;
  std::uint16_t generation = 0;  ///< of the completed and steps counts
  std::unordered_map<std::string, NameId> names;
  Sequence sequence;
};

inline bool has_calls_in_flight(const Set& set) { return set.sequence.made > set.sequence.over(); }

/// A name's record.
struct Name {
  Set* set = nullptr;                              ///< null when the number is free
  std::shared_ptr<const core::Signature> current;  ///< what the id means in this generation
  PlannedPart* part = nullptr;
  core::Round round = 0;
  std::uint64_t serial = 0;  ///< of the last submission, on this rank; 0: it has failed
  core::TensorId id = core::kNoTensor;
  std::uint16_t generation = 0;
  bool in_flight = false;
  bool whole = false;  ///< the submission in flight was sent whole
  bool is_join = false;
  bool fails_alone = false;                        ///< of a request that names its members: its deadline ends only it
  bool counted = false;                            ///< this rank has written the count word of the present id
  std::shared_ptr<const core::Signature> pending;  ///< the signature of the submission in flight, if it was sent whole
  std::string name;
  Members members;  ///< the members of a request that names them, ascending
};

class Names {
 public:
  explicit Names(std::int32_t rank) : rank_(rank) {}

  // ---- sets

  /// `members` ascend.
  Set& add_set(core::SetId number, core::TensorId base, std::uint16_t generation, Members members);
  [[nodiscard]] Set& set_of(core::SetId number) {
    const auto found = sets_.find(number);
    KOLO_CHECK(found != sets_.end()) << "process set " << number << " is not known here";
    return found->second;
  }
  [[nodiscard]] Set& set_in_log(core::SetId number) {
    const auto found = sets_.find(number);
    require(found != sets_.end(), "there is no such process set");
    return found->second;
  }
  /// Names point into it.
  [[nodiscard]] std::map<core::SetId, Set>& sets() noexcept { return sets_; }

  // ---- names

  [[nodiscard]] Name& operator[](NameId named) noexcept { return names_[named]; }
  [[nodiscard]] const Name& operator[](NameId named) const noexcept { return names_[named]; }
  /// All numbers of names, free ones included, lie below.
  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }

  /// The number of a name, made when it is new.
  NameId open(Set& set, const std::string& name);
  /// A record that cannot be found by a name.
  NameId open_unnamed(Set& set, const std::string& name);
  /// A record for a request that names its members, which ascend. There must be none yet.
  NameId open_request(const Members& members, const std::string& name);
  void forget(NameId named, std::vector<Action>& actions);
  /// kNoName: there is none.
  [[nodiscard]] NameId find(const Set& set, const std::string& name) const;
  [[nodiscard]] NameId find(const Set& set, const std::string& name, const Members& members) const;
  /// The names in flight of the set's names, by name, ascending.
  [[nodiscard]] std::vector<NameId> in_flight_of(const Set& set) const;
  /// The requests that name their members. All are in flight.
  [[nodiscard]] const std::map<std::pair<Members, std::string>, NameId>& requests() const noexcept { return requests_; }
  /// The log runs the name's submission.
  void run(NameId named) {
    Name& running = names_[named];
    require(running.in_flight, "the log runs what this rank has not submitted");
    running.in_flight = false;
    if (running.pending) running.pending.reset();
  }

  // ---- ids

  void reserve_id(core::TensorId id);
  [[nodiscard]] bool is_known(core::TensorId id) const { return id < name_of_id_.size(); }
  /// The name of an id that is known; kNoName: it means nothing here.
  [[nodiscard]] NameId& name_of(core::TensorId id) { return name_of_id_[id]; }
  /// The name of an id that an entry of the log gives for a set.
  [[nodiscard]] NameId name_in_log(const Set& set, core::TensorId id);
  /// All ids of names lie below.
  [[nodiscard]] core::TensorId id_bound() const noexcept { return static_cast<core::TensorId>(name_of_id_.size()); }

 private:
  const std::int32_t rank_;
  std::map<core::SetId, Set> sets_;  ///< names point into it
  base::StableVector<Name> names_;   ///< names are handed out by reference
  std::vector<NameId> free_;
  std::map<std::pair<Members, std::string>, NameId> requests_;
  std::vector<NameId> name_of_id_;  ///< by id; its length is the bound of ids
};

}  // namespace kolo::control::participant
