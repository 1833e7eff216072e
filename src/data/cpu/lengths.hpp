// SPDX-License-Identifier: Apache-2.0
//
// How everybody learns what each rank brings, or gets: by an all-reduce of one vector with a number a rank, in which
// each writes what it knows and leaves zero where it does not. All ranks must count chunks alike, so a collective whose
// rows differ by rank begins with this.
#pragma once

#include <cstdint>
#include <vector>

#include "data/cpu/allreduce.hpp"
#include "data/cpu/collective.hpp"

namespace kolo::data::cpu {

/// A part of a compound.
class Lengths {
 public:
  explicit Lengths(Site& site) : site_(site), sum_(site) {}
  /// Returns a zero for each rank of the set, of which the caller writes what it knows before it cuts.
  std::vector<std::int64_t>& open();
  /// As `Collective::cut`; `end` once all are known.
  Collective::Cut cut(Chunk& chunk, std::uint64_t taken);
  /// By rank of the set, once all are known.
  [[nodiscard]] const std::vector<std::int64_t>& all() const noexcept { return lengths_; }

 private:
  Site& site_;
  std::vector<std::int64_t> lengths_;
  data::Piece piece_;
  Allreduce sum_;
  std::uint64_t end_ = 0;  // the number of the chunk after the last
};

}  // namespace kolo::data::cpu
