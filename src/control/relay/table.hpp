// SPDX-License-Identifier: Apache-2.0
//
// What a relay knows from the log and of its children: the sets, which children have members of each, what ids mean,
// and how far each child has come with them.
//
// A child *speaks* for a set while it has members that are present; only those that speak are waited for. Of a set's
// completed and dropped counts all children with members are waited for, because an absent rank has these, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/relay/gathered.hpp"
#include "control/sequence.hpp"

namespace kolo::control::relay {

struct Set {
  core::SetId number = 0;
  core::TensorId base = 0;
  std::vector<std::int32_t> members;
  std::vector<std::size_t> children;  ///< those with members
  std::vector<std::size_t> speakers;  ///< of these, those with members that are present
  std::vector<std::int32_t> joined;   ///< members that are absent, as far as they are below; ascending
  std::uint64_t appended = 0;         ///< batches, by the log
  std::uint64_t completed_sent = 0;
  bool lazy = false;                         ///< the last batch was a planned one
  std::unique_ptr<SequenceMerger> sequence;  ///< once there is something of it
};

/// What each child has reached stands apart, in `Table::row`: of an id's row the least that has gone up is `forwarded`.
struct Tensor {
  Set* set = nullptr;                                  ///< null: the id means nothing now
  const std::vector<std::size_t>* speakers = nullptr;  ///< children that are waited for: the set's, of its completed
                                                       ///< and dropped counts all
  std::uint64_t forwarded = 0;
  std::unique_ptr<Gathered> gathered;  ///< declarations of a round that is not complete
  std::uint32_t ahead = 0;             ///< children beyond `forwarded`
  std::uint16_t generation = 0;
  bool completions = false;  ///< the set's completed count
  std::string name;
};

class Table {
 public:
  /// `below`: the ranks below each child, ascending.
  explicit Table(std::vector<std::vector<std::int32_t>> below) : below_(std::move(below)) {}

  // ---- children

  [[nodiscard]] std::size_t children() const noexcept { return below_.size(); }
  [[nodiscard]] const std::vector<std::int32_t>& below(std::size_t child) const { return below_[child]; }
  /// Of these members those below a child.
  [[nodiscard]] std::vector<std::int32_t> below_child(const std::vector<std::int32_t>& members,
                                                      std::size_t child) const;
  [[nodiscard]] std::vector<std::size_t> children_with(const std::vector<std::int32_t>& members) const;

  // ---- sets

  void add_set(core::SetId number, core::TensorId base, std::uint16_t generation, std::vector<std::int32_t> members);
  /// With its ids. Refuses one that is not there.
  void remove_set(core::SetId number);
  [[nodiscard]] bool has_set(core::SetId number) const { return sets_.count(number) != 0; }
  /// Null: it is not there, or not any more.
  [[nodiscard]] Set* find_set(core::SetId number);
  [[nodiscard]] const Set* find_set(core::SetId number) const;
  /// Refuses one that is not there.
  Set& set_of(core::SetId number);

  // ---- ids

  /// From here on the id means this name, of which every child has submitted so many rounds.
  void assign(core::TensorId id, Set& set, const std::string& name, std::uint16_t generation, core::Round submitted);
  /// The id, which means a name, means nothing any more.
  void evict(core::TensorId id);
  /// kNoTensor: it has none.
  [[nodiscard]] core::TensorId id_of(core::SetId set, const std::string& name) const;
  /// Those of the set's names, and the reserved ones that absent ranks are not waited for at.
  [[nodiscard]] std::vector<core::TensorId> ids_of(const Set& set) const;
  /// All ids of names lie below.
  [[nodiscard]] core::TensorId id_bound() const noexcept {
    return static_cast<core::TensorId>(names_ids_.tensors.size());
  }

  /// What an id means; null: nothing.
  [[nodiscard]] const Tensor* find(core::TensorId id) const {
    const std::vector<Tensor>& tensors = ids_with(id).tensors;
    const std::size_t place = place_of(id);
    return place < tensors.size() && tensors[place].set != nullptr ? &tensors[place] : nullptr;
  }
  [[nodiscard]] Tensor* find(core::TensorId id) { return const_cast<Tensor*>(std::as_const(*this).find(id)); }
  /// What it means in this generation.
  [[nodiscard]] Tensor* current(core::TensorId id, std::uint16_t generation) {
    Tensor* tensor = find(id);
    return tensor != nullptr && tensor->generation == generation ? tensor : nullptr;
  }

  /// How far each child has come with this id.
  [[nodiscard]] const std::uint64_t* row(core::TensorId id) const {
    return ids_with(id).reached.data() + place_of(id) * below_.size();
  }
  [[nodiscard]] std::uint64_t* row(core::TensorId id) {
    return const_cast<std::uint64_t*>(std::as_const(*this).row(id));
  }

 private:
  using Key = std::pair<core::SetId, std::string>;
  /// What ids mean, and how far each child has come with them: by id, then by child.
  struct Ids {
    std::vector<Tensor> tensors;
    std::vector<std::uint64_t> reached;
  };

  void begin(core::TensorId id, Set& set, const std::string& name, std::uint16_t generation, core::Round submitted);
  static std::size_t place_of(core::TensorId id) { return id < core::kFirstRow ? id : id - core::kFirstRow; }
  [[nodiscard]] const Ids& ids_with(core::TensorId id) const { return id < core::kFirstRow ? names_ids_ : rows_; }

  const std::vector<std::vector<std::int32_t>> below_;
  std::map<core::SetId, Set> sets_;  ///< tensors point into it
  Ids names_ids_;                    ///< those of names, and the world's reserved ones
  Ids rows_;                         ///< from kFirstRow on
  std::map<Key, core::TensorId> names_;
};

inline bool is_one_of(const std::vector<std::size_t>& children, std::size_t child) {
  return std::binary_search(children.begin(), children.end(), child);
}
inline bool has_members(const Set& set, std::size_t child) { return is_one_of(set.children, child); }

}  // namespace kolo::control::relay
