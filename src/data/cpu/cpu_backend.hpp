// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend of one process set: composes the slots of a node (transport::IntraNode) and, when the set spans
// several nodes, bulk transport between them (transport::InterNode), knowing neither shared memory nor MPI.
//
// How it works
//
// The work of a set is one sequence of *chunks*, across runs, jobs and batches. A run is a *stream*: the concatenation
// of its pieces, cut anywhere between elements into chunks that fill a slot. Chunk c lies in slot c % slots of every
// rank. On each rank a chunk passes three stages, in order; the stages advance independently of each other, so several
// chunks are under way at once, and a job's first chunks are filled while the last job's are still being taken:
//
//   fill    copy the own input into the own slot, where the peers read it            publish filled
//   reduce  bring the own share of the chunk to where everybody will take it from    publish reduced
//   take    copy the result from the own slot (or reduce it there and then) straight into the tensors   publish taken
//
// What the stages do is the chunk's *route*, which follows from the run alone, so that all ranks choose the same:
//
//   flat       one node, all-reduce of a small chunk. Nothing to do in reduce; when all have filled, every rank reduces
//              all slots by itself, straight into its outputs. One synchronisation.
//   sliced     one node, all-reduce. The chunk is divided into a share a rank. When all have filled, rank j reduces
//              share j over its own input and the peers' slots, and writes the sum into its own output and back into
//              share j of *each peer's own* slot: so each line crosses between cores once in each direction, and the
//              own share is neither filled nor taken. (To leave the sums in the reducer's slot, and copy out
//              from there, would be a pass less for the reducer, but then every line is read by all peers while it is
//              still dirty in another core's cache, and a slot could be filled again only after all had taken.) When
//              all have reduced, everybody takes from its own slot.
//   lanes      several nodes, all-reduce. The shares belong to the lanes (data/cpu/lane.hpp): rank j reduces share j
//              over its node into partial sums, exchanges them with rank j of the other nodes, and writes the result
//              back as above.
//   root_slot  broadcast, on the root's node: everybody takes from the root's slot. Lane ranks also start share j on
//              its way to the other nodes.
//   relayed    broadcast, on other nodes: lane rank j receives share j and writes it into each peer's own slot.
//   gather     all-gather on one node: data/cpu/gather.hpp.
//   alltoall   all-to-all, one node and between nodes: data/cpu/alltoall.hpp.
//   scatter    reduce-scatter, likewise: data/cpu/reduce_scatter.hpp.
//
// Tensors that lie in a region which the node shares (transport/regions.hpp, `GradientArena`) are neither filled nor
// taken: beside the slot stands, for each *stretch* of a chunk - what it holds of one piece -, whether it lies in the
// slot or at a place in a region, and reduce reads and writes it there. Each rank decides that for itself, stretch by
// stretch; how chunks are cut does not depend on it. Only the routes whose results are written back do so, and only for
// all-reduces in place.
//
// Where a run is sent as a narrower type (`Run::sent_as`), slots hold that type: fill casts, take casts back, and the
// own share goes through the own slot as all others do, so that it is rounded as they are. Tensors in regions too.
//
// When may a slot be filled again? With flat, root_slot, gather, alltoall and scatter peers read it when they take: so
// when all have taken. With the others its owner's own take is enough: it happens after all have reduced, and nobody
// touches it after that. Between nodes the chunk's messages must have gone, too: its staging memory is used again with
// the slot. Results do not wait for that, a job's end does.
//
// Inside a node elements are always added in rank order, and the nodes' sums in the order of the nodes, whatever the
// route and however runs were cut: so results do not depend on batching, to the bit, and are the same on all ranks.
//
// All-gather between nodes, where contributions differ in length, is two steps made of the above: an all-reduce of one
// vector with every rank's length at its place, and then, after `Run::allocate`, one broadcast from every rank. Nothing
// is cut behind the lengths, of an all-gather or an all-to-all, until they are known.
//
// A set of one rank needs none of this: it reduces from input to output.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/topology.hpp"
#include "data/backend.hpp"
#include "data/cpu/alltoall.hpp"
#include "data/cpu/gather.hpp"
#include "data/cpu/lane.hpp"
#include "data/cpu/mesh.hpp"
#include "data/cpu/open_job.hpp"
#include "data/cpu/reduce_scatter.hpp"
#include "data/cpu/stream.hpp"
#include "data/cpu/tuning.hpp"
#include "transport/inter_node.hpp"
#include "transport/intra_node.hpp"
#include "transport/regions.hpp"

