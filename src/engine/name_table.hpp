// SPDX-License-Identifier: Apache-2.0
//
// The names that this rank has used, one entry each, and who may submit them now. One operation of a name at a time:
// claiming the name is the check that makes a second submission an error at the call, in the caller's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/machine.hpp"
#include "base/mutex.hpp"
#include "base/stable_vector.hpp"
#include "core/signature.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

class NameTable;
class Sequence;

/// One name of one set. Its address is stable while it is claimed, held, or known to the driver. On cache lines of its
/// own: the first is all that a batch touches when it begins and when it ends.
struct alignas(base::kCacheLine) Entry {
  Entry(core::SetId its_set, NameTable& its_table) noexcept : set(its_set), table(its_table) {}

  std::string name;        ///< the index's
  std::uint64_t hash = 0;  ///< of the name, the same on all ranks
  /// The driver's: while it is in flight, drained and not running.
  OperationPtr operation;
  const core::SetId set;
  /// From the claim to completion.
  std::atomic<bool> in_flight{false};
  bool held = false;             ///< by a prepared request; guarded by the table's mutex
  bool known = false;            ///< by a number; the driver writes it, with the table's mutex
  Sequence* sequence = nullptr;  ///< whose calls it stands for, all of them; null: one name's

  /// The driver's: the participant's number for it.
  std::optional<std::uint32_t> name_id;
  NameTable& table;

  // -- whoever has claimed the entry
  /// The last signature under this name: an equal one is the same object, which makes submitting cheap.
  std::shared_ptr<const core::Signature> signature;
  /// That of the last all-reduce of one tensor of the CPU, for the next one.
  OperationPtr last;

  std::uint32_t number = 0;  ///< the index's
};

/// Entries by name. They stand in a row, in the order in which their names came first, because steps come back to them
/// in that order: the name is compared with the next one first.
class NameIndex {
 public:
  NameIndex(core::SetId set, NameTable& table) noexcept : set_(set), table_(table) {}
  /// The entry of this name, which is made when there is none.
  Entry& find_or_make(std::string_view name);
  /// Removes an entry's name; the entry is reused for another name. The entry must exist.
  void take_out(Entry& entry) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }

 private:
  Entry& make(std::string_view name);

  const core::SetId set_;
  NameTable& table_;
  base::StableVector<Entry> entries_;
  std::uint32_t expected_ = 0;                                   ///< the number after that of the last name asked for
  std::vector<std::uint32_t> free_;                              ///< numbers of entries without a name
  std::unordered_map<std::string_view, std::uint32_t> numbers_;  ///< the names are the entries'
};

/// Of one set.
class NameTable {
 public:
  explicit NameTable(core::SetId set) noexcept : entries_(set, *this) {}
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  /// Claims a name for one submission. Throws Error: duplicate_name when it is in flight or held by a prepared request.
  Entry& claim(std::string_view name);
  /// Claims a name as soon as it is not in flight any more.
  Entry& claim_in_turn(std::string_view name);
  /// Reserves a name for a prepared request until `release`. Throws Error (duplicate_name) when it is in use.
  Entry& hold(std::string_view name);
  void release(Entry& entry);
  /// Takes a claim back that was not submitted.
  void give_back(Entry& entry) noexcept;
  /// Claims a held entry. Throws Error (duplicate_name) when its last operation is still in flight.
  static void claim_held(Entry& entry) {
    if (entry.in_flight.exchange(true, std::memory_order_acquire)) throw_in_flight(entry.name);
  }

  /// The driver: the submission has completed. The entry may be claimed again from here on.
  void finished(Entry& entry) noexcept;
  /// The driver: the entry is known by this number from now on,
  void set_name_id(Entry& entry, std::uint32_t name_id);
  /// and not any more; it goes away as soon as nobody has it.
  void forget(Entry& entry);
  /// How many names are known.
  [[nodiscard]] std::size_t size() const;
  /// Returns the last signature if it is equal, else this one: neighbouring names often have equal signatures, and a
  /// shared one stays in the cache.
  std::shared_ptr<const core::Signature> share(core::Signature signature);

 private:
  [[noreturn]] static void throw_in_flight(const std::string& name);
  void drop_if_unused(Entry& entry) noexcept KOLO_REQUIRES(mutex_);
  /// The claim ends.
  void end_flight(Entry& entry) noexcept KOLO_REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  NameIndex entries_ KOLO_GUARDED_BY(mutex_);
  std::shared_ptr<const core::Signature> shared_ KOLO_GUARDED_BY(mutex_);
  base::ConditionVariable name_free_;
  int waiting_for_names_ KOLO_GUARDED_BY(mutex_) = 0;
};

/// `NameTable::finished` of the entry's own table, which the usual entry need not be asked for.
inline void finish_entry(Entry& entry) noexcept {
  if (entry.known) {
    entry.in_flight.store(false, std::memory_order_release);
  } else {
    entry.table.finished(entry);
  }
}

/// Whether the operation is not in the log yet; else its batch runs. The driver asks.
inline bool is_negotiating(const Operation& operation) noexcept {
  return operation.is_waiting || operation.entry->operation.get() == &operation;
}

/// The entries of all sets by the participant's numbers for them. One thread at a time (the engine's driver).
class EntriesByNameId {
 public:
  [[nodiscard]] Entry& operator[](std::uint32_t name_id) const noexcept { return *entries_[name_id]; }
  template <class Function>
  void for_each(const Function& function) const {
    for (const Entry* const entry : entries_)
      if (entry != nullptr) function(*entry);
  }
  /// From now on, until it is forgotten.
  void add(Entry& entry, std::uint32_t name_id) {
    add_for_once(entry, name_id);
    entry.table.set_name_id(entry, name_id);
  }
  /// While its request is open: whoever waits for the name is told of the end.
  void add_for_once(Entry& entry, std::uint32_t name_id) {
    if (entries_.size() <= name_id) entries_.resize(std::size_t{name_id} + 1);
    entries_[name_id] = &entry;
    entry.name_id = name_id;
  }
  /// The number means nothing any more. That of a request is forgotten with its end, and the participant says it, too.
  /// Of a join, or of a name that only others have used, there is no entry.
  void forget(std::uint32_t name_id) {
    if (name_id >= entries_.size()) return;
    Entry* const entry = std::exchange(entries_[name_id], nullptr);
    if (entry != nullptr) entry->table.forget(*entry);
  }

 private:
  std::vector<Entry*> entries_;
};

}  // namespace kolo::engine
