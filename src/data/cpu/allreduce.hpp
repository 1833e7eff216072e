// SPDX-License-Identifier: Apache-2.0
//
// All-reduce, and reduce to a root, which alone gets the result then. The run is the concatenation of its pieces, cut
// anywhere between elements. It goes one of three ways:
//
//   flat    one node, a short run (routes.hpp). When all have filled, every rank reduces all slots by itself, straight
//           into its outputs. One synchronisation. Of a reduce the root alone adds, and fills nothing; the others wait
//           for nobody.
//   slots   one node. The chunk is divided into a share a rank. When all have filled, rank j reduces share j over its
//           own input and the peers' slots, and writes the sum into its own output and back into share j of *each
//           peer's own* slot: so each line crosses between cores once in each direction, and the own share is neither
//           filled nor taken. (To leave the sums in the reducer's slot, and copy out from there, would be a pass less
//           for the reducer, but then every line is read by all peers while it is still dirty in another core's cache,
//           and a slot could be filled again only after all had taken.) When all have reduced, everybody takes from its
//           own slot. Of a reduce the sums are written into the root's slot alone, and the root takes: it reads and
//           writes each line twice, however many ranks there are. (With up to three, flat does not read more.)
//   lanes   several nodes. The shares belong to the lanes (lane.hpp): rank j reduces share j over its node into partial
//           sums, exchanges them with rank j of the other nodes, and writes the result back as above; of a
//           reduce, on the root's node alone.
//
// Inside a node elements are always added in rank order, and the nodes' sums in the order of the nodes, whatever the
// route and however runs were cut: so results do not depend on batching, to the bit, and are the same on all ranks.
//
// Tensors that lie in a region which the node shares (transport/regions.hpp, `GradientArena`) are neither filled nor
// taken, where results are written back (slots, lanes) and the all-reduce is in place: beside the slot stands, for
// each *stretch* of a chunk - what it holds of one piece -, whether it lies in the slot or at a place in a region, and
// reduce reads and writes it there. Each rank decides that for itself, stretch by stretch; how chunks are cut does not
// depend on it. A reduce copies them as any others.
//
// Slots hold elements as the run's format encodes them (wire_format.hpp). Where that is not plain, the own share goes
// through the own slot as all others do, so that it is rounded as they are, and tensors in regions do, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/cpu/collective.hpp"
#include "data/cpu/lane.hpp"
#include "data/cpu/small.hpp"
#include "data/cpu/wire_format.hpp"
#include "data/kernels/reduction.hpp"

namespace kolo::data::cpu {

class Allreduce final : public Collective {
 public:
  using Collective::Collective;
  static const SmallPart kSmall;
  static const SmallPart kSmallToRoot;
  /// Of a reduce only the root's pieces need outputs; those of other ranks are left alone.
  void open(Runs runs, data::Job& job) override { open(runs[0], &job); }
  /// `job`: null for numbers that are not a caller's.
  void open(const data::Run& run, data::Job* job);

  Cut cut(Chunk& chunk, std::uint64_t taken) override;
  void fill(Chunk& chunk) override;
  void enter(const Chunk& chunk) override;
  void arrive(const Chunk& chunk) override;
  [[nodiscard]] bool ready(const Chunk& chunk) const override;
  void take(const Chunk& chunk) override;

 private:
  static constexpr int kEverybody = -1;
  [[nodiscard]] static bool is_flat(const Chunk& chunk) noexcept { return chunk.peers_read_at_take; }
  [[nodiscard]] bool gets_result() const noexcept { return root_ == kEverybody || root_ == site_.topology.rank; }
  [[nodiscard]] Part own_share(const Chunk& chunk) const noexcept;
  /// What of the chunk neither fill nor take moves, because this rank's sum does: from its inputs, to its outputs.
  [[nodiscard]] Part kept_share(const Chunk& chunk) const noexcept;
  /// Sums all slots of a flat chunk into the outputs.
  void reduce_out(const Chunk& chunk);
  /// Brings what the ranks have written into the own slot to the outputs.
  void copy_out(const Chunk& chunk);
  [[nodiscard]] transport::Place place_of(const Chunk& chunk, const data::Piece& piece, std::int64_t first,
                                          std::int64_t elements, std::size_t stretch);
  template <class Visit>
  void each_stretch(const Chunk& chunk, const Part& part, Visit&& visit);
  /// Sets `peers_` for a chunk: many small stretches are looked up in it.
  void find_peers(const Chunk& chunk);
  [[nodiscard]] std::byte* peers_memory(int peer, std::size_t stretch, std::int64_t in_chunk,
                                        std::int64_t in_stretch) const;
  /// Where the result goes of what each_stretch has pointed at: to `targets_` local ranks.
  [[nodiscard]] void* const* targets() const noexcept { return site_.outputs.data() + first_target_; }

  /// What a local rank has written of a chunk.
  struct Peer {
    std::byte* slot = nullptr;
    const transport::Place* places = nullptr;  ///< of its stretches; null: all lie in the slot
  };

  data::Job* job_ = nullptr;  // null: tensors in regions are copied as any others
  WireFormat format_;
  kernels::Reduction reduction_;
  int root_ = kEverybody;           // of the set: who alone gets the result
  std::int64_t element_bytes_ = 0;  // in memory
  bool past_cache_ = false;         // outputs elsewhere than the inputs are written past the cache (tuning.hpp)
  std::int64_t elements_ = 0;
  std::int64_t chunk_elements_ = 0;
  std::int64_t offset_ = 0;  // the first element that has not been cut
  bool is_flat_ = false;
  int first_target_ = 0;  // the local ranks that get the result: all, the root, or, where that is elsewhere, none
  int targets_ = 0;
  int to_node_ = Lane::kAllNodes;  // likewise, of nodes
  PieceCursor fill_cursor_;
  PieceCursor take_cursor_;
  std::vector<Peer> peers_;  // by local rank, while a stage of one chunk lasts
};

}  // namespace kolo::data::cpu
