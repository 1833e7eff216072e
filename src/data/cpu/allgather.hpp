// SPDX-License-Identifier: Apache-2.0
//
// All-gathers. Contributions differ in length, and nobody knows the others'. The runs of a batch go together.
//
// On one node each rank has a *stream*: the lengths of its contributions to all the runs, then these, one after
// another, each at the begin of a line. Chunk c holds the c-th slot full of everybody's stream, whatever run that
// belongs to:
//
//   fill    copy the next part of the own stream into the own slot
//   take    copy everybody's parts from their slots, and the own part from where it lies, straight into the outputs
//
// All ranks fill and take at the same time, and gathers of small contributions, however many, are one chunk, and one
// synchronisation. (One broadcast after the other, as between nodes, keeps all but one rank waiting for the first slot
// of each.) How many chunks hold lengths follows from the number of runs, which the log says; who has taken the last of
// them knows how long all streams are, and cuts the rest.
//
// Between nodes it is two steps made of others: everybody learns the lengths (lengths.hpp), and then there is one
// broadcast from every rank for each *group* of neighbouring runs. A group ends with the run that makes it as long as
// all slots together: so many small runs share their broadcasts, and a large one does not hold up those before it.
//
// Both go through the runs in their order, so that they are over in their order, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/cpu/broadcast.hpp"
#include "data/cpu/collective.hpp"
#include "data/cpu/lengths.hpp"
#include "data/cpu/small.hpp"

namespace kolo::data::cpu {

/// On one node. Sizes in bytes; local ranks are the set's ranks.
class Allgather final : public Collective {
 public:
  using Collective::Collective;
  static const SmallPart kSmall;
  void open(Runs runs, data::Job& job) override;
  Cut cut(Chunk& chunk, std::uint64_t taken) override;
  void fill(Chunk& chunk) override;
  void take(const Chunk& chunk) override;
  [[nodiscard]] std::size_t over(std::uint64_t /*taken*/) const override { return over_; }

 private:
  /// What a rank brings to a run.
  struct Contribution {
    std::int64_t bytes = 0;
    std::int64_t in_stream = 0;  ///< where it begins
    std::int64_t in_output = 0;
  };
  struct Result {
    bool is_asked_for = false;
    bool past_cache = false;      ///< it is written past the cache (tuning.hpp)
    std::byte* output = nullptr;  ///< null discards
    std::uint64_t end = 0;        ///< the number of the chunk after the last that holds some of it
  };

  [[nodiscard]] Contribution& contribution(int rank, std::size_t run) noexcept {
    return contributions_[static_cast<std::size_t>(rank) * runs_.size() + run];
  }
  [[nodiscard]] std::int64_t bytes_of_lengths() const noexcept;
  std::int64_t place_in_stream(int rank);
  [[nodiscard]] std::int64_t chunks_for(std::int64_t bytes) const noexcept;
  template <class Visit>
  void each_part(const Chunk& chunk, int rank, std::size_t& run, Visit&& visit);
  void read_lengths(const Chunk& chunk);
  void learn();
  [[nodiscard]] Result& result_of(std::size_t run);
  void take_from(int rank, const Chunk& chunk);

  Runs runs_;
  std::int64_t slot_bytes_ = 0;
  std::vector<std::int64_t> lengths_;        // by rank, then by run; the own only, until they are known
  std::vector<Contribution> contributions_;  // likewise
  std::vector<Result> results_;              // by run, once the lengths are known
  bool lengths_known_ = false;
  std::int64_t chunks_of_lengths_ = 0;
  std::int64_t chunks_ = 0;  // in all, as far as that is known
  std::int64_t next_ = 0;    // to be cut
  std::uint64_t first_number_ = 0;
  std::size_t filling_ = 0;          // the first run that is not wholly in slots
  std::vector<std::size_t> taking_;  // by rank: the first run of which not all that it brings has been taken
  std::size_t over_ = 0;             // runs
  std::vector<std::int64_t> parts_;  // of the run whose output is asked for: by rank
};

class AllgatherBetweenNodes final : public Compound {
 public:
  explicit AllgatherBetweenNodes(Site& site) : Compound(site), lengths_(site), senders_(site) {}
  void open(Runs runs, data::Job& job) override;
  Cut cut(Chunk& chunk, std::uint64_t taken) override;
  [[nodiscard]] std::size_t over(std::uint64_t taken) const override { return ends_.over(taken); }

 private:
  void open_group();
  void open_broadcast();

  /// A broadcast of what one rank brings to a group.
  struct Sender {
    explicit Sender(Site& site) : broadcast(site) {}
    std::vector<data::Piece> pieces;  // in bytes
    Broadcast broadcast;
  };

  Runs runs_;
  Lengths lengths_;  // in bytes
  bool lengths_known_ = false;
  Ends ends_;
  std::size_t group_ = 0;            // its first run
  std::size_t group_end_ = 0;        // the run after its last
  std::vector<std::byte*> outputs_;  // of the group's runs: where what the next rank brings goes
  int sending_ = 0;                  // whose broadcast is being cut; size: all are
  Parts<Sender> senders_;
};

}  // namespace kolo::data::cpu
