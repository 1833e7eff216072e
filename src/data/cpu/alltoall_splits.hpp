// SPDX-License-Identifier: Apache-2.0
//
// All-to-all with splits. Two steps: everybody learns what comes to it, by an all-to-all of the splits, and how chunks
// are cut, by an all-reduce of the largest split of each distance; then the rows go.
#pragma once

#include <vector>

#include "data/cpu/allreduce.hpp"
#include "data/cpu/alltoall.hpp"

namespace kolo::data::cpu {

class AlltoallSplits final : public Compound {
 public:
  explicit AlltoallSplits(Site& site) : Compound(site), splits_(site), largest_(site), rows_(site) {}
  void open(const data::Run& run, data::Job& job) override;
  Cut cut(Chunk& chunk, std::uint64_t taken) override;

 private:
  void open_rows();

  const data::Run* run_ = nullptr;
  data::Job* job_ = nullptr;
  std::vector<std::int64_t> sent_counts_;      // rows to every rank; bytes once the rows go
  std::vector<std::int64_t> received_counts_;  // from
  std::vector<std::int64_t> largest_counts_;   // by distance, over all ranks
  data::Piece largest_piece_;
  Alltoall splits_;
  Allreduce largest_;
  Alltoall rows_;
  std::uint64_t splits_end_ = 0;  // the number of the chunk after the splits' and the largest's
  bool splits_known_ = false;
};

}  // namespace kolo::data::cpu
