// SPDX-License-Identifier: Apache-2.0
//
// A relay's state: the sets, which children have members of each, what ids mean, and how often each child has submitted
// each id.
//
// A child *speaks* for a set while it has members that are present; the relay waits only for children that speak. For a
// set's completed and dropped counts it waits for all children with members, because absent ranks have these counts,
// too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/ranges.hpp"
#include "control/relay/declarations.hpp"
#include "control/sequence_link.hpp"

namespace kolo::control::relay {

struct Set {
  core::SetId number = 0;
  core::TensorId base = 0;
  std::vector<std::int32_t> members;
  std::vector<std::size_t> children;  ///< children with members
  std::vector<std::size_t> speakers;  ///< of these, children with members that are present
  std::vector<std::int32_t> joined;   ///< absent members below this relay, ascending
  std::uint64_t appended = 0;         ///< batches that the log has appended
  std::uint64_t completed_sent = 0;
  bool lazy = false;                         ///< the last batch was a planned one
  std::unique_ptr<SequenceMerger> sequence;  ///< once a child has made a call
  LastHeard last_call;
  std::string words;  ///< the group's text in messages; empty for the world
};

/// One id. The counts of the children are in `Table::row`; `forwarded` is the least of them that has gone up.
struct Tensor {
  Set* set = nullptr;                                  ///< null: the id means nothing now
  const std::vector<std::size_t>* speakers = nullptr;  ///< the children to wait for: those that speak; for completed
                                                       ///< and dropped counts all with members
  std::uint64_t forwarded = 0;
  std::unique_ptr<Gathered> gathered;  ///< declarations of a round that is not complete
  std::uint32_t ahead = 0;             ///< children beyond `forwarded`
  std::uint16_t generation = 0;
  bool completions = false;  ///< the set's completed count
  LastHeard last;            ///< of the children beyond `forwarded`
  std::string name;
};

class Table {
 public:
  /// `below`: the ranks below each child, ascending.
  explicit Table(std::vector<std::vector<std::int32_t>> below) : below_(std::move(below)) {}

  // ---- children

  [[nodiscard]] std::size_t children() const noexcept { return below_.size(); }
  [[nodiscard]] const std::vector<std::int32_t>& below(std::size_t child) const { return below_[child]; }
  /// Those of these members that are below a child.
  [[nodiscard]] std::vector<std::int32_t> below_child(const std::vector<std::int32_t>& members,
                                                      std::size_t child) const;
  [[nodiscard]] std::vector<std::size_t> children_with(const std::vector<std::int32_t>& members) const;

  // ---- sets

  Set& add_set(core::SetId number, core::TensorId base, std::uint16_t generation, std::vector<std::int32_t> members);
  /// Removes the set and its ids. Throws if the set does not exist.
  void remove_set(core::SetId number);
  /// Null if the set does not exist, or not any more.
  [[nodiscard]] Set* find_set(core::SetId number) {
    const auto set = sets_.find(number);
    return set == sets_.end() ? nullptr : &set->second;
  }
  /// Throws if the set does not exist.
  Set& set_of(core::SetId number) {
    Set* const set = find_set(number);
    require(set != nullptr, "there is no such process set");
    return *set;
  }

  // ---- ids

  /// From here on the id means this name. Every child has submitted `round` rounds of it.
  void assign(core::TensorId id, Set& set, const std::string& name, std::uint16_t generation, core::Round submitted);
  /// The id, which means a name, means nothing any more.
  void evict(core::TensorId id);
  /// kNoTensor: it has none.
  [[nodiscard]] core::TensorId id_of(core::SetId set, const std::string& name) const;
  /// The ids of the set's names, and its reserved ids for which absent ranks are not waited for.
  [[nodiscard]] std::vector<core::TensorId> ids_of(const Set& set) const;
  /// All ids of names lie below.
  [[nodiscard]] core::TensorId id_bound() const noexcept {
    return static_cast<core::TensorId>(names_ids_.tensors.size());
  }

  /// The meaning of an id; null: none.
  [[nodiscard]] const Tensor* find(core::TensorId id) const {
    const std::vector<Tensor>& tensors = ids_with(id).tensors;
    const std::size_t place = place_of(id);
    return place < tensors.size() && tensors[place].set != nullptr ? &tensors[place] : nullptr;
  }
  [[nodiscard]] Tensor* find(core::TensorId id) { return const_cast<Tensor*>(std::as_const(*this).find(id)); }
  /// The meaning of the id in this generation; null: none.
  [[nodiscard]] Tensor* current(core::TensorId id, std::uint16_t generation) {
    Tensor* tensor = find(id);
    return tensor != nullptr && tensor->generation == generation ? tensor : nullptr;
  }

  /// Each child's count of this id.
  [[nodiscard]] const std::uint64_t* row(core::TensorId id) const {
    return ids_with(id).reached.data() + place_of(id) * below_.size();
  }
  [[nodiscard]] std::uint64_t* row(core::TensorId id) {
    return const_cast<std::uint64_t*>(std::as_const(*this).row(id));
  }

 private:
  using Key = std::pair<core::SetId, std::string>;
  /// The meanings of ids, and each child's counts: by id, then by child.
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
