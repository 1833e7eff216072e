// SPDX-License-Identifier: Apache-2.0
//
// All-to-all: how it is cut into chunks, and what the stages of a chunk do. Its rows may differ by rank (`UnevenRows`),
// as those of gathers and scatters, which are made of it, do.
//
// The *distance* of a block is how many places its receiver comes after its sender, around the ring of ranks. The work
// goes by distances: in a chunk, every rank writes what the rank `distance` places on shall have into its own slot, and
// reads from the slot of the rank `distance` places back, straight into its output. So everybody sends and receives the
// same amount at any time, nobody is sent to by all at once, and a chunk waits for one other rank only. Distance 0 is a
// copy from the input to the output.
//
// Where blocks are small, a chunk takes several distances in a row, each with a stretch of the slot of its own: a small
// all-to-all is one chunk, and one synchronisation. Where they are larger than a slot, a distance takes several chunks.
//
// For a receiver on another node the block is written to the mesh's memory (mesh.hpp) in place of the slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/cpu/allreduce.hpp"
#include "data/cpu/collective.hpp"
#include "data/cpu/lengths.hpp"
#include "data/cpu/small.hpp"

namespace kolo::data::cpu {

/// One all-to-all as one rank sees it, and its chunks, which all ranks see alike. Sizes in bytes, ranks of the set.
class AlltoallPlan {
 public:
  /// `send[r]` and `receive[r]`: bytes to and from rank r, in that order in input and output; an output of null
  /// discards. `largest[d]`: the most that any rank sends over distance d; the same on all ranks.
  void make(int rank, const std::byte* input, std::byte* output, const std::vector<std::int64_t>& send,
            const std::vector<std::int64_t>& receive, const std::vector<std::int64_t>& largest, std::size_t slot_bytes,
            std::size_t past_cache_bytes);
  [[nodiscard]] std::int64_t chunks() const noexcept { return chunks_; }
  /// Whether the output is written past the cache (tuning.hpp).
  [[nodiscard]] bool past_cache() const noexcept { return past_cache_; }

  /// What one rank brings to another in one chunk.
  struct Block {
    int peer = 0;                      ///< the receiver or the sender, whichever is not this rank (or is, both)
    std::size_t offset = 0;            ///< in the slot
    std::size_t bytes = 0;             ///< at least one
    const std::byte* input = nullptr;  ///< of what this rank sends
    std::byte* output = nullptr;       ///< for what it receives; null discards
  };
  /// Calls visit(block) for what this rank sends in a chunk, itself excepted.
  template <class Visit>
  void for_each_sent(std::int64_t chunk, Visit&& visit) const {
    const Group& group = group_of(chunk);
    for (int i = 0; i < group.distances; ++i) {
      const Block block = sent(group, i, chunk);
      if (block.bytes > 0 && block.peer != rank_) visit(block);
    }
  }
  /// The same for what it receives, itself included.
  template <class Visit>
  void for_each_received(std::int64_t chunk, Visit&& visit) const {
    const Group& group = group_of(chunk);
    for (int i = 0; i < group.distances; ++i) {
      const Block block = received(group, i, chunk);
      if (block.bytes > 0) visit(block);
    }
  }

 private:
  /// Distances that share chunks.
  struct Group {
    int first_distance = 0;
    int distances = 0;
    std::int64_t block = 0;  // of each distance in a chunk
    std::int64_t first_chunk = 0;
  };

  [[nodiscard]] const Group& group_of(std::int64_t chunk) const noexcept;
  [[nodiscard]] Block sent(const Group& group, int i, std::int64_t chunk) const noexcept;
  [[nodiscard]] Block received(const Group& group, int i, std::int64_t chunk) const noexcept;
  [[nodiscard]] int size() const noexcept { return static_cast<int>(send_begin_.size()) - 1; }

  int rank_ = 0;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::vector<std::int64_t> send_begin_;  // by rank, and the end
  std::vector<std::int64_t> receive_begin_;
  std::vector<Group> groups_;
  std::int64_t chunks_ = 0;
  bool past_cache_ = false;
};

/// The same number of rows to everyone.
class Alltoall final : public Collective {
 public:
  using Collective::Collective;
  static const SmallPart kSmall;
  /// What the mesh must hold for a chunk.
  static MeshBytes mesh_bytes(const core::Topology& topology, std::size_t slot_bytes) noexcept;

  void open(Runs runs, data::Job& job) override;
  /// As `AlltoallPlan::make` has it.
  void open(const std::byte* input, std::byte* output, const std::vector<std::int64_t>& send,
            const std::vector<std::int64_t>& receive, const std::vector<std::int64_t>& largest);

  Cut cut(Chunk& chunk, std::uint64_t taken) override;
  void fill(Chunk& chunk) override;
  /// Notes the messages between nodes; calls nobody.
  void enter(const Chunk& chunk) override;
  [[nodiscard]] bool ready(const Chunk& chunk) const override;
  void take(const Chunk& chunk) override;

 private:
  AlltoallPlan plan_;
  std::vector<std::int64_t> even_;  // bytes for each rank
  std::int64_t next_ = 0;           // chunk of the plan
};

/// What a gather, a scatter and an all-to-all with splits have in common: everybody learns all the runs' lengths
/// (lengths.hpp says how that goes on), and then the rows of each run go as an all-to-all, one run after another.
/// Between two of them nobody waits.
class UnevenRows : public Compound {
 public:
  explicit UnevenRows(Site& site) : Compound(site), lengths_(site), rows_(site) {}
  void open(Runs runs, data::Job& job) final;
  Cut cut(Chunk& chunk, std::uint64_t taken) final;
  [[nodiscard]] std::size_t over(std::uint64_t taken) const final { return ends_.over(taken); }

 protected:
  [[nodiscard]] Runs runs() const noexcept { return runs_; }
  /// Gets ready to tell what this rank knows of all the runs.
  virtual void open_lengths() = 0;
  /// As `cut`; `end` once all lengths are known.
  virtual Cut cut_lengths(Chunk& chunk, std::uint64_t taken) { return lengths_.cut(chunk, taken); }
  /// All lengths are known: asks for the output of a run, and opens its rows.
  virtual void open_rows(std::size_t run, Alltoall& rows) = 0;
  /// Opens rows of which all go to the run's root, or all come from it: so many bytes to or from each rank.
  void open_rooted(Alltoall& rows, const data::Run& run, std::byte* output, const std::vector<std::int64_t>& bytes,
                   bool to_root);

  Lengths lengths_;

 private:
  Runs runs_;
  bool lengths_known_ = false;
  bool is_open_ = false;  // the run that is being cut
  Ends ends_;
  Parts<Alltoall> rows_;
};

/// With splits, in two steps: everybody learns what comes to it, by an all-to-all of the splits, and how chunks are
/// cut, by an all-reduce of the largest split of each distance (the `lengths_`, by distance in place of rank), both of
/// all runs together; then the rows go.
class AlltoallSplits final : public UnevenRows {
 public:
  explicit AlltoallSplits(Site& site) : UnevenRows(site), splits_(site) {}

 private:
  void open_lengths() override;
  Cut cut_lengths(Chunk& chunk, std::uint64_t taken) override;
  void open_rows(std::size_t run, Alltoall& rows) override;

  // Each by rank, then by run.
  std::vector<std::int64_t> sent_counts_;      // rows to every rank
  std::vector<std::int64_t> received_counts_;  // from
  Alltoall splits_;
};

}  // namespace kolo::data::cpu
