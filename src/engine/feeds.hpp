// SPDX-License-Identifier: Apache-2.0
//
// A feed moves a long input of an unnamed call of two ranks. The rank that has it, the *owner*, copies it piece by
// piece into memory of the node. The *reader* uses each piece there. This is the third way beside inputs that are
// carried and inputs that are read where they lie (express_routes.hpp). It costs the owner no time: it waits for the
// reader in any case.
//
//   reader                                 owner, while it waits
//   number := the next one, taken := 0
//   asked := the call
//                                          sees that it is asked in this call; then for each piece, in order:
//                                          waits while as many pieces as there are slots are fed and not taken
//                                          copies the piece into its slot, fed := number, pieces
//   for each piece, in order:
//   waits until it is fed
//   uses it, taken := number, pieces
//
// One core copies while the other one reduces, without a call of the system. Whether that is faster than reading
// depends on how far the two lie from each other. So the reader times both ways, and takes the faster one
// (base/faster_way.hpp).
//
// The slots are the owner's two payloads. The owner carries nothing in this call. All have spoken, so they have left
// the call before, and nobody reads the payloads any more.
//
// A reader does not wait long for an owner that was stopped: it reads the rest where that lies. When such an owner goes
// on it may feed some more pieces, which nobody looks at. It does not leave the call before the reader has finished,
// and the next feed has another number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "control/express.hpp"
#include "data/kernels/peer_copy.hpp"
#include "engine/joint_reads.hpp"

namespace kolo::engine {

/// One rank's, in one set. One thread at a time, inside an unnamed call that both ranks have begun.
class Feeds {
 public:
  /// `express` outlives it.
  explicit Feeds(control::Express& express);

  /// Whether there are two ranks, and room for it: the same on both.
  [[nodiscard]] bool fits() const noexcept;

  // -- the reader
  /// Uses a piece of the input, which lies at `data`.
  using Visit = std::function<void(std::size_t begin, std::size_t bytes, const std::byte* data)>;
  using Await = std::function<void(const std::function<bool()>& there)>;
  /// Asks the other rank for its input, of so many bytes, and visits the pieces. Returns how many bytes were visited:
  /// less than all where the owner does not go on. `await` waits until a condition holds; what it and `visit` throw is
  /// passed on.
  [[nodiscard]] std::size_t take(std::size_t bytes, const Visit& visit, const Await& await);

  // -- the owner
  /// Copies as many pieces as there are free slots, but not too many in a row, if the other rank has asked in this
  /// call. It may pause some microseconds for a slot.
  void feed(const std::byte* input, std::size_t bytes, kernels::PeerCopy& copy);

 private:
  struct State {  // zeroed; the reader's
    alignas(64) std::atomic<std::uint64_t> asked;
    std::atomic<std::uint32_t> number;
    std::atomic<std::uint64_t> taken;
    alignas(64) std::atomic<std::uint64_t> fed;  // by the owner
  };
  static_assert(JointReads::kExtraBytes + sizeof(State) <= control::Express::kExtraBytes);

  [[nodiscard]] State& state(int reader) const noexcept;
  [[nodiscard]] std::size_t piece_bytes(std::size_t bytes) const noexcept;
  [[nodiscard]] std::byte* slot(int owner, std::uint32_t piece) const noexcept;
  /// The owner's side of one feed.
  struct Fed {
    std::uint32_t number = 0;
    std::uint32_t pieces = 0;  ///< fed
    std::uint32_t taken = 0;   ///< as the owner has seen last
    bool waits_long = false;   ///< the reader has taken none for longer than it takes for one
  };
  [[nodiscard]] static std::uint32_t await_piece(const State& state, std::uint32_t pieces, const Await& await);
  [[nodiscard]] static bool await_slot(const State& state, Fed& fed);

  control::Express& express_;
  const int own_;
  const std::size_t slot_bytes_;
  Fed fed_;
};

}  // namespace kolo::engine
