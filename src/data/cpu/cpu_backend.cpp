// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/cpu_backend.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/check.hpp"
#include "data/cpu/alone.hpp"

namespace kolo::data::cpu {

namespace {

/// Moves of each stage in one call: enough that a call is worth its price, few enough that the caller soon looks at
/// what else it owes.
constexpr int kRoundsPerCall = 4;

constexpr std::size_t kLine = 64;

int lanes_of(const core::Topology& topology) {
  std::size_t least = topology.nodes.front().size();
  for (const std::vector<int>& node : topology.nodes) least = std::min(least, node.size());
  return static_cast<int>(least);
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

std::optional<Mesh> make_mesh(const core::Topology& topology, const transport::IntraNode& intra,
                              const std::shared_ptr<transport::InterNode>& inter, int first_tag) {
  if (inter == nullptr) return std::nullopt;
  const std::size_t slot = intra.slot_bytes();
  return Mesh(inter, first_tag, intra.slots(), std::max(slot, ReduceScatter::outgoing_bytes(topology, slot)),
              std::max(slot, ReduceScatter::incoming_bytes(topology, slot)));
}

}  // namespace

CpuBackend::CpuBackend(core::Topology topology, std::shared_ptr<transport::IntraNode> intra,
                       std::shared_ptr<transport::InterNode> inter, CpuBackendOptions options)
    : topology_(std::move(topology)), options_(std::move(options)), intra_(std::move(intra)), inter_(std::move(inter)),
      lanes_(lanes_of(topology_)), mesh_(make_mesh(topology_, *intra_, inter_, options_.first_tag)), gather_(*intra_),
      alltoall_(topology_, options_.members, *intra_, mesh_ ? &*mesh_ : nullptr),
      reduce_scatter_(topology_, options_.members, *intra_, mesh_ ? &*mesh_ : nullptr), chunks_(intra_->slots()),
      inputs_(static_cast<std::size_t>(topology_.local_size())),
      outputs_(static_cast<std::size_t>(topology_.local_size())),
      regions_(options_.regions ? options_.regions : std::make_shared<transport::Regions>()) {
  KOLO_CHECK((inter_ != nullptr) == (topology_.node_count() > 1)) << topology_.node_count() << " nodes";
  KOLO_CHECK(intra_->local_size() == topology_.local_size() && intra_->local_rank() == topology_.local_rank);
  KOLO_CHECK(options_.members.empty() || static_cast<int>(options_.members.size()) == topology_.size);
  if (inter_ != nullptr && topology_.local_rank < lanes_) {
    lane_.emplace(inter_, place_in_lane(topology_, options_.members), options_.first_tag,
                  LaneShape{chunks_.size(), intra_->slot_bytes(), lanes_, options_.tuning.step_bytes});
  }
}

std::string CpuBackend::describe() const {
  if (topology_.size == 1) return "in place (1 rank)";
  std::ostringstream text;
  const std::size_t slot = intra_->slot_bytes();
  text << intra_->name() << " (" << topology_.local_size() << " ranks, " << intra_->slots() << " slots of "
       << (slot % 1024 == 0 ? slot / 1024 : slot) << (slot % 1024 == 0 ? " KiB)" : " bytes)");
  if (inter_ != nullptr)
    text << ", " << inter_->name() << " (" << topology_.node_count() << " nodes, " << lanes_
         << (lanes_ == 1 ? " lane)" : " lanes)");
  return text.str();
}

std::string CpuBackend::route(const data::Run& run) const {
  if (topology_.size == 1) return "in place";
  if (inter_ != nullptr) return run.kind == core::CollectiveKind::allreduce ? "lanes" : "between nodes";
  if (run.kind != core::CollectiveKind::allreduce) return "slots";
  const std::size_t bytes = static_cast<std::size_t>(run.elements) * size_of(run.sent_as.value_or(run.dtype));
  return bytes <= options_.tuning.flat_bytes ? "flat" : "sliced";
}

void CpuBackend::start(data::Job& job) {
  if (spare_.empty()) spare_.push_back(std::make_unique<OpenJob>());
  open_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  open_.back()->open(job, {topology_.rank, topology_.size, &options_.members, intra_->slot_bytes(), inter_ == nullptr,
                           options_.tuning.past_cache_bytes});
}

data::Progress CpuBackend::progress(bool /*in_call*/, std::vector<data::Job*>& finished) {
  if (open_.empty()) return data::Progress::idle;
  if (topology_.size == 1) {
    run_alone(open_.front()->job());
    finished.push_back(&open_.front()->job());
    spare_.push_back(std::move(open_.front()));
    open_.pop_front();
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
  while (!open_.empty() && open_.front()->is_cut() && std::min(taken_, sent_) >= open_.front()->end()) {
    finished.push_back(&open_.front()->job());
    spare_.push_back(std::move(open_.front()));
    open_.pop_front();
    --cutting_;
    any = true;
  }
  return any;
}

std::optional<std::vector<int>> CpuBackend::awaited() const {
  std::vector<int> ranks;
  const std::uint64_t slots = chunks_.size();
  const bool slot_is_own = filled_ - std::min(taken_, sent_) < slots;
  if (cutting_ < open_.size() && filled_ >= slots && slot_is_own && chunk(filled_).peers_read_at_take()) {
    add_behind(transport::Stage::taken, filled_ - slots, ranks);
  }
  if (entered_ < filled_ && enters_when_all_filled(chunk(entered_)))
    add_behind(transport::Stage::filled, entered_, ranks);
  for (std::uint64_t number = sent_; number < entered_; ++number) {
    if (is_meshed(chunk(number))) mesh_->add_awaited(number % slots, ranks);
    if (is_exchanged(chunk(number))) lane_->add_awaited(number % slots, ranks);
  }
  if (taken_ < reduced_ && !ready_to_take(taken_)) {
    const bool reads_inputs = chunk(taken_).peers_read_at_take();
    add_behind(reads_inputs ? transport::Stage::filled : transport::Stage::reduced, taken_, ranks);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void CpuBackend::add_behind(transport::Stage stage, std::uint64_t number, std::vector<int>& ranks) const {
  for (int peer = 0; peer < topology_.local_size(); ++peer) {
    if (peer == topology_.local_rank || intra_->reached(stage, peer) > number) continue;
    const int rank = topology_.nodes[static_cast<std::size_t>(topology_.node)][static_cast<std::size_t>(peer)];
    ranks.push_back(options_.members.empty() ? rank : options_.members[static_cast<std::size_t>(rank)]);
  }
}

bool CpuBackend::awaits_nodes() const noexcept { return inter_ != nullptr && sent_ < entered_; }

void CpuBackend::push() {
  if (inter_ != nullptr) inter_->push();
}

void CpuBackend::abort() noexcept {
  // Peers may be at work on chunks of open jobs.
  if (!open_.empty()) regions_.regions().detach_all();
  // Staging memory of open exchanges is the transport's, and outlives them.
  open_.clear();
  cutting_ = 0;
}

// ---------------------------------------------------------------- fill

bool CpuBackend::fill_one() {
  const std::uint64_t slots = chunks_.size();
  if (cutting_ == open_.size() || filled_ - std::min(taken_, sent_) == slots) return false;
  Chunk& next = chunk(filled_);  // still describes the slot's last chunk
  if (filled_ >= slots && next.peers_read_at_take() && intra_->all_reached(transport::Stage::taken) <= filled_ - slots)
    return false;
  OpenJob* job = cut(next);
  if (job == nullptr) return false;
  copy_in(next, job->job());
  intra_->publish(transport::Stage::filled, ++filled_);
  return true;
}

OpenJob* CpuBackend::cut(Chunk& chunk) {
  for (; cutting_ < open_.size(); ++cutting_) {
    OpenJob& job = *open_[cutting_];
    const Stream* stream = job.next_stream(filled_, taken_);
    if (stream == nullptr && job.is_cut()) continue;
    if (stream == nullptr) return nullptr;
    chunk.stream = stream;
    chunk.begin = job.offset();
    const bool planned = stream->kind != Stream::Kind::reduce && stream->kind != Stream::Kind::broadcast;
    chunk.elements = std::min(stream->elements - chunk.begin, planned ? 1 : most_elements(*stream));
    chunk.route = route_of(*stream, chunk.elements);
    job.cut(chunk.elements);
    return &job;
  }
  return nullptr;
}

/// Of a chunk of this stream: as many as a slot holds, fewer where the stages would not overlap otherwise.
std::int64_t CpuBackend::most_elements(const Stream& stream) const noexcept {
  const std::size_t bytes = static_cast<std::size_t>(stream.elements) * stream.element_bytes;
  const std::size_t least =
      inter_ == nullptr ? options_.tuning.least_chunk_bytes : options_.tuning.least_exchanged_bytes();
  const std::size_t fair = std::max(bytes / chunks_.size(), least);
  const std::size_t most = std::min(intra_->slot_bytes(), (fair + kLine - 1) / kLine * kLine);
  return static_cast<std::int64_t>(most / stream.element_bytes);
}

Route CpuBackend::route_of(const Stream& stream, std::int64_t elements) const noexcept {
  if (stream.kind == Stream::Kind::gather) return Route::gather;
  if (stream.kind == Stream::Kind::alltoall) return Route::alltoall;
  if (stream.kind == Stream::Kind::scatter) return Route::scatter;
  if (stream.kind == Stream::Kind::broadcast) {
    const int root_node = topology_.node_of[static_cast<std::size_t>(stream.root)];
    return root_node == topology_.node ? Route::root_slot : Route::relayed;
  }
  if (inter_ != nullptr) return Route::lanes;
  const bool small = static_cast<std::size_t>(elements) * stream.element_bytes <= options_.tuning.flat_bytes;
  return small ? Route::flat : Route::sliced;
}

void CpuBackend::copy_in(Chunk& chunk, data::Job& job) {
  intra_->set_placed(filled_, false);
  if (chunk.route == Route::gather) return gather_.fill(chunk, filled_, fill_cursor_);
  if (chunk.route == Route::alltoall) return alltoall_.fill(*chunk.stream->alltoall, chunk.begin, filled_);
  if (chunk.route == Route::scatter) return reduce_scatter_.fill(*chunk.stream->scatter, chunk.begin, filled_);
  if (chunk.stream->kind == Stream::Kind::broadcast && chunk.stream->root != topology_.rank) return;
  if (chunk.begin == 0) fill_cursor_ = PieceCursor(*chunk.stream);
  chunk.cursor = fill_cursor_;
  const auto width = static_cast<std::int64_t>(chunk.stream->element_bytes);
  const Part kept = kept_share(chunk);
  std::byte* to = slot(topology_.local_rank, filled_);
  std::int64_t at = 0;
  std::size_t stretch = 0;
  std::int64_t placed = 0;
  fill_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    if (place_of(chunk, piece, first, elements, stretch++) == transport::kNowhere) {
      around(kept, at, elements, [&](std::int64_t from, std::int64_t count) {
        if (const auto& cast = chunk.stream->cast) {
          kernels::scale_and_cast(cast->memory, piece.input + (first + from - at) * cast->width,
                                  chunk.stream->reduction.dtype, to + from * width, count, cast->prescale);
        } else {
          kernels::copy_ahead(to + from * width, piece.input + (first + from - at) * width, count * width);
        }
      });
    } else {
      placed += elements;
    }
    at += elements;
  });
  if (placed == 0) return;
  intra_->set_placed(filled_, true);
  job.bytes_in_place += static_cast<std::uint64_t>(placed * width);
}

/// Where the peers will find a stretch of the chunk that is being filled, if not in the slot; written down for them.
transport::Place CpuBackend::place_of(const Chunk& chunk, const data::Piece& piece, std::int64_t first,
                                      std::int64_t elements, std::size_t stretch) {
  if (!chunk.is_written_back() || chunk.stream->cast) return transport::kNowhere;
  if (stretch >= transport::kPlaces || regions_.empty()) return transport::kNowhere;
  const std::size_t width = chunk.stream->element_bytes;
  transport::Place place = transport::kNowhere;
  if (piece.input == piece.output)
    place = regions_.find(piece.input + static_cast<std::size_t>(first) * width,
                          static_cast<std::size_t>(elements) * width);
  intra_->places(topology_.local_rank, filled_)[stretch] = place;
  return place;
}

// ---------------------------------------------------------------- reduce

bool CpuBackend::reduce_one() {
  bool moved = false;
  if (entered_ < filled_ && enter(entered_)) {
    ++entered_;
    moved = true;
  }
  if (inter_ != nullptr) {
    for (std::uint64_t number = sent_; number < entered_; ++number) {
      if (is_meshed(chunk(number))) moved = mesh_->advance(number % chunks_.size()) || moved;
      if (is_exchanged(chunk(number))) moved = lane_->advance(number % chunks_.size()) || moved;
    }
  }
  while (reduced_ < entered_ && complete(reduced_)) {
    intra_->publish(transport::Stage::reduced, ++reduced_);
    moved = true;
  }
  for (; sent_ < reduced_ && (!is_exchanged(chunk(sent_)) || lane_->done(sent_ % chunks_.size())); ++sent_)
    moved = true;
  return moved;
}

bool CpuBackend::enters_when_all_filled(const Chunk& chunk) const noexcept {
  return chunk.route == Route::sliced || chunk.route == Route::scatter || is_exchanged(chunk);
}

bool CpuBackend::is_exchanged(const Chunk& chunk) const noexcept {
  return lane_ && !is_meshed(chunk) && chunk.route != Route::flat && chunk.route != Route::sliced;
}

bool CpuBackend::is_meshed(const Chunk& chunk) const noexcept {
  return mesh_ && (chunk.route == Route::alltoall || chunk.route == Route::scatter);
}

Part CpuBackend::own_share(const Chunk& chunk) const noexcept {
  return part_of(chunk.elements, topology_.local_rank, lanes_, line_of(chunk.stream->element_bytes));
}

/// What of the chunk neither fill nor take moves, because this rank's reduce does: from its inputs, to its outputs.
Part CpuBackend::kept_share(const Chunk& chunk) const noexcept {
  return chunk.is_written_back() && !chunk.stream->cast ? own_share(chunk) : Part{};
}

/// Does what can be done at once, if it can be done.
bool CpuBackend::enter(std::uint64_t number) {
  const Chunk& entering = chunk(number);
  if (entering.route == Route::scatter) return reduce_scatter_.enter(*entering.stream->scatter, entering.begin, number);
  if (entering.route == Route::alltoall) {
    alltoall_.enter(*entering.stream->alltoall, entering.begin, number);
    return true;
  }
  if (!enters_when_all_filled(entering)) return true;  // nothing of it is this rank's to bring
  if (intra_->all_reached(transport::Stage::filled) <= number) return false;
  if (entering.route == Route::sliced) {
    reduce_share(number);
  } else {
    start_exchange(number);
  }
  return true;
}

void CpuBackend::reduce_share(std::uint64_t number) {
  const kernels::Reduction& reduction = chunk(number).stream->reduction;
  const int ranks = topology_.local_size();
  each_stretch(number, own_share(chunk(number)), [&](std::int64_t, std::int64_t elements) {
    kernels::reduce_to_all(reduction, inputs_.data(), ranks, outputs_.data(), ranks, elements);
  });
}

/// Points `inputs_` and `outputs_` at everybody's memory of the own share, `part`, stretch by stretch, and calls
/// visit(first element, elements), counted from the share's begin.
template <class Visit>
void CpuBackend::each_stretch(std::uint64_t number, const Part& part, Visit&& visit) {
  const Chunk& chunk = this->chunk(number);
  const std::size_t width = chunk.stream->element_bytes;
  const auto self = static_cast<std::size_t>(topology_.local_rank);
  if (part.elements == 0) return;
  PieceCursor cursor = chunk.cursor;
  std::int64_t at = 0;
  std::size_t stretch = 0;
  cursor.advance(part.begin + part.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    const std::int64_t begin = std::max(at, part.begin);
    const std::int64_t end = at + elements;
    if (begin < end) {
      for (int peer = 0; peer < topology_.local_size(); ++peer) {
        inputs_[static_cast<std::size_t>(peer)] = outputs_[static_cast<std::size_t>(peer)] =
            peers_memory(peer, number, stretch, static_cast<std::size_t>(begin) * width,
                         static_cast<std::size_t>(begin - at) * width);
      }
      if (!chunk.stream->cast) {
        const std::size_t offset = static_cast<std::size_t>(first + begin - at) * width;
        inputs_[self] = piece.input + offset;
        outputs_[self] = piece.output + offset;
      }
      visit(begin - part.begin, end - begin);
    }
    at = end;
    ++stretch;
  });
}

/// Where a peer's stretch lies: `in_slot` bytes into its slot, or `in_stretch` bytes into its place.
std::byte* CpuBackend::peers_memory(int peer, std::uint64_t number, std::size_t stretch, std::size_t in_slot,
                                    std::size_t in_stretch) {
  if (stretch < transport::kPlaces && intra_->is_placed(peer, number)) {
    const transport::Place place = intra_->places(peer, number)[stretch];
    if (place != transport::kNowhere) return regions_.at(peer, place) + in_stretch;
  }
  return slot(peer, number) + in_slot;
}

void CpuBackend::start_exchange(std::uint64_t number) {
  const Chunk& chunk = this->chunk(number);
  const Stream& stream = *chunk.stream;
  const Part share = own_share(chunk);
  const std::size_t offset = static_cast<std::size_t>(share.begin) * stream.element_bytes;
  const std::size_t exchange = number % chunks_.size();
  if (chunk.route == Route::lanes) {
    const std::size_t width = size_of(kernels::accumulator_of(stream.reduction.dtype));
    each_stretch(number, share, [&](std::int64_t first, std::int64_t elements) {
      kernels::reduce_partial(stream.reduction, inputs_.data(), topology_.local_size(),
                              lane_->partial(exchange) + static_cast<std::size_t>(first) * width, elements);
    });
    lane_->start_allreduce(exchange, stream.reduction, share.elements);
    return;
  }
  if (chunk.route == Route::root_slot) {
    const int root = topology_.local_rank_of[static_cast<std::size_t>(stream.root)];
    kernels::copy(lane_->result(exchange), slot(root, number) + offset,
                  share.elements * static_cast<std::int64_t>(stream.element_bytes));
  }
  lane_->start_broadcast(exchange, stream.element_bytes, share.elements,
                         topology_.node_of[static_cast<std::size_t>(stream.root)]);
}

/// Finishes the stage for a chunk that has entered, if that can be done.
bool CpuBackend::complete(std::uint64_t number) {
  const Chunk& completing = chunk(number);
  if (is_meshed(completing)) return mesh_->done(number % chunks_.size());
  if (!is_exchanged(completing)) return true;
  const std::size_t exchange = number % chunks_.size();
  if (!lane_->ready(exchange)) return false;
  if (completing.route == Route::lanes) write_back(number);
  if (completing.route == Route::relayed) pass_on(number, lane_->result(exchange));
  return true;
}

/// Brings the own share of the result to where each local rank takes it from, and to the own output.
void CpuBackend::write_back(std::uint64_t number) {
  each_stretch(number, own_share(chunk(number)), [&](std::int64_t first, std::int64_t elements) {
    lane_->deliver(number % chunks_.size(), first, elements, outputs_.data(), topology_.local_size());
  });
}

/// Copies the own share of a broadcast into each local rank's slot.
void CpuBackend::pass_on(std::uint64_t number, const std::byte* data) {
  const auto width = static_cast<std::int64_t>(chunk(number).stream->element_bytes);
  const Part share = own_share(chunk(number));
  for (int peer = 0; peer < topology_.local_size(); ++peer)
    kernels::copy(slot(peer, number) + share.begin * width, data, share.elements * width);
}

// ---------------------------------------------------------------- take

bool CpuBackend::take_one() {
  if (taken_ == reduced_ || !ready_to_take(taken_)) return false;
  const Chunk& taking = chunk(taken_);
  if (taking.begin == 0 && taking.route != Route::gather) take_cursor_ = PieceCursor(*taking.stream);
  if (taking.route == Route::flat) {
    reduce_out(taken_);
  } else if (taking.route == Route::gather) {
    gather_.take(taking, taken_, take_cursor_);
  } else if (taking.route == Route::alltoall) {
    alltoall_.take(*taking.stream->alltoall, taking.begin, taken_);
  } else if (taking.route == Route::scatter) {
    reduce_scatter_.take(*taking.stream->scatter, taking.begin, taken_);
  } else {
    const int from = taking.route == Route::root_slot
                         ? topology_.local_rank_of[static_cast<std::size_t>(taking.stream->root)]
                         : topology_.local_rank;
    copy_out(taken_, slot(from, taken_));
  }
  intra_->publish(transport::Stage::taken, ++taken_);
  return true;
}

bool CpuBackend::ready_to_take(std::uint64_t number) const {
  const Chunk& taking = chunk(number);
  switch (taking.route) {
  case Route::flat:
    return intra_->all_reached(transport::Stage::filled) > number;
  case Route::root_slot: {
    const int root = topology_.local_rank_of[static_cast<std::size_t>(taking.stream->root)];
    return intra_->reached(transport::Stage::filled, root) > number;
  }
  case Route::gather:
    return gather_.ready(number);
  case Route::alltoall:
    return alltoall_.ready(*taking.stream->alltoall, taking.begin, number);
  case Route::scatter:
    return reduce_scatter_.ready(*taking.stream->scatter, taking.begin, number);
  case Route::sliced:
  case Route::lanes:
  case Route::relayed:
    break;
  }
  return intra_->all_reached(transport::Stage::reduced) > number;
}

void CpuBackend::reduce_out(std::uint64_t number) {
  const Chunk& taking = chunk(number);
  const std::size_t width = taking.stream->element_bytes;
  for (int peer = 0; peer < topology_.local_size(); ++peer)
    inputs_[static_cast<std::size_t>(peer)] = slot(peer, number);
  const auto& cast = taking.stream->cast;
  if (cast) narrow_.resize(static_cast<std::size_t>(taking.elements) * width);
  take_cursor_.advance(taking.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    std::byte* output = cast ? narrow_.data() : piece.output + static_cast<std::size_t>(first) * width;
    kernels::reduce(taking.stream->reduction, inputs_.data(), topology_.local_size(), output, elements);
    if (cast)
      kernels::cast(taking.stream->reduction.dtype, output, cast->memory, piece.output + first * cast->width, elements);
    for (const void*& input : inputs_)
      input = static_cast<const std::byte*>(input) + static_cast<std::size_t>(elements) * width;
  });
}

/// How results get out of the slots where they do not replace the inputs.
CpuBackend::CopyOut CpuBackend::copy_out_of(const Stream& stream) const noexcept {
  const std::size_t bytes = static_cast<std::size_t>(stream.elements) * stream.element_bytes;
  if (bytes >= options_.tuning.past_cache_bytes) return &kernels::copy_past_cache;
  // Of a broadcast (measured where ranks share CPUs) asking ahead gained nothing.
  return stream.kind == Stream::Kind::broadcast ? &kernels::copy : &kernels::copy_ahead;
}

void CpuBackend::copy_out(std::uint64_t number, const std::byte* slot) {
  const Chunk& chunk = this->chunk(number);
  const auto width = static_cast<std::int64_t>(chunk.stream->element_bytes);
  const bool is_broadcast = chunk.stream->kind == Stream::Kind::broadcast;
  const bool is_root = is_broadcast && chunk.stream->root == topology_.rank;
  const transport::Place* places =
      intra_->is_placed(topology_.local_rank, number) ? intra_->places(topology_.local_rank, number) : nullptr;
  const Part kept = kept_share(chunk);
  const CopyOut copy_elsewhere = copy_out_of(*chunk.stream);
  std::int64_t at = 0;
  std::size_t stretch = 0;
  take_cursor_.advance(chunk.elements, [&](const data::Piece& piece, std::int64_t first, std::int64_t elements) {
    const bool placed = places != nullptr && stretch < transport::kPlaces && places[stretch] != transport::kNowhere;
    const bool has_it = placed || (is_root && piece.input == piece.output);
    if (piece.output != nullptr && !has_it) {
      const CopyOut copy = is_broadcast || piece.output != piece.input ? copy_elsewhere : &kernels::copy_ahead;
      around(kept, at, elements, [&](std::int64_t from, std::int64_t count) {
        if (const auto& cast = chunk.stream->cast) {
          kernels::cast(chunk.stream->reduction.dtype, slot + from * width, cast->memory,
                        piece.output + (first + from - at) * cast->width, count);
        } else {
          copy(piece.output + (first + from - at) * width, slot + from * width, count * width);
        }
      });
    }
    at += elements;
    ++stretch;
  });
}

// ---------------------------------------------------------------- sets

core::Topology topology_of_set(const core::Topology& world, const std::vector<int>& members) {
  const auto self = std::lower_bound(members.begin(), members.end(), world.rank);
  KOLO_CHECK(self != members.end() && *self == world.rank) << "rank " << world.rank << " is not in the set";
  std::vector<int> node_of;
  node_of.reserve(members.size());
  for (const int member : members) node_of.push_back(world.node_of[static_cast<std::size_t>(member)]);
  return core::make_topology(static_cast<int>(self - members.begin()), node_of, 0);
}

}  // namespace kolo::data::cpu