namespace kolo::data::cpu {

/// The same on all ranks of the set.
struct CpuBackendOptions {
  /// The set's ranks as ranks of the world, by rank of the set, ascending; empty for the world itself.
  std::vector<int> members;
  /// Sets whose members share an InterNode must not share tags: this set uses `first_tag` ... first_tag + slots - 1.
  int first_tag = 0;
  Tuning tuning;
  /// What the node's ranks share beyond the slots; null: nothing.
  std::shared_ptr<transport::Regions> regions;
};

class CpuBackend final : public data::Backend {
 public:
  /// `topology` is the set's: its ranks are places in `options.members` (see `topology_of_set`). `intra` has this
  /// rank's place in its node, the same slots everywhere. `inter` is null when there is one node.
  CpuBackend(core::Topology topology, std::shared_ptr<transport::IntraNode> intra,
             std::shared_ptr<transport::InterNode> inter, CpuBackendOptions options = {});

  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string route(const data::Run& run) const override;
  void start(data::Job& job) override;
  data::Progress progress(bool in_call, std::vector<data::Job*>& finished) override;
  [[nodiscard]] std::optional<std::vector<int>> awaited() const override;
  [[nodiscard]] bool awaits_nodes() const noexcept override;
  void push() override;
  void abort() noexcept override;

 private:
  // The stages, each one chunk at most; true when something moved.
  bool fill_one();
  bool reduce_one();
  bool take_one();
  bool retire(std::vector<data::Job*>& finished);

  /// The ranks of this node that have not brought chunk `number` past a stage.
  void add_behind(transport::Stage stage, std::uint64_t number, std::vector<int>& ranks) const;
  [[nodiscard]] OpenJob* cut(Chunk& chunk);
  [[nodiscard]] std::int64_t most_elements(const Stream& stream) const noexcept;
  [[nodiscard]] Route route_of(const Stream& stream, std::int64_t elements) const noexcept;
  void copy_in(Chunk& chunk, data::Job& job);
  [[nodiscard]] transport::Place place_of(const Chunk& chunk, const data::Piece& piece, std::int64_t first,
                                          std::int64_t elements, std::size_t stretch);
  [[nodiscard]] bool enter(std::uint64_t number);
  [[nodiscard]] bool complete(std::uint64_t number);
  void reduce_share(std::uint64_t number);
  void start_exchange(std::uint64_t number);
  void write_back(std::uint64_t number);
  void pass_on(std::uint64_t number, const std::byte* data);
  [[nodiscard]] std::byte* peers_memory(int peer, std::uint64_t number, std::size_t stretch, std::size_t in_slot,
                                        std::size_t in_stretch);
  template <class Visit>
  void each_stretch(std::uint64_t number, const Part& part, Visit&& visit);
  [[nodiscard]] bool ready_to_take(std::uint64_t number) const;
  void reduce_out(std::uint64_t number);
  using CopyOut = void (*)(void* destination, const void* source, std::int64_t bytes);
  [[nodiscard]] CopyOut copy_out_of(const Stream& stream) const noexcept;
  void copy_out(std::uint64_t number, const std::byte* slot);

  [[nodiscard]] Chunk& chunk(std::uint64_t number) noexcept { return chunks_[number % chunks_.size()]; }
  [[nodiscard]] const Chunk& chunk(std::uint64_t number) const noexcept { return chunks_[number % chunks_.size()]; }
  [[nodiscard]] bool enters_when_all_filled(const Chunk& chunk) const noexcept;
  [[nodiscard]] bool is_exchanged(const Chunk& chunk) const noexcept;
  [[nodiscard]] bool is_meshed(const Chunk& chunk) const noexcept;
  [[nodiscard]] Part own_share(const Chunk& chunk) const noexcept;
  [[nodiscard]] Part kept_share(const Chunk& chunk) const noexcept;
  [[nodiscard]] std::byte* slot(int local_rank, std::uint64_t number) const noexcept {
    return intra_->slot(local_rank, number);
  }

  const core::Topology topology_;
  const CpuBackendOptions options_;
  const std::shared_ptr<transport::IntraNode> intra_;
  const std::shared_ptr<transport::InterNode> inter_;
  const int lanes_;           // ranks of the smallest node; all of them when there is one node
  std::optional<Lane> lane_;  // of this rank, if it is in one and there are several nodes
  std::optional<Mesh> mesh_;  // if there are several nodes
  Gather gather_;
  Alltoall alltoall_;
  ReduceScatter reduce_scatter_;

  std::deque<std::unique_ptr<OpenJob>> open_;  // in the order of start
  std::size_t cutting_ = 0;                    // the first of them that is not wholly cut into chunks
  std::vector<std::unique_ptr<OpenJob>> spare_;

  std::vector<Chunk> chunks_;  // those between take and fill, by number % slots
  // Chunks 0 ... n-1 have passed: filled_ >= entered_ >= reduced_ >= taken_ >= filled_ - slots. Likewise sent_.
  std::uint64_t filled_ = 0;
  std::uint64_t entered_ = 0;  // in the stage of reduce, perhaps still on their way between nodes
  std::uint64_t reduced_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t sent_ = 0;  // reduced, and no message of theirs is open
  PieceCursor fill_cursor_;
  PieceCursor take_cursor_;
  std::vector<const void*> inputs_;  // reduce's arguments, by local rank
  std::vector<void*> outputs_;
  std::vector<std::byte> narrow_;  // the result of a flat chunk before it is cast
  transport::RegionTable regions_;
};

/// The topology of a set of ranks, given the world's as one of its members sees it; nodes without members are left out.
core::Topology topology_of_set(const core::Topology& world, const std::vector<int>& members);

}  // namespace kolo::data::cpu
