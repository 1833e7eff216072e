// SPDX-License-Identifier: Apache-2.0
//
// All-gather. Contributions differ in length, and nobody knows the others'.
//
// On one node the first chunk, the *head*, holds each rank's length in front of the beginning of its data: a gather of
// small contributions is that one chunk, and one synchronisation. Everything after the head is the *rest*, whose chunks
// can be counted once the lengths are known.
//
//   fill    copy the next part of the own contribution into the own slot
//   take    copy everybody's parts from their slots, and the own part from where it lies, straight into the output
//
// All ranks fill and take at the same time. (One broadcast after the other, as between nodes, keeps all but one rank
// waiting for the first slot of each.)
//
// Between nodes it is two steps made of others: everybody learns the lengths (lengths.hpp), and then there is one
// broadcast from every rank.
#pragma once

#include <deque>
#include <vector>

#include "data/cpu/broadcast.hpp"
#include "data/cpu/collective.hpp"
#include "data/cpu/lengths.hpp"

namespace kolo::data::cpu {

/// On one node. Sizes in bytes; local ranks are the set's ranks.
class Allgather final : public Collective {
 public:
  using Collective::Collective;
  void open(const data::Run& run, data::Job& job) override;
  Cut cut(Chunk& chunk, std::uint64_t taken) override;
  void fill(Chunk& chunk) override;
  void take(const Chunk& chunk) override;

 private:
  /// `Chunk::begin` of the head; of the rest it is the number of the chunk in the rest.
  static constexpr std::int64_t kHead = -1;
  /// Bytes of a slot that the length takes, so that the data is aligned.
  static constexpr std::int64_t kHeader = 64;

  /// The part of a rank's contribution that lies in a chunk.
  struct Span {
    std::int64_t begin = 0;  // in the contribution
    std::int64_t bytes = 0;
  };
  [[nodiscard]] std::int64_t head_bytes(int rank) const noexcept;
  [[nodiscard]] Span span(const Chunk& chunk, int rank) const noexcept;
  void learn(const Chunk& head);
  void take_own(const Chunk& chunk);

  const data::Run* run_ = nullptr;
  data::Job* job_ = nullptr;
  std::int64_t width_ = 1;  // bytes of an element
  std::int64_t slot_bytes_ = 0;
  std::vector<std::int64_t> bytes_;  // by rank; before the head is taken the own only
  std::vector<std::int64_t> begin_;  // in the output, by rank
  std::byte* output_ = nullptr;
  bool past_cache_ = false;  // the output is written past the cache (tuning.hpp)
  std::int64_t next_ = kHead;
  std::uint64_t head_number_ = 0;
  std::int64_t rest_chunks_ = 0;  // once the head has been taken
  PieceCursor fill_cursor_;
  PieceCursor take_cursor_;
};

class AllgatherBetweenNodes final : public Compound {
 public:
  explicit AllgatherBetweenNodes(Site& site) : Compound(site), lengths_(site) {}
  void open(const data::Run& run, data::Job& job) override;
  Cut cut(Chunk& chunk, std::uint64_t taken) override;

 private:
  void open_broadcasts();

  const data::Run* run_ = nullptr;
  data::Job* job_ = nullptr;
  Lengths lengths_;  // in bytes
  bool lengths_known_ = false;
  std::vector<data::Piece> pieces_;   // of all broadcasts, by rank; the own ones as many as the run has
  std::deque<Broadcast> broadcasts_;  // by rank
  std::size_t broadcasting_ = 0;
};

}  // namespace kolo::data::cpu
