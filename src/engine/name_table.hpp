// SPDX-License-Identifier: Apache-2.0
//
// The names that this rank has used, one entry each, and who may submit them now. A name is in flight once at a time:
// claiming it is the check that makes a second submission an error at the call, in the caller's own thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_line.hpp"
#include "base/hash.hpp"
#include "core/signature.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

/// One name of one set. Its address is stable while it is claimed, held, or known to the driver. On cache lines of its
/// own: the first is all that a batch touches when it begins and when it ends.
struct alignas(base::kCacheLine) Entry {
  explicit Entry(std::string its_name) : name(std::move(its_name)), hash(base::hash_string(name)) {}

  const std::string name;
  const std::uint64_t hash;
  /// The driver's: while it is in flight, drained and not running.
  OperationPtr operation;
  const core::SetId set = core::kGlobalSet;
  /// From the claim to completion.
  std::atomic<bool> in_flight{false};
  bool held = false;  ///< by a prepared request; guarded by the table's mutex

  /// The driver's: the participant's number for it.
  std::optional<std::uint32_t> slot;

  // -- whoever has claimed the entry
  /// The last signature under this name: an equal one is the same object, which makes submitting cheap.
  std::shared_ptr<const core::Signature> signature;
  /// The last operation of a call under this name, for the next one.
  OperationPtr last;
};

/// Entries by name: one array with open addressing, in which a hash stands beside its entry. A step looks up a thousand
/// names, and each costs one line of the array and the entry that the caller is about to use anyway.
class NameIndex {
 public:
  /// The entry of this name, which is made when there is none.
  Entry& find_or_make(std::string_view name);
  /// Gives back the entry, which must be there; the entries after it move up, so that there are no graves.
  std::unique_ptr<Entry> take_out(const Entry& entry);
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Place {
    std::uint64_t hash = 0;
    std::unique_ptr<Entry> entry;  ///< null: free
  };
  [[nodiscard]] std::size_t next(std::size_t at) const noexcept { return (at + 1) & (places_.size() - 1); }
  /// Where the search for a hash begins: all of its bits count (Fibonacci hashing; Knuth, TAOCP 3, 6.4).
  [[nodiscard]] std::size_t home(std::uint64_t hash) const noexcept {
    return static_cast<std::size_t>((hash * 0x9e3779b97f4a7c15) >> shift_);
  }
  /// Where the name is, or the free place at which its search ends.
  [[nodiscard]] std::size_t search(std::string_view name, std::uint64_t hash) const noexcept;
  void grow();

  std::vector<Place> places_ = std::vector<Place>(64);  ///< 2^(64 - shift_), at most half of them used
  int shift_ = 58;
  std::size_t size_ = 0;
};

class NameTable {
 public:
  /// Claims a name for one submission. Throws Error: duplicate_name when it is in flight or held by a prepared request.
  Entry& claim(std::string_view name);
  /// Claims the set's unnamed calls, waiting for the threads that came before.
  Entry& claim_unnamed();
  /// Reserves a name for a prepared request until `release`. Throws Error (duplicate_name) when it is in use.
  Entry& hold(std::string_view name);
  void release(Entry& entry);
  /// Claims a held entry. Throws Error (duplicate_name) when its last operation is still in flight.
  void claim_held(Entry& entry);

  /// The driver: the submission has completed. The entry may be claimed again from here on.
  void finished(Entry& entry) noexcept;
  /// The driver: the entry is known by this number from now on.
  void set_slot(Entry& entry, std::uint32_t slot);
  /// The driver: the entry that has this number.
  [[nodiscard]] Entry& at(std::uint32_t slot) const noexcept { return *by_slot_[slot]; }
  /// The driver: the name was evicted; the entry loses its number, and goes away unless somebody has it.
  void forget(Entry& entry);
  /// How many names are known.
  [[nodiscard]] std::size_t size() const;
  /// An equal signature that was given last, or this one: neighbours are often alike, and what they share stays in the
  /// cache.
  std::shared_ptr<const core::Signature> share(core::Signature signature);

 private:
  mutable std::mutex mutex_;
  NameIndex entries_;                              // guarded by mutex_
  std::shared_ptr<const core::Signature> shared_;  // guarded by mutex_
  Entry* unnamed_ = nullptr;                       // guarded by mutex_; never forgotten once made
  std::condition_variable unnamed_free_;
  std::uint64_t unnamed_next_ = 0;     // tickets; guarded by mutex_
  std::uint64_t unnamed_serving_ = 0;  // guarded by mutex_
  std::vector<Entry*> by_slot_;        // the driver's
};

}  // namespace kolo::engine
