// SPDX-License-Identifier: Apache-2.0
//
// Memory of callers that the node's ranks share beyond the slots: what a `GradientArena` is made of. A backend that
// finds a tensor in such a region needs no copy of it: the peers read it, and write the result, where it lies.
//
// A *region* is made by its *members* together, all ranks of the world or those of a group, and has one number on all
// of them; each owns a part of it, which it alone hands to its program, and reaches the parts of its node's other
// members. A *place* is an address that all members of the node understand: a region's number, and the offset in its
// owner's part. A backend whose ranks are not all members takes such memory for any other.
//
// A number is taken on each of its members alone. Those say which are taken there, and then take one that is free on
// all of them; where another thread of a rank has taken it meanwhile, for a region with other ranks, they try again. It
// is used again once every member has retired the region that had it. Ranks learn that from one another when the next
// region is made: each says what it has retired, and what all members have retired these forget. A number alone does
// not tell two such regions apart, so each has a *serial*, too, which is never used again in the world.
//
// Peers reach a part through another mapping than its owner does (also where ranks are threads), so that an owner can
// take its part back without asking them: `detach` makes private copies of the pages under the owner's mapping, and
// what peers still write goes to pages that nobody looks at. That is how a failed handle can promise that nobody
// touches its buffers any more. The price: a thread sanitizer does not see the two mappings as one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.hpp"

namespace kolo::transport {

/// Everyone's contribution, by rank of those that meet; each of them calls it. Throws Error.
using Meeting = std::function<std::vector<std::string>(const std::string& mine)>;

/// One region, as one rank sees it. The owner's calls (`detach`, `release_own`) come from one thread at a time.
class SharedRegion {
 public:
  virtual ~SharedRegion() = default;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  /// The own part: zeroed, page aligned. Null after `release_own`.
  [[nodiscard]] virtual std::byte* own() const noexcept = 0;
  /// Where this rank's backend reaches the part of a member of its node (the local rank in the world); the own one
  /// included.
  [[nodiscard]] virtual std::byte* of(int local_rank) const noexcept = 0;
  /// From now on no peer's doings are seen in the own part. Its contents stay, as far as peers have left them alone.
  virtual void detach() noexcept = 0;
  /// Gives the own part's memory back. What peers write into it after that is lost; their parts stay in reach.
  virtual void release_own() noexcept = 0;
};

/// Never 0 for a place in a region: that says "nowhere".
using Place = std::uint64_t;
inline constexpr Place kNowhere = 0;

/// The regions of a context. Thread-safe; readers use a RegionTable.
class Regions {
 public:
  using Number = std::uint16_t;
  using Serial = std::uint64_t;
  struct Id {
    Number number = 0;  ///< 0: no number was free
    Serial serial = 0;
  };

  /// A number for a region that this rank proposes: never the same again, nor as that of another rank of the world.
  [[nodiscard]] Serial new_serial(int rank);
  /// Numbers of regions that are known, and of those that are being made.
  [[nodiscard]] std::vector<Number> taken() const;
  /// The first that is in none of these lists; 0: none is free.
  [[nodiscard]] static Number first_free(const std::vector<std::vector<Number>>& lists);
  /// Takes a number; false: it is taken. It stays so until the region that is added has been retired, or until it is
  /// withdrawn.
  [[nodiscard]] bool reserve(const Id& id);
  /// Gives back what was reserved; nothing when a region has been added.
  void withdraw(const Id& id) noexcept;
  /// Of a number that was reserved. `members`: as ranks of the world. No region: the number is used for memory of a
  /// device, which the device's backend knows.
  void add(const Id& id, std::shared_ptr<SharedRegion> region, std::vector<int> members);
  /// The owner's tensors are not found there any more; with `release` the memory goes, too. The region stays, for the
  /// parts of the other members, until all have retired it with `release`.
  void retire(const Id& id, bool release);
  /// What this rank has retired with `release`, and not forgotten: what it says in the meeting of the next region.
  [[nodiscard]] std::vector<Serial> retired() const;
  /// What those that meet have said (`ranks`: as ranks of the world, in the order of the lists): regions of which all
  /// members are there and have retired it are forgotten.
  void forget_common(const std::vector<std::vector<Serial>>& lists, const std::vector<int>& ranks);
  /// How many are known, those that were reserved included.
  [[nodiscard]] std::size_t size() const;
  /// Detaches every own part.
  void detach_all() noexcept;

 private:
  friend class RegionTable;
  enum class State : std::uint8_t { reserved, alive, retired, kept };  ///< kept: retired without `release`
  struct Entry {
    Id id;
    std::shared_ptr<SharedRegion> region;
    std::vector<int> members;
    State state = State::alive;
  };

  std::atomic<std::uint64_t> generation_{0};  ///< changes with the entries
  mutable base::Mutex mutex_;
  std::vector<Entry> entries_ KOLO_GUARDED_BY(mutex_);
  Serial serials_ KOLO_GUARDED_BY(mutex_) = 0;
};

/// The driver's copy: looking into it takes no lock while nothing changes.
class RegionTable {
 public:
  /// Of the backend of these ranks of the world.
  explicit RegionTable(std::shared_ptr<Regions> regions, std::vector<int> ranks = {}) noexcept
      : regions_(std::move(regions)), ranks_(std::move(ranks)) {}

  /// Where the peers find these bytes of this rank's; kNowhere when they do not lie in a region.
  [[nodiscard]] Place find(const std::byte* data, std::size_t bytes) {
    refresh();
    for (const Part& part : own_) {
      if (data >= part.begin && data < part.end && bytes <= static_cast<std::size_t>(part.end - data))
        return Place{part.number} << kOffsetBits | static_cast<Place>(data - part.begin);
    }
    return kNowhere;
  }
  /// Where this rank reaches a place of a rank of its node.
  [[nodiscard]] std::byte* at(int local_rank, Place place) {
    refresh();
    return by_number_[place >> kOffsetBits]->of(local_rank) + (place & kOffsetMask);
  }
  /// Whether this rank has any that all of the backend's ranks are members of.
  [[nodiscard]] bool empty() {
    refresh();
    return own_.empty();
  }
  [[nodiscard]] Regions& regions() const noexcept { return *regions_; }

 private:
  static constexpr int kOffsetBits = 48;
  static constexpr Place kOffsetMask = (Place{1} << kOffsetBits) - 1;
  struct Part {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    Regions::Number number = 0;
  };

  void refresh() {
    if (regions_->generation_.load(std::memory_order_acquire) != generation_) copy();
  }
  void copy();

  const std::shared_ptr<Regions> regions_;
  const std::vector<int> ranks_;
  std::uint64_t generation_ = 0;
  std::vector<Part> own_;
  std::vector<std::shared_ptr<SharedRegion>> by_number_;
};

}  // namespace kolo::transport
