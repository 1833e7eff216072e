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
#include <unordered_map>

#include "base/hash.hpp"
#include "core/signature.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

/// One name of one set. Its address is stable while it is claimed, held, or known to the driver.
struct Entry {
  explicit Entry(std::string its_name) : name(std::move(its_name)), hash(base::hash_string(name)) {}

  const std::string name;
  const std::uint64_t hash;
  const core::SetId set = core::kGlobalSet;
  /// From the claim to completion.
  std::atomic<bool> in_flight{false};
  bool held = false;  ///< by a prepared request; guarded by the table's mutex

  // -- the driver's
  std::optional<std::uint32_t> slot;  ///< the participant's number for it
  OperationPtr operation;             ///< while it is in flight, drained and not running

  // -- whoever has claimed the entry
  /// The last signature under this name: an equal one is the same object, which makes submitting cheap.
  std::shared_ptr<const core::Signature> signature;
  /// The last operation of a call under this name, for the next one.
  OperationPtr last;
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
  /// The driver: the name was evicted; the entry goes away unless somebody has it.
  void forget(Entry& entry);
  /// How many names are known.
  [[nodiscard]] std::size_t size() const;
  /// An equal signature that was given last, or this one: neighbours are often alike, and what they share stays in the
  /// cache.
  std::shared_ptr<const core::Signature> share(core::Signature signature);

 private:
  struct Hash {
    std::size_t operator()(std::string_view name) const noexcept { return base::hash_text_quickly(name); }
  };
  Entry& find_or_make(std::string_view name);

  mutable std::mutex mutex_;
  /// The keys are the entries' own names. Guarded by mutex_.
  std::unordered_map<std::string_view, std::unique_ptr<Entry>, Hash> entries_;
  std::shared_ptr<const core::Signature> shared_;  // guarded by mutex_
  Entry* unnamed_ = nullptr;                       // guarded by mutex_; never forgotten once made
  std::condition_variable unnamed_free_;
  std::uint64_t unnamed_next_ = 0;     // tickets; guarded by mutex_
  std::uint64_t unnamed_serving_ = 0;  // guarded by mutex_
};

}  // namespace kolo::engine
