// SPDX-License-Identifier: Apache-2.0
//
// Gathers to roots. Everybody learns how much each rank brings (lengths.hpp); then the rows go, as an all-to-all in
// which everybody sends to the root alone (alltoall.hpp). The root copies all of it, so that it matters little that the
// others come one after another where they bring more than a slot.
#pragma once

#include "data/cpu/alltoall.hpp"
#include "data/cpu/small.hpp"

namespace kolo::data::cpu {

/// Sizes in bytes.
class Gather final : public UnevenRows {
 public:
  using UnevenRows::UnevenRows;
  static const SmallPart kSmall;

 private:
  void open_lengths() override;
  void open_rows(std::size_t run, Alltoall& rows) override;
};

}  // namespace kolo::data::cpu
