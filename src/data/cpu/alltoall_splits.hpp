// SPDX-License-Identifier: Apache-2.0
//
// All-to-alls with splits. Two steps: everybody learns what comes to it, by an all-to-all of the splits, and how chunks
// are cut, by an all-reduce of the largest split of each distance, both of all runs together; then the rows go.
#pragma once

#include <vector>

#include "data/cpu/allreduce.hpp"
#include "data/cpu/uneven_rows.hpp"

namespace kolo::data::cpu {

class AlltoallSplits final : public UnevenRows {
 public:
  explicit AlltoallSplits(Site& site) : UnevenRows(site), splits_(site), largest_(site) {}

 private:
  void open_lengths() override;
  Cut cut_lengths(Chunk& chunk, std::uint64_t taken) override;
  void open_rows(std::size_t run, Alltoall& rows) override;

  // Each by rank or distance, then by run.
  std::vector<std::int64_t> sent_counts_;      // rows to every rank
  std::vector<std::int64_t> received_counts_;  // from
  std::vector<std::int64_t> largest_counts_;   // by distance, over all ranks
  data::Piece largest_piece_;
  Alltoall splits_;
  Allreduce largest_;
  std::uint64_t splits_end_ = 0;  // the number of the chunk after the splits' and the largest's
};

}  // namespace kolo::data::cpu
