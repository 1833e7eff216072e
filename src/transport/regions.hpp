// SPDX-License-Identifier: Apache-2.0
//
// Memory of callers that the node's ranks share beyond the slots: what a `GradientArena` is made of. A backend that
// finds a tensor in such a region needs no copy of it: the peers read it, and write the result, where it lies.
//
// A *region* is made by all ranks of the world together and has one number everywhere; each rank owns a part of it,
// which it alone hands to its program, and reaches the parts of its node's other ranks. A *place* is an address that
// all ranks of the node understand: a region's number, and the offset in its owner's part.
//
// A number is used again once every rank has retired the region that had it. Ranks learn that from one another when the
// next region is made: each says what it has retired, and what all have retired all forget. A number alone does not
// tell two such regions apart, so each has a *serial*, too, which is never used again.
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

/// Everyone's contribution, by rank of the world; every rank calls it. Throws Error.
using Meeting = std::function<std::vector<std::string>(const std::string& mine)>;

/// One region, as one rank sees it. The owner's calls (`detach`, `release_own`) come from one thread at a time.
class SharedRegion {
 public:
  virtual ~SharedRegion() = default;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  /// The own part: zeroed, page aligned. Null after `release_own`.
  [[nodiscard]] virtual std::byte* own() const noexcept = 0;
  /// Where this rank's backend reaches the part of a rank of its node; the own one included.
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

  /// A free number: what rank 0 says in the region's meeting is what all ranks use. It stays taken until the region
  /// that is added has been retired, or until it is withdrawn.
  [[nodiscard]] Id propose();
  /// Gives back what was proposed; nothing when a region has been added.
  void withdraw(const Id& id) noexcept;
  /// No region: the number is used for memory of a device, which the device's backend knows.
  void add(const Id& id, std::shared_ptr<SharedRegion> region);
  /// The owner's tensors are not found there any more; with `release` the memory goes, too. The region stays, for the
  /// parts of the other ranks, until all have retired it with `release`.
  void retire(const Id& id, bool release);
  /// What this rank has retired with `release`, and not forgotten: what it says in the meeting of the next region.
  [[nodiscard]] std::vector<Serial> retired() const;
  /// What every rank has said: regions that stand in all lists are forgotten.
  void forget_common(const std::vector<std::vector<Serial>>& lists);
  /// How many are known, those that were proposed included.
  [[nodiscard]] std::size_t size() const;
  /// Detaches every own part.
  void detach_all() noexcept;

 private:
  friend class RegionTable;
  enum class State : std::uint8_t { proposed, alive, retired, kept };  ///< kept: retired without `release`
  struct Entry {
    Id id;
    std::shared_ptr<SharedRegion> region;
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
  explicit RegionTable(std::shared_ptr<Regions> regions) noexcept : regions_(std::move(regions)) {}

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
  /// Whether this rank has any.
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
  std::uint64_t generation_ = 0;
  std::vector<Part> own_;
  std::vector<std::shared_ptr<SharedRegion>> by_number_;
};

}  // namespace kolo::transport
