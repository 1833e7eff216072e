// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/cpu_backend.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.hpp"
#include "base/text.hpp"
#include "core/collectives.hpp"
#include "data/cpu/alone.hpp"
#include "data/cpu/wire_format.hpp"

namespace kolo::data::cpu {

namespace {

/// Moves of each stage in one call: enough that a call is worth its price, few enough that the caller soon looks at
/// what else it owes.
constexpr int kRoundsPerCall = 4;

int lanes_of(const core::Topology& topology) {
  std::size_t least = topology.nodes.front().size();
  for (const std::vector<int>& node : topology.nodes) least = std::min(least, node.size());
  return static_cast<int>(least);
}

/// As ranks of the world.
std::vector<int> ranks_of(const core::Topology& topology, const std::vector<int>& members) {
  std::vector<int> ranks = members;
  ranks.resize(static_cast<std::size_t>(topology.size));
  if (members.empty()) std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

LanePlace place_in_lane(const core::Topology& topology, const std::vector<int>& members) {
  LanePlace place;
  place.node = topology.node;
  for (const std::vector<int>& node : topology.nodes) {
    const int rank = node[static_cast<std::size_t>(topology.local_rank)];
    place.ranks.push_back(members.empty() ? rank : members[static_cast<std::size_t>(rank)]);
  }
  return place;
}

}  // namespace

CpuBackend::CpuBackend(core::Topology topology, std::shared_ptr<transport::IntraNode> intra,
                       std::shared_ptr<transport::InterNode> inter, CpuBackendOptions options)
    : topology_(std::move(topology)), options_(std::move(options)), intra_(std::move(intra)), inter_(std::move(inter)),
      regions_(options_.regions ? options_.regions : std::make_shared<transport::Regions>(),
               ranks_of(topology_, options_.members)),
      site_(make_site()), collectives_(site_), chunks_(intra_->slots()) {
  KOLO_CHECK((inter_ != nullptr) == (topology_.node_count() > 1)) << topology_.node_count() << " nodes";
  KOLO_CHECK(intra_->local_size() == topology_.local_size() && intra_->local_rank() == topology_.local_rank);
  KOLO_CHECK(options_.members.empty() || static_cast<int>(options_.members.size()) == topology_.size);
}

Site CpuBackend::make_site() {
  const auto local_size = static_cast<std::size_t>(topology_.local_size());
  Site site{topology_, options_.members, options_.local_ranks, options_.tuning, options_.routes, *intra_, regions_};
  site.to_peers = options_.tuning.to_peers;
  site.lanes = lanes_of(topology_);
  site.inputs.resize(std::max(local_size, topology_.nodes.size()));
  site.outputs.resize(local_size);
  if (inter_ == nullptr) return site;
  const std::size_t slot = intra_->slot_bytes();
  mesh_.emplace(inter_, options_.first_tag, intra_->slots(), mesh_bytes(topology_, slot));
  site.mesh = &*mesh_;
  if (topology_.local_rank < site.lanes) {
    lane_.emplace(inter_, place_in_lane(topology_, options_.members), options_.first_tag,
                  LaneShape{intra_->slots(), slot, site.lanes, options_.tuning.step_bytes});
    site.lane = &*lane_;
  }
  return site;
}

std::string CpuBackend::describe() const {
  if (topology_.size == 1) return "in place (1 rank)";
  base::Text text;
  const std::size_t slot = intra_->slot_bytes();
  text << intra_->name() << " (" << topology_.local_size() << " ranks, " << intra_->slots() << " slots of "
       << (slot % 1024 == 0 ? slot / 1024 : slot) << (slot % 1024 == 0 ? " KiB" : " bytes")
       << (site_.to_peers.stores() == kernels::PeerCopy::Stores::past_cache ? ", written past the cache)" : ")");
  if (inter_ != nullptr)
    text << ", " << inter_->name() << " (" << topology_.node_count() << " nodes, " << site_.lanes
         << (site_.lanes == 1 ? " lane)" : " lanes)");
  return text.str();
}

data::RunRoute CpuBackend::route(const data::Run& run) const {
  if (topology_.size == 1) return data::RunRoute::alone;
  if (!site_.one_node()) return data::RunRoute::between_nodes;
  const std::size_t bytes = WireFormat(run.dtype, run.wire).bytes(run.elements);
  return site_.takes(run.kind, Route::flat, bytes) ? data::RunRoute::flat : data::RunRoute::slots;
}

std::string CpuBackend::explain_route(const data::Job& /*job*/, const data::Run& run, const data::Piece& piece) {
  const std::string in_slots = "on the CPU, through slots, because ";
  if (topology_.size == 1) return "on the CPU, where it lies, because nobody else is in the group";
  const std::size_t bytes = static_cast<std::size_t>(piece.elements) * size_of(run.dtype);
  if (regions_.find(piece.input, bytes) == transport::kNowhere) return in_slots + "it lies in no arena of the group";
  if (!core::traits_of(run.kind).in_arena) {
    return in_slots + "no " + std::string(core::to_string(run.kind)) + " is done in an arena";
  }
  if (piece.input != piece.output) return in_slots + "its result goes to another place than the arena";
  if (!WireFormat(run.dtype, run.wire).is_plain()) return in_slots + "it is sent as another type";
  if (site_.takes(run.kind, Route::flat, static_cast<std::size_t>(run.elements) * size_of(run.dtype)))
    return "on the CPU, by the flat route, because its batch is so short (KOLO_ROUTES)";
  return "on the CPU, where it lies, because it is in an arena of the group";
}

void CpuBackend::start(data::Job& job) {
  if (spare_.empty()) spare_.push_back(std::make_unique<OpenJob>());
  open_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  open_.back()->job = &job;
}

void CpuBackend::finish_first(std::vector<data::Job*>& finished) {
  OpenJob& first = *open_.front();
  for (const OpenRuns& one : first.opened) collectives_.give_back(one.kind, *one.collective);
  finished.push_back(first.job);
  first.opened.clear();
  first.opened_runs = 0;
  first.is_cut = false;
  spare_.push_back(std::move(open_.front()));
  open_.pop_front();
}

data::Progress CpuBackend::progress(std::vector<data::Job*>& finished) {
  if (open_.empty()) return data::Progress::idle;
  if (topology_.size == 1) {
    run_alone(*open_.front()->job);
    finish_first(finished);
    return data::Progress::advanced;
  }
  bool advanced = false;
  for (int round = 0; round < kRoundsPerCall; ++round) {
    bool moved = fill_one();
    moved = reduce_one() || moved;
    moved = take_one() || moved;
    if (!moved) break;
    advanced = true;
  }
  if (retire(finished) || advanced) return data::Progress::advanced;
  return data::Progress::waiting;
}

bool CpuBackend::retire(std::vector<data::Job*>& finished) {
  bool any = false;
  while (!open_.empty() && open_.front()->is_cut && std::min(taken_, sent_) >= open_.front()->end) {
    finish_first(finished);
    --cutting_;
    any = true;
  }
  return any;
}

std::optional<std::vector<int>> CpuBackend::awaited() const {
  std::vector<int> ranks;
  const std::uint64_t slots = chunks_.size();
  const bool slot_is_own = filled_ - std::min(taken_, sent_) < slots;
  if (cutting_ < open_.size() && filled_ >= slots && slot_is_own && chunk(filled_).peers_read_at_take) {
    add_behind(transport::Stage::taken, filled_ - slots, ranks);
  }
  if (entered_ < filled_ && chunk(entered_).enters_when_filled) add_behind(transport::Stage::filled, entered_, ranks);
  for (std::uint64_t number = sent_; number < entered_; ++number) {
    if (chunk(number).exchanges != nullptr) chunk(number).exchanges->add_awaited(number % slots, ranks);
  }
  if (taken_ < reduced_ && !chunk(taken_).of->ready(chunk(taken_))) {
    add_behind(chunk(taken_).peers_read_at_take ? transport::Stage::filled : transport::Stage::reduced, taken_, ranks);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

/// Adds the ranks of this node that have not brought chunk `number` past a stage.
void CpuBackend::add_behind(transport::Stage stage, std::uint64_t number, std::vector<int>& ranks) const {
  for (int peer = 0; peer < topology_.local_size(); ++peer) {
    if (peer == topology_.local_rank || intra_->reached(stage, peer) > number) continue;
    const int rank = topology_.nodes[static_cast<std::size_t>(topology_.node)][static_cast<std::size_t>(peer)];
    ranks.push_back(site_.world_rank_of(rank));
  }
}

void CpuBackend::abort() noexcept {
  // Peers may be at work on chunks of open jobs.
  if (!open_.empty()) regions_.regions().detach_all();
  // Staging memory of open exchanges is the transport's, and outlives them.
  open_.clear();
  cutting_ = 0;
}

// ---------------------------------------------------------------- the stages

bool CpuBackend::fill_one() {
  const std::uint64_t slots = chunks_.size();
  if (cutting_ == open_.size() || filled_ - std::min(taken_, sent_) == slots) return false;
  Chunk& slot = chunk(filled_);  // still describes the slot's last chunk
  if (filled_ >= slots && slot.peers_read_at_take && intra_->all_reached(transport::Stage::taken) <= filled_ - slots)
    return false;
  Chunk next;
  next.number = filled_;
  if (!cut(next)) return false;
  slot = next;
  slot.of->fill(slot);
  intra_->publish(transport::Stage::filled, ++filled_);
  return true;
}

bool CpuBackend::cut(Chunk& next) {
  for (; cutting_ < open_.size(); ++cutting_) {
    if (cut(*open_[cutting_], next)) return true;
    if (!open_[cutting_]->is_cut) return false;  // it waits for what is learned when its last chunk is taken
  }
  return false;
}

bool CpuBackend::cut(OpenJob& open, Chunk& next) {
  while (true) {
    const auto cut = open.opened.empty() ? Collective::Cut::end : open.opened.back().collective->cut(next, taken_);
    if (cut != Collective::Cut::end) return cut == Collective::Cut::chunk;
    if (open.opened_runs == open.job->runs.size()) break;
    open_next(open);
  }
  open.is_cut = true;
  open.end = next.number;
  return false;
}

void CpuBackend::open_next(OpenJob& open) {
  std::vector<data::Run>& runs = open.job->runs;
  const std::size_t first = open.opened_runs++;
  const core::CollectiveKind kind = runs[first].kind;
  if (core::traits_of(kind).rows_differ) {
    while (open.opened_runs < runs.size() && runs[open.opened_runs].kind == kind) ++open.opened_runs;
  }
  open.opened.push_back({&collectives_.lend(kind), kind, first, 0});
  open.opened.back().collective->open({&runs[first], open.opened_runs - first}, *open.job);
}

bool CpuBackend::reduce_one() {
  bool moved = false;
  if (entered_ < filled_ && enter(entered_)) {
    ++entered_;
    moved = true;
  }
  if (inter_ != nullptr) {
    for (std::uint64_t number = sent_; number < entered_; ++number) {
      Exchanges* exchanges = chunk(number).exchanges;
      if (exchanges != nullptr) moved = exchanges->advance(number % chunks_.size()) || moved;
    }
  }
  while (reduced_ < entered_ && arrive(reduced_)) {
    intra_->publish(transport::Stage::reduced, ++reduced_);
    moved = true;
  }
  for (; sent_ < reduced_ && has_gone(sent_); ++sent_) moved = true;
  return moved;
}

bool CpuBackend::enter(std::uint64_t number) {
  const Chunk& entering = chunk(number);
  if (entering.enters_when_filled && intra_->all_reached(transport::Stage::filled) <= number) return false;
  entering.of->enter(entering);
  return true;
}

bool CpuBackend::arrive(std::uint64_t number) {
  const Chunk& arriving = chunk(number);
  if (arriving.exchanges == nullptr) return true;
  if (!arriving.exchanges->ready(number % chunks_.size())) return false;
  arriving.of->arrive(arriving);
  return true;
}

/// Whether no message of the chunk is open.
bool CpuBackend::has_gone(std::uint64_t number) const {
  const Exchanges* exchanges = chunk(number).exchanges;
  return exchanges == nullptr || exchanges->done(number % chunks_.size());
}

bool CpuBackend::take_one() {
  if (taken_ == reduced_) return false;
  const Chunk& taking = chunk(taken_);
  if (!taking.of->ready(taking)) return false;
  taking.of->take(taking);
  intra_->publish(transport::Stage::taken, ++taken_);
  tell_over();
  return true;
}

/// Says which runs are over, of the jobs that are not all taken, or have just been. The last one of a job is over with
/// the job: what this rank sends may still be on its way, and who has nothing open might leave.
void CpuBackend::tell_over() {
  for (const std::unique_ptr<OpenJob>& open : open_) {
    if (open->opened.empty()) return;
    const std::size_t last = open->job->runs.size() - 1;
    for (OpenRuns& one : open->opened) {
      if (last == 0 || !open->job->run_over) break;
      if (!core::traits_of(one.kind).rows_differ) continue;
      const std::size_t over = std::min(one.collective->over(taken_), last - one.first);
      for (; one.told < over; ++one.told) open->job->run_over(*open->job, one.first + one.told);
    }
    if (!open->is_cut || open->end >= taken_) return;
  }
}

}  // namespace kolo::data::cpu
