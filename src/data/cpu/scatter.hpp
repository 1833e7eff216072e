// SPDX-License-Identifier: Apache-2.0
//
// Scatter from a root. Everybody learns how many rows each rank gets (lengths.hpp), which the root alone knows; then
// the rows go, as an all-to-all in which the root alone sends (alltoall.hpp).
#pragma once

#include "data/cpu/alltoall.hpp"
#include "data/cpu/collective.hpp"
#include "data/cpu/lengths.hpp"

namespace kolo::data::cpu {

class Scatter final : public Compound {
 public:
  explicit Scatter(Site& site) : Compound(site), lengths_(site), rows_(site) {}
  void open(const data::Run& run, data::Job& job) override;
  Cut cut(Chunk& chunk, std::uint64_t taken) override;

 private:
  void open_rows();

  const data::Run* run_ = nullptr;
  data::Job* job_ = nullptr;
  Lengths lengths_;  // in rows
  bool lengths_known_ = false;
  Alltoall rows_;
};

}  // namespace kolo::data::cpu
