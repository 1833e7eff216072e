// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend of one process set: composes the slots of a node (transport::IntraNode) and, when the set spans
// several nodes, bulk transport between them (transport::InterNode), knowing neither shared memory nor MPI.
//
// How it works
//
// The work of a set is one sequence of *chunks*, across runs, jobs and batches. What a chunk is, and what is done with
// it, is the business of the run's collective (collective.hpp); this file knows the pipeline alone. Chunk c lies in
// slot c % slots of every rank. On each rank a chunk passes three stages, in order; the stages advance independently of
// each other, so several chunks are under way at once, and a job's first chunks are filled while the last job's are
// still being taken:
//
//   fill    bring the own input into the own slot, where the peers read it           publish filled
//   reduce  enter: do the own share for the others; start what goes between nodes
//           arrive: what was to come from other nodes has come                       publish reduced
//   take    bring the result from slots straight into the tensors                    publish taken
//
// When may a slot be filled again? Where peers read it when they take: when all have taken. Else its owner's own take
// is enough: it happens after all have reduced, and nobody touches it after that. Between nodes the chunk's messages
// must have gone, too: its staging memory is used again with the slot. Results do not wait for that, a job's end does.
//
// Collectives in which ranks bring different amounts learn them first, those of neighbours together, when a chunk of
// theirs is taken; nothing is cut behind that chunk until then (lengths.hpp).
//
// A set of one rank needs none of this: it goes from input to output (alone.hpp).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/topology.hpp"
#include "data/backend.hpp"
#include "data/cpu/lane.hpp"
#include "data/cpu/mesh.hpp"
#include "data/cpu/registry.hpp"
#include "data/cpu/routes.hpp"
#include "data/cpu/site.hpp"
#include "data/cpu/tuning.hpp"
#include "transport/inter_node.hpp"
#include "transport/intra_node.hpp"
#include "transport/regions.hpp"

namespace kolo::data::cpu {

/// The same on all ranks of the set.
struct CpuBackendOptions {
  /// The set's ranks as ranks of the world, by rank of the set; empty for the world itself.
  std::vector<int> members;
  /// Of the set's ranks of this node the local ranks in the world, in the order of the set's; likewise.
  std::vector<int> local_ranks;
  /// Sets whose members share an InterNode must not share tags: this set uses `first_tag` ... first_tag + slots - 1.
  int first_tag = 0;
  Tuning tuning;
  Routes routes{RouteTable(), 1};
  /// What the node's ranks share beyond the slots; null: nothing.
  std::shared_ptr<transport::Regions> regions;
};

class CpuBackend final : public data::Backend {
 public:
  /// `topology` is the set's: its ranks are places in `options.members` (core::topology_of). `intra` has this
  /// rank's place in its node, the same slots everywhere. `inter` is null when there is one node.
  CpuBackend(core::Topology topology, std::shared_ptr<transport::IntraNode> intra,
             std::shared_ptr<transport::InterNode> inter, CpuBackendOptions options = {});

  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] data::RunRoute route(const data::Run& run) const override;
  [[nodiscard]] std::string explain_route(const data::Job& job, const data::Run& run,
                                          const data::Piece& piece) override;
  void start(data::Job& job) override;
  data::Progress progress(std::vector<data::Job*>& finished) override;
  [[nodiscard]] std::optional<std::vector<int>> awaited() const override;
  void abort() noexcept override;

 private:
  /// One run, or neighbours that one collective runs together.
  struct OpenRuns {
    Collective* collective = nullptr;
    core::CollectiveKind kind = core::CollectiveKind::allreduce;
    std::size_t first = 0;  // of the job's runs
    std::size_t told = 0;   // how many of them have been said to be over
  };
  /// A job on its way: its runs are opened one after another.
  struct OpenJob {
    data::Job* job = nullptr;
    std::vector<OpenRuns> opened;  // the last one is being cut
    std::size_t opened_runs = 0;
    bool is_cut = false;    // wholly, into chunks
    std::uint64_t end = 0;  // the number of the chunk after the last; once it is cut
  };

  [[nodiscard]] Site make_site();
  // The stages, each one chunk at most; true when something moved.
  bool fill_one();
  bool reduce_one();
  bool take_one();
  bool retire(std::vector<data::Job*>& finished);
  void finish_first(std::vector<data::Job*>& finished);
  void open_next(OpenJob& open);
  void tell_over();

  void add_behind(transport::Stage stage, std::uint64_t number, std::vector<int>& ranks) const;
  [[nodiscard]] bool cut(Chunk& next);
  [[nodiscard]] bool cut(OpenJob& open, Chunk& next);
  [[nodiscard]] bool enter(std::uint64_t number);
  [[nodiscard]] bool arrive(std::uint64_t number);
  [[nodiscard]] bool has_gone(std::uint64_t number) const;
  [[nodiscard]] Chunk& chunk(std::uint64_t number) noexcept { return chunks_[number % chunks_.size()]; }
  [[nodiscard]] const Chunk& chunk(std::uint64_t number) const noexcept { return chunks_[number % chunks_.size()]; }

  const core::Topology topology_;
  const CpuBackendOptions options_;
  const std::shared_ptr<transport::IntraNode> intra_;
  const std::shared_ptr<transport::InterNode> inter_;
  std::optional<Lane> lane_;  // of this rank, if it is in one and there are several nodes
  std::optional<Mesh> mesh_;  // if there are several nodes
  transport::RegionTable regions_;
  Site site_;
  Collectives collectives_;

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
};

}  // namespace kolo::data::cpu
