// SPDX-License-Identifier: Apache-2.0
//
// How everybody learns what each rank brings, or gets: by an all-reduce of one vector with a number a rank and a run,
// in which each writes what it knows and leaves zero where it does not. All ranks must count chunks alike, so
// collectives whose rows differ by rank begin with this. And what such collectives use for their runs.
//
// What runs of such kinds that are neighbours in a batch have in common, on one node and between nodes:
//
//   The number of runs, their order and their roots come from the log: all ranks have the same. The number of rows is
//   known to the rank alone (of a scatter to its root).
//
//   1. The lengths of all the runs travel together, in chunks whose number follows from the number of runs. Nothing is
//      cut behind them, of these runs or of jobs behind (`Cut::wait`), until this rank has taken the last of them. So
//      a rank waits once for all others, whatever the number of runs. (An all-gather on one node has the first
//      data in the same chunks.)
//   2. From then on all ranks know the same lengths, and cut the rows of all runs alike, in the order of the runs;
//      no rank waits for another but as the pipeline does for a slot.
//   3. A rank asks for a run's output just before the first of it comes. If it has no room the run's status says so
//      (`Run::status`), and the bytes are discarded there: the others see no difference, neither in this run nor in
//      those behind it.
//   4. A run is over on a rank when that has taken its last chunk, before the runs behind it are (`Collective::over`);
//      the last one when its job is finished. So batches need no limit in bytes, which nobody who makes them knows.
//
//   An absent rank brings no rows, and discards. A rank that dies leaves a stage of some chunk unreached: others say
//   that they wait for it (`Backend::awaited`), and the engine ends the job, as for all collectives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/cpu/allreduce.hpp"
#include "data/cpu/collective.hpp"

namespace kolo::data::cpu {

/// A part of a compound.
class Lengths {
 public:
  explicit Lengths(Site& site) : site_(site), sum_(site) {}
  /// From now on there is a zero for each rank of the set and each run. The caller writes what it knows before it cuts.
  /// `op`: by which what the ranks write becomes one number.
  void open(std::size_t runs, ReduceOp op = ReduceOp::sum);
  /// As `Collective::cut`; `end` once all are known.
  Collective::Cut cut(Chunk& chunk, std::uint64_t taken);
  [[nodiscard]] std::int64_t& at(std::size_t run, int rank) noexcept {
    return lengths_[run * static_cast<std::size_t>(site_.topology.size) + static_cast<std::size_t>(rank)];
  }
  /// Of a run, by rank of the set.
  [[nodiscard]] std::vector<std::int64_t> of(std::size_t run) const;

 private:
  Site& site_;
  std::vector<std::int64_t> lengths_;
  data::Run numbers_;
  Allreduce sum_;
  std::uint64_t end_ = 0;  // the number of the chunk after the last
};

/// Asks for the output of a run whose size has become known. Null, and the run's status says why there is none, when
/// the caller has no room: the others still expect this rank to pass their bytes on, so it goes on without.
std::byte* allocate_output(data::Run& run, const std::vector<std::int64_t>& parts);

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
