// SPDX-License-Identifier: Apache-2.0
//
// A job on its way: turns its runs into the streams that the backend cuts into chunks, one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/backend.hpp"
#include "data/cpu/alltoall.hpp"
#include "data/cpu/gather.hpp"
#include "data/cpu/reduce_scatter.hpp"
#include "data/cpu/stream.hpp"

namespace kolo::data::cpu {

/// What of the set a job must know.
struct SetPlace {
  int rank = 0;
  int size = 1;
  const std::vector<int>* members = nullptr;  ///< ranks of the world, ascending; empty: the world itself
  std::size_t slot_bytes = 0;
  bool one_node = true;
  std::size_t past_cache_bytes = 0;  ///< as Tuning has it
};

/// The output of a run whose size has become known, or null and a status that says why there is none.
std::byte* allocate_output(const data::Run& run, const std::vector<std::int64_t>& parts, Status& status);

/// One driver. Reusable: `open` again after the job has finished.
class OpenJob {
 public:
  void open(data::Job& job, const SetPlace& place);

  [[nodiscard]] data::Job& job() const noexcept { return *job_; }

  /// The stream that the next chunk is to be cut from, or null: then the job is wholly cut, or (`is_cut()` is false)
  /// waits for the lengths of an all-gather or an all-to-all. `filled` and `taken` are the backend's counts of chunks.
  /// Streams stay where they are until the job is opened again.
  const Stream* next_stream(std::uint64_t filled, std::uint64_t taken);
  /// The first element that has not been cut from the stream of `next_stream`, and the step that cuts.
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }
  void cut(std::int64_t elements) noexcept { offset_ += elements; }

  [[nodiscard]] bool is_cut() const noexcept { return cut_; }
  /// The number of the chunk after the last; once it is cut.
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }

 private:
  /// An all-gather between its two steps, which are others on one node (data/cpu/gather.hpp) than on several.
  struct Gather {
    GatherPlan plan;
    const data::Run* run = nullptr;
    std::vector<std::int64_t> bytes;  // by rank of the set; the sum of vectors that have only the own length
    data::Piece bytes_piece;
    std::vector<data::Piece> pieces;  // of all broadcasts, by rank; the own ones as many as the run has
  };

  /// An all-to-all. One with splits has two steps as well: an all-to-all of the splits, and the largest by distance.
  struct Exchange {
    const data::Run* run = nullptr;
    std::vector<std::int64_t> sent;      // rows to every rank; bytes in the second step
    std::vector<std::int64_t> received;  // from
    std::vector<std::int64_t> largest;   // by distance, over all ranks
    data::Piece largest_piece;
    AlltoallPlan splits_plan;
    AlltoallPlan plan;
  };

  void open_run(const data::Run& run);
  void open_plain(const data::Run& run);
  void open_scatter(const data::Run& run);
  void open_alltoall(const data::Run& run);
  void open_splits(const data::Run& run);
  void open_known_splits();
  void add_alltoall(const AlltoallPlan& plan);
  void open_known_lengths();
  void open_gather(const data::Run& run);
  void open_gather_here(const data::Run& run);
  void open_gather_rest();
  void add_gather(const data::Run& run, GatherPlan& plan, bool head);
  void open_broadcasts();
  [[nodiscard]] std::byte* allocate_output(const data::Run& run, const std::vector<std::int64_t>& parts);
  [[nodiscard]] int set_rank_of(int world_rank) const;

  data::Job* job_ = nullptr;
  SetPlace place_;
  std::size_t next_run_ = 0;
  std::vector<Stream> streams_;        // never grows beyond what `open` reserved: chunks point into it
  std::size_t current_ = 0;            // of the streams
  std::int64_t offset_ = 0;            // in it
  std::vector<Gather> gathers_;        // never grows beyond what `open` reserved: streams point into it
  std::vector<Exchange> exchanges_;    // likewise, and so are
  std::vector<ScatterPlan> scatters_;  // these
  bool lengths_due_ = false;           // the last gather's lengths, or the last exchange's splits, are on their way
  std::uint64_t lengths_end_ = 0;      // the chunk after theirs, once they are cut
  bool cut_ = false;
  std::uint64_t end_ = 0;
};

}  // namespace kolo::data::cpu
