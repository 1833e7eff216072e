// SPDX-License-Identifier: Apache-2.0
//
// The sequencer's table of ids: what each means, its round, and which may be evicted. Only the sequencer has one; all
// other ranks learn ids from the log. Plain data, one owner, no threads.
//
// An id is *reserved* (a set's, never evicted), *used* (it means a name), or free. Used ids stand in the order of their
// last use; the one longest unused goes first when space is needed, unless it is ready and not yet appended. The
// world's reserved ids come first; the rows of other sets lie beyond all these (core::kFirstRow), and `capacity` does
// not count them.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control {

/// Members that every round touches come first, so that many small tensors share cache lines.
struct Tensor {
  // The meaning of the id; more below.
  bool used = false;
  bool reserved = false;
  std::uint16_t generation = 0;  ///< kept while the id is free: the next meaning gets another
  core::SetId set = core::kGlobalSet;

  // How far it has come.
  bool ready = false;         ///< this round has not been appended yet
  std::int32_t priority = 0;  ///< of the signature
  std::int32_t last = -1;     ///< the rank that submitted this round last
  core::Round round = 0;      ///< the last that all members have submitted (or that failed)
  std::uint64_t came = 0;     ///< numbers tensors in the order in which they become ready

  // Steps and plans (planner.hpp).
  bool planned = false;
  std::uint32_t batch = 0;        ///< of the set's plan, when planned
  std::uint64_t seen = 0;         ///< the last step in which it was appended, under this generation; 0: never
  std::uint64_t seen_before = 0;  ///< the one before that

  std::list<core::TensorId>::iterator place{};  ///< in the order of use, when used and not reserved

  std::int64_t bytes = 0;                    ///< of the signature
  std::optional<core::Signature> signature;  ///< of a name
  std::string name;
  std::uint64_t seen_as = 0;      ///< `came`, when it was appended last in a step
  std::uint64_t cut_ready = 0;    ///< a bit for each cut: the tensor was there when the cut was learned
  std::uint64_t cut_lacking = 0;  ///< a bit for each cut: the tensor was lacking
};

class TensorTable {
 public:
  explicit TensorTable(std::uint32_t capacity) : capacity_(capacity) {}

  [[nodiscard]] Tensor& operator[](core::TensorId id) {
    return id < core::kFirstRow ? tensors_[id] : rows_[id - core::kFirstRow];
  }
  [[nodiscard]] const Tensor& operator[](core::TensorId id) const {
    return id < core::kFirstRow ? tensors_[id] : rows_[id - core::kFirstRow];
  }
  /// The id of a name; kNoTensor when it has none.
  [[nodiscard]] core::TensorId find(core::SetId set, const std::string& name) const;
  /// Whether the id has this meaning now.
  [[nodiscard]] bool is_current(core::TensorId id, std::uint16_t generation) const {
    const bool exists = id < core::kFirstRow ? id < tensors_.size() : id - core::kFirstRow < rows_.size();
    return exists && (*this)[id].used && (*this)[id].generation == generation;
  }

  /// Whether the id is in this batch of the set's plan. (A reserved id never is.)
  [[nodiscard]] bool is_planned(core::TensorId id, core::SetId set, std::uint32_t batch) const {
    return id < tensors_.size() && tensors_[id].planned && tensors_[id].set == set && tensors_[id].batch == batch;
  }

  /// A free id, or kNoTensor when one must be evicted first.
  [[nodiscard]] core::TensorId free_id() const;
  /// The used id that may be evicted and was not used for longest; kNoTensor when all are ready.
  [[nodiscard]] core::TensorId least_recently_used() const;

  /// Gives a free id a meaning, under a new generation.
  void assign(core::TensorId id, core::SetId set, const std::string& name, const core::Signature& signature);
  /// The same name, another signature, a new generation.
  void change(core::TensorId id, const core::Signature& signature);
  /// Ends a meaning.
  void release(core::TensorId id);
  /// Reserves the first ids for the world, under generation 0, as all ranks expect.
  void reserve_for_the_world();
  /// Reserves a row for another set, all its ids under one new generation, and returns where it begins; kNoTensor when
  /// there are as many sets as there can be.
  core::TensorId reserve_row(core::SetId set);
  /// The row is free again.
  void release_row(core::TensorId base);
  /// It was appended just now.
  void touch(core::TensorId id) {
    Tensor& tensor = (*this)[id];
    if (!tensor.reserved) use_order_.splice(use_order_.end(), use_order_, tensor.place);
  }
  /// The ids of a set's names.
  [[nodiscard]] std::vector<core::TensorId> of_set(core::SetId set) const;

 private:
  void grow(core::TensorId id);
  void reserve(core::TensorId id, core::SetId set, std::uint16_t generation);

  std::uint32_t capacity_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor> rows_;  ///< from kFirstRow on
  std::map<std::pair<core::SetId, std::string>, core::TensorId> names_;
  std::set<core::TensorId> free_;        ///< below tensors_.size()
  std::set<core::TensorId> free_rows_;   ///< their bases
  std::list<core::TensorId> use_order_;  ///< the longest unused first
};

}  // namespace kolo::control
