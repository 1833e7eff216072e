// SPDX-License-Identifier: Apache-2.0
//
// What the pipeline (cpu_backend.hpp) knows of a collective.
//
// A kind of collective is a class here, made by a row of the registry (registry.hpp). An object is one run on its way,
// or several neighbours whose lengths travel together (lengths.hpp): opened with them, cut into chunks, whose stages it
// does, and opened again with others when all of that is over. It may be made of others (`Compound`), as an all-to-all
// with splits is of one of the splits and one of the rows: then those cut chunks, and do their stages (`Chunk::of`).
//
// A chunk's way on one rank:
//
//   fill     the own input goes into the own slot, where peers read it
//   enter    when the node's ranks have filled, if the chunk waits for that: what this rank does for others. What goes
//            between nodes is started here
//   arrive   what was to come from other nodes has come. Enter and arrive together are the stage that other pages call
//            reduce, and that the counters call `Stage::reduced`
//   take     the result goes to the caller's memory
//
// Stages of different chunks overlap, those of one chunk come in this order, and a stage's chunks in the order in which
// they were cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "data/backend.hpp"
#include "data/cpu/chunk.hpp"
#include "data/cpu/site.hpp"

namespace kolo::data::cpu {

/// Runs of one kind that follow one another in a job: one, unless rows differ by rank.
using Runs = Span<data::Run>;

/// One driver.
class Collective {
 public:
  explicit Collective(Site& site) noexcept : site_(site) {}
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  /// Begins these runs of the job. Both stay where they are until the job is finished.
  virtual void open(Runs runs, data::Job& job) = 0;

  enum class Cut : std::uint8_t {
    chunk,  ///< here is the next chunk
    wait,  ///< what comes next is known only when this rank has taken the last one: nothing of the set is cut meanwhile
    end,   ///< that was all
  };
  /// Cuts the next chunk, whose number is there: the same on all ranks. `taken`: how many chunks of the set this rank
  /// has taken.
  virtual Cut cut(Chunk& chunk, std::uint64_t taken) = 0;

  virtual void fill(Chunk& chunk) = 0;
  virtual void enter(const Chunk& /*chunk*/) {}
  virtual void arrive(const Chunk& /*chunk*/) {}
  /// Whether what take reads is there.
  [[nodiscard]] virtual bool ready(const Chunk& chunk) const {
    const transport::Stage stage = chunk.peers_read_at_take ? transport::Stage::filled : transport::Stage::reduced;
    return site_.intra.all_reached(stage) > chunk.number;
  }
  virtual void take(const Chunk& chunk) = 0;
  /// Where rows differ by rank: how many of its runs, in their order, are over on this rank when it has taken so many
  /// chunks of the set.
  [[nodiscard]] virtual std::size_t over(std::uint64_t /*taken*/) const { return 0; }

 protected:
  Site& site_;
};

/// One that is made of others, which cut its chunks and do their stages.
class Compound : public Collective {
 public:
  using Collective::Collective;
  void fill(Chunk& /*chunk*/) final { KOLO_UNREACHABLE("a part cuts each chunk"); }
  void take(const Chunk& /*chunk*/) final { KOLO_UNREACHABLE("a part cuts each chunk"); }
};

}  // namespace kolo::data::cpu
