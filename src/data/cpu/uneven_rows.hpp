// SPDX-License-Identifier: Apache-2.0
//
// What a gather, a scatter and an all-to-all with splits have in common: everybody learns all the runs' lengths
// (lengths.hpp says how that goes on), and then the rows of each run go as an all-to-all (alltoall.hpp), one run after
// another. Between two of them nobody waits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "data/cpu/alltoall.hpp"
#include "data/cpu/collective.hpp"
#include "data/cpu/parts.hpp"

namespace kolo::data::cpu {

class UnevenRows : public Compound {
 public:
  explicit UnevenRows(Site& site) : Compound(site), rows_(site) {}
  void open(Runs runs, data::Job& job) final;
  Cut cut(Chunk& chunk, std::uint64_t taken) final;
  [[nodiscard]] std::size_t over(std::uint64_t taken) const final { return ends_.over(taken); }

 protected:
  [[nodiscard]] Runs runs() const noexcept { return runs_; }
  /// Gets ready to tell what this rank knows of all the runs.
  virtual void open_lengths() = 0;
  /// As `cut`; `end` once all lengths are known.
  virtual Cut cut_lengths(Chunk& chunk, std::uint64_t taken) = 0;
  /// All lengths are known: asks for the output of a run, and opens its rows.
  virtual void open_rows(std::size_t run, Alltoall& rows) = 0;

 private:
  Runs runs_;
  bool lengths_known_ = false;
  bool is_open_ = false;  // the run that is being cut
  Ends ends_;
  Parts<Alltoall> rows_;
};

}  // namespace kolo::data::cpu
