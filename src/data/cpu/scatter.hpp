// SPDX-License-Identifier: Apache-2.0
//
// Scatters from roots. Everybody learns how many rows each rank gets (lengths.hpp), which the root alone knows; then
// the rows go, as an all-to-all in which the root alone sends (alltoall.hpp).
#pragma once

#include "data/cpu/alltoall.hpp"
#include "data/cpu/lengths.hpp"
#include "data/cpu/small.hpp"

namespace kolo::data::cpu {

class Scatter final : public UnevenRows {
 public:
  explicit Scatter(Site& site) : UnevenRows(site), lengths_(site) {}
  static const SmallPart kSmall;

 private:
  void open_lengths() override;
  Cut cut_lengths(Chunk& chunk, std::uint64_t taken) override { return lengths_.cut(chunk, taken); }
  void open_rows(std::size_t run, Alltoall& rows) override;

  Lengths lengths_;  // in rows
};

}  // namespace kolo::data::cpu
