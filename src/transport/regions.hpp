// SPDX-License-Identifier: Apache-2.0
//
// Memory of callers that the node's ranks share besides the slots. A `GradientArena` is made of it. If a tensor lies in
// such a region, a backend need not copy it: the peers read the tensor, and write the result, in place.
//
// A *region* is made by its *members* together (all ranks of the world, or those of a group), and has the same number
// on all of them. Each member owns a part, which only its own program uses, and can reach the parts of its node's other
// members. A *place* is an address that all members of the node understand: a region's number, and the offset in its
// owner's part. A backend whose ranks are not all members treats such memory like any other.
//
// A number is reserved only on the region's members. They exchange which numbers are taken, and then take one that is
// free on all of them. If another thread of a rank has taken it meanwhile, for a region with other ranks, they try
// again. A number is used again once every member has retired its region. Ranks learn that when the next region is
// made: each says which regions it has retired, and regions that all members have retired are forgotten. Because
// numbers are reused, each region also has a *serial*, which is never used again in the world.
//
// Peers reach a part through another mapping than its owner (also where ranks are threads). An owner can therefore take
// its part back without asking them: `detach` makes private copies of the pages under the owner's mapping, and what
// peers still write goes to pages that are not used any more. That is how no rank touches the buffers of a failed
// handle any more. The price: a thread sanitizer does not see that the two mappings are the same memory.
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

/// Exchanges a text among some ranks; each of them calls it. Returns all texts, by rank. Throws Error.
using Meeting = std::function<std::vector<std::string>(const std::string& mine)>;

/// One rank's view of a region. The owner's calls (`detach`, `release_own`) come from one thread at a time.
class SharedRegion {
 public:
  virtual ~SharedRegion() = default;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  /// The own part: zeroed, page aligned. Null after `release_own`.
  [[nodiscard]] virtual std::byte* own() const noexcept = 0;
  /// The address at which this rank's backend reaches the part of a member of its node (a local rank in the world), its
  /// own included.
  [[nodiscard]] virtual std::byte* of(int local_rank) const noexcept = 0;
  /// From now on writes of peers do not appear in the own part. Its contents stay, as far as peers have not changed
  /// them before.
  virtual void detach() noexcept = 0;
  /// Gives the own part's memory back. What peers write into it after that is lost; their parts can still be reached.
  virtual void release_own() noexcept = 0;
};

/// A region's number and an offset. 0 means "nowhere".
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

  /// A serial for a region that this rank proposes: unique in the world, and never used again.
  [[nodiscard]] Serial new_serial(int rank);
  /// The numbers of known regions, and of regions that are being made.
  [[nodiscard]] std::vector<Number> taken() const;
  /// The first number that is in none of these lists; 0: none is free.
  [[nodiscard]] static Number first_free(const std::vector<std::vector<Number>>& lists);
  /// Reserves a number; false: it is taken. It stays reserved until the added region has been retired, or until it is
  /// withdrawn.
  [[nodiscard]] bool reserve(const Id& id);
  /// Gives back a reserved number; does nothing if a region has been added.
  void withdraw(const Id& id) noexcept;
  /// Adds a region under a reserved number. `members`: as ranks of the world. Without a region the number stands for
  /// memory of a device, which the device's backend knows.
  void add(const Id& id, std::shared_ptr<SharedRegion> region, std::vector<int> members);
  /// `find` does not return places in the own part any more; with `release` its memory is given back, too. The region
  /// stays, for the parts of the other members, until all have retired it with `release`.
  void retire(const Id& id, bool release);
  /// The regions that this rank has retired with `release` and not forgotten. It sends this list when the next region
  /// is made.
  [[nodiscard]] std::vector<Serial> retired() const;
  /// Forgets the regions that all of their members have retired, by these lists. `ranks`: the lists' ranks, as ranks of
  /// the world.
  void forget_common(const std::vector<std::vector<Serial>>& lists, const std::vector<int>& ranks);
  /// How many regions are known, reserved numbers included.
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
  /// For the backend of these ranks of the world.
  explicit RegionTable(std::shared_ptr<Regions> regions, std::vector<int> ranks = {}) noexcept
      : regions_(std::move(regions)), ranks_(std::move(ranks)) {}

  /// The place of these bytes of this rank; kNowhere if they do not lie in a region.
  [[nodiscard]] Place find(const std::byte* data, std::size_t bytes) {
    refresh();
    for (const Part& part : own_) {
      if (data >= part.begin && data < part.end && bytes <= static_cast<std::size_t>(part.end - data))
        return Place{part.number} << kOffsetBits | static_cast<Place>(data - part.begin);
    }
    return kNowhere;
  }
  /// The address at which this rank reaches a place of a rank of its node.
  [[nodiscard]] std::byte* at(int local_rank, Place place) {
    refresh();
    return by_number_[place >> kOffsetBits]->of(local_rank) + (place & kOffsetMask);
  }
  /// Whether there is no region of which all ranks of the backend are members.
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
