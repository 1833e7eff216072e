// SPDX-License-Identifier: Apache-2.0
//
// Broadcast. On the root's node everybody takes from the root's slot, and the lanes' ranks (lane.hpp) start their
// shares of it on the way to the other nodes. There the rank of lane j receives share j and writes it into each local
// rank's own slot, from which that takes.
#pragma once

#include "data/cpu/collective.hpp"
#include "data/cpu/small.hpp"

namespace kolo::data::cpu {

class Broadcast final : public Collective {
 public:
  using Collective::Collective;
  static const SmallPart kSmall;
  void open(Runs runs, data::Job& job) override;
  /// `root`: of the set. Only the root's pieces have inputs; an output of null discards. They stay where they are until
  /// the last chunk has been taken.
  void open(int root, const data::Piece* pieces, std::size_t count, std::int64_t elements, std::size_t element_bytes);

  Cut cut(Chunk& chunk, std::uint64_t taken) override;
  void fill(Chunk& chunk) override;
  void enter(const Chunk& chunk) override;
  void arrive(const Chunk& chunk) override;
  [[nodiscard]] bool ready(const Chunk& chunk) const override;
  void take(const Chunk& chunk) override;

 private:
  [[nodiscard]] bool is_root() const noexcept { return root_ == site_.topology.rank; }
  [[nodiscard]] bool is_root_near() const noexcept { return site_.is_near(root_); }
  [[nodiscard]] Part own_share(const Chunk& chunk) const noexcept;

  int root_ = 0;
  std::int64_t element_bytes_ = 1;
  std::int64_t elements_ = 0;
  std::int64_t chunk_elements_ = 0;
  std::int64_t offset_ = 0;  // the first element that has not been cut
  bool past_cache_ = false;  // outputs are written past the cache (tuning.hpp)
  PieceCursor fill_cursor_;
  PieceCursor take_cursor_;
};

}  // namespace kolo::data::cpu
