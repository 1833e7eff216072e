// SPDX-License-Identifier: Apache-2.0
//
// Gather to a root. Everybody learns how much each rank brings (lengths.hpp); then the rows go, as an all-to-all in
// which everybody sends to the root alone (alltoall.hpp). The root copies all of it, so that it matters little that the
// others come one after another where they bring more than a slot.
#pragma once

#include "data/cpu/alltoall.hpp"
#include "data/cpu/collective.hpp"
#include "data/cpu/lengths.hpp"

namespace kolo::data::cpu {

/// Sizes in bytes.
class Gather final : public Compound {
 public:
  explicit Gather(Site& site) : Compound(site), lengths_(site), rows_(site) {}
  void open(const data::Run& run, data::Job& job) override;
  Cut cut(Chunk& chunk, std::uint64_t taken) override;

 private:
  void open_rows();

  const data::Run* run_ = nullptr;
  data::Job* job_ = nullptr;
  Lengths lengths_;
  bool lengths_known_ = false;
  Alltoall rows_;
};

}  // namespace kolo::data::cpu
