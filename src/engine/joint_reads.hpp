// SPDX-License-Identifier: Apache-2.0
//
// Long reads of peers' memory in unnamed calls. Where a peer waits until its memory has been read it helps, and writes
// a part (transport/joint_copy.hpp).
//
// A reader has a state for each peer, in the memory that the express has for it. It opens that in a call, and says so
// beside it with the number of the call; the peer looks there while it waits. A peer that is stopped while it writes is
// not waited for: the reader reads once more what that peer had taken, and does not use that state again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <kolo/error.hpp>

#include "control/express.hpp"
#include "transport/joint_copy.hpp"
#include "transport/peer_memory.hpp"

namespace kolo::engine {

/// One rank's, in one set. One thread at a time, inside an unnamed call that all have begun.
class JointReads {
 public:
  /// What is referred to outlives it. `memory` may be null: then nothing is read so. `local_ranks`: on the node, by
  /// rank of the set.
  JointReads(control::Express& express, transport::PeerMemory* memory, const std::vector<int>& local_ranks);

  /// Of a rank's extra memory of the express, from its begin.
  static constexpr std::size_t kExtraBytes = 1 << 10;

  // -- the reader
  /// Shorter reads gain nothing: where several ranks read from one, and where one rank reads from the others.
  static constexpr std::size_t kLeastOfMany = 512 << 10;
  static constexpr std::size_t kLeastOfOne = 48 << 10;
  /// Begins to read from a rank. False: it is to be read in another way, as all that is less than `least`. `from`: as
  /// `finish` and the other rank's `help` have it.
  [[nodiscard]] bool begin(int rank, std::byte* to, const std::byte* from, std::size_t bytes, std::size_t least,
                           transport::JointCopy::Cut cut = {}) noexcept;
  /// Reads all of what was begun from that rank, or what its owner leaves. `read` reads a piece, and `await` waits
  /// until a condition holds; what they throw is passed on, after `end`.
  using Read = std::function<void(std::byte* to, const std::byte* from, std::size_t bytes)>;
  using Await = std::function<void(const std::function<bool()>& there)>;
  void finish(int rank, const Read& read, const Await& await);
  /// Gives up what was begun: nobody writes any more.
  void end() noexcept;

  // -- who is read from
  /// Writes a piece for a rank that reads from this one in this call, if there is one. `data_of` says where its data
  /// is, given where it would lie from `from` on; null: it has none.
  using DataOf = std::function<const std::byte*(const std::byte* from, std::size_t begin, std::size_t bytes)>;
  void help(int rank, const DataOf& data_of);

 private:
  static constexpr int kMostRanks = 8;
  struct State {
    transport::JointCopy copy;
    std::atomic<std::uint64_t> opened;  // the call, and the number
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  static_assert(kMostRanks * sizeof(State) <= kExtraBytes);

  [[nodiscard]] State& state(int reader, int owner) const noexcept;
  void close(int rank) noexcept;
  [[nodiscard]] bool await_owner(int rank, const Await& await);

  control::Express& express_;
  transport::PeerMemory* const memory_;  // null: none is read so
  const std::vector<int>& local_ranks_;
  const int own_;
  std::array<bool, kMostRanks> open_{};    // by rank
  std::array<bool, kMostRanks> unfit_{};   // likewise: a peer was stopped there
  std::array<bool, kMostRanks> cannot_{};  // likewise: this rank could not write there
};

}  // namespace kolo::engine
