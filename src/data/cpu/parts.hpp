// SPDX-License-Identifier: Apache-2.0
//
// What compounds that go through several runs share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/cpu/site.hpp"

namespace kolo::data::cpu {

/// Parts of a compound that are opened and cut one after another, any number of them. A part serves its chunks until
/// they have been taken. While one is opened or cut at least one slot is free, so fewer chunks than slots are under
/// way, and as many parts as there are slots are enough: they are used in turn. A part without chunks takes no turn.
template <class Part>
class Parts {
 public:
  explicit Parts(Site& site) noexcept : site_(site) {}
  /// The one to be opened, or to be cut.
  [[nodiscard]] Part& now() {
    if (now_ == parts_.size()) parts_.push_back(std::make_unique<Part>(site_));
    return *parts_[now_];
  }
  /// It has been cut into another chunk.
  void note_chunk() noexcept { has_chunks_ = true; }
  /// It has been cut wholly.
  void advance() noexcept {
    if (has_chunks_) now_ = (now_ + 1) % site_.intra.slots();
    has_chunks_ = false;
  }

 private:
  Site& site_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::size_t now_ = 0;
  bool has_chunks_ = false;
};

/// Where runs end, as they are cut in their order.
class Ends {
 public:
  void clear() noexcept { ends_.clear(); }
  /// The next run is cut wholly, into chunks before this one.
  void add(std::uint64_t number) { ends_.push_back(number); }
  /// Of how many runs that is so.
  [[nodiscard]] std::size_t count() const noexcept { return ends_.size(); }
  /// As `Collective::over`.
  [[nodiscard]] std::size_t over(std::uint64_t taken) const noexcept {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), taken) - ends_.begin());
  }

 private:
  std::vector<std::uint64_t> ends_;  // by run, ascending
};

}  // namespace kolo::data::cpu
