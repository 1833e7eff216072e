// SPDX-License-Identifier: Apache-2.0
//
// The data plane's memory inside a node: every rank has a ring of small slots that its peers can read and write, and
// counters that only grow and say how many chunks have passed each stage. Shared memory implements it
// (`src/transport/shm`).
//
// A *chunk* is what one slot holds; chunks are numbered 0, 1, 2, ... for the life of the ring, across batches, and
// chunk c lies in slot c % slots. `data/cpu` decides what the chunks contain.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/regions.hpp"

namespace kolo::transport {

/// A rank's progress through the chunks. `publish(stage, n)` says: chunks 0 ... n-1 have passed this stage here.
enum class Stage : std::uint8_t {
  filled = 0,   ///< own data copied into the own slot
  reduced = 1,  ///< own share reduced and written to where the peers will read it
  taken = 2,    ///< results copied out: this rank does not read the chunk again
};
inline constexpr int kStageCount = 3;

/// How many parts of a chunk can lie elsewhere than in the slot; further parts are copied.
inline constexpr std::size_t kPlaces = 64;

/// One driver of each rank at a time. `publish` is a release store and `reached` an acquire load: memory written before
/// `publish` is visible to a rank once `reached` has returned its number.
class IntraNode {
 public:
  virtual ~IntraNode() = default;
  [[nodiscard]] virtual int local_rank() const noexcept = 0;
  [[nodiscard]] virtual int local_size() const noexcept = 0;
  [[nodiscard]] virtual std::size_t slot_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t slots() const noexcept = 0;
  /// The slot of `local_rank` for chunk `chunk`; 64-byte aligned.
  [[nodiscard]] virtual std::byte* slot(int local_rank, std::uint64_t chunk) const noexcept = 0;
  /// Beside each slot: kPlaces words that say where the chunk's data lies if it is not in the slot
  /// (transport/regions.hpp). The owner writes them before it publishes `filled`. They count only if it has called
  /// `set_placed`.
  [[nodiscard]] virtual Place* places(int local_rank, std::uint64_t chunk) const noexcept = 0;
  virtual void set_placed(std::uint64_t chunk, bool placed) noexcept = 0;
  [[nodiscard]] virtual bool is_placed(int local_rank, std::uint64_t chunk) const noexcept = 0;
  virtual void publish(Stage stage, std::uint64_t chunks) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t reached(Stage stage, int local_rank) const noexcept = 0;
  /// The smallest number that a rank of the node has reached. It may be an earlier, smaller result.
  [[nodiscard]] virtual std::uint64_t all_reached(Stage stage) noexcept = 0;
  [[nodiscard]] virtual const char* name() const noexcept = 0;
};

}  // namespace kolo::transport
