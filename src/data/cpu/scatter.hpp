// SPDX-License-Identifier: Apache-2.0
//
// Scatters from roots. Everybody learns how many rows each rank gets (lengths.hpp), which the root alone knows; then
// the rows go, as an all-to-all in which the root alone sends (alltoall.hpp).
#pragma once

#include "data/cpu/alltoall.hpp"
#include "data/cpu/small.hpp"

namespace kolo::data::cpu {

/// Lengths in rows.
class Scatter final : public UnevenRows {
 public:
  using UnevenRows::UnevenRows;
  static const SmallPart kSmall;

 private:
  void open_lengths() override;
  void open_rows(std::size_t run, Alltoall& rows) override;
};

}  // namespace kolo::data::cpu
