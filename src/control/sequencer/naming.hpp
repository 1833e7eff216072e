// SPDX-License-Identifier: Apache-2.0
//
// Declarations decide which id means which name under which signature, and which rounds fail because their members
// disagree. Only the sequencer assigns ids; all other ranks learn them from the log.
//
//   agreed    A declaration on which all agree assigns an id (or a new generation of the name's id) and is ready at
//             once. One that waits for an id is a *newcomer*; newcomers get their ids in the order in which they came.
//   disputed  One on which they disagree fails that round on every member, with the same sentence (opinions.hpp).
//   eviction  Ids are evicted least recently used first, never a ready one. If all are ready, plans are voided, so that
//             their members are appended, and newcomers wait until then.
//   memory    A name with an id has a round, which tells whether the log has run or failed a submission. Names that
//             have lost their id, or failed before they had one, are in `PastNames` (set.hpp).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "control/sequencer/batches.hpp"

namespace kolo::control::sequencer {

class Naming {
 public:
  Naming(Log& log, TensorTable& tensors, SetTable& sets, Failures& failures, Plans& plans, Batches& batches)
      : log_(log), tensors_(tensors), sets_(sets), failures_(failures), plans_(plans), batches_(batches) {}

  /// A declaration in an existing set, by its members.
  void on(Set& set, const Declared& message);
  /// Every member that is present has submitted it.
  void on_complete(Set& set, const Declared& message);
  [[nodiscard]] bool has_newcomers() const noexcept { return !newcomers_.empty(); }
  /// Assigns ids to newcomers, as far as there are free ids.
  void assign_ids();

  /// Whether the name has been agreed upon, and waits for an id.
  [[nodiscard]] bool is_newcomer(core::SetId set, const std::string& name) const;
  /// The set's newcomers can never run: some of its members have left.
  void fail_newcomers(core::SetId set);

 private:
  /// A name on which all agree, and which waits for an id.
  struct Newcomer {
    core::SetId set = 0;
    std::string name;
    core::Round round = 0;
    core::Signature signature;
    std::int32_t last = -1;
  };

  /// Every member has submitted it, and it cannot run.
  void fail_round(Set& set, const Declared& message, ErrorCode code, const std::string& sentence);
  void change_signature(Set& set, core::TensorId id, const core::Signature& signature);
  [[nodiscard]] bool is_id_of(core::TensorId id, core::SetId set, const std::string& name) const;
  /// Returns a free id; kNoTensor if every id is ready and has to be appended first.
  core::TensorId free_an_id();
  void evict(core::TensorId id);
  void note_over(Set& set, const std::string& name, core::Round round);

  Log& log_;
  TensorTable& tensors_;
  SetTable& sets_;
  Failures& failures_;
  Plans& plans_;
  Batches& batches_;
  std::deque<Newcomer> newcomers_;
};

}  // namespace kolo::control::sequencer
