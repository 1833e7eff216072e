// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/cuda_backend.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/fields.hpp"
#include "base/machine.hpp"
#include "base/thread.hpp"
#include "data/cuda/copies.hpp"
#include "data/cuda/device.hpp"
#include "data/cuda/equipment.hpp"
#include "data/cuda/kernels.hpp"
#include "data/cuda/open_job.hpp"

namespace kolo::cuda {
namespace {

/// For how long after something moved it is worth looking again at once: what is waited for then, a call that the
/// worker makes or a word that another rank says over the set's data plane, mostly comes within some tens of
/// microseconds.
constexpr std::chrono::microseconds kSoon{200};
/// How many batches the device is given before one of them is over. A stream of CUDA's takes some 1000 launches, events
/// and waits, of which a batch is a few; then the call blocks. (Each set may have KOLO_OPEN_BATCHES of them.)
constexpr std::size_t kMostGiven = 32;
/// A batch that packs and unpacks no more than this has all its work on one stream: to change between streams three
/// times takes longer than what it could overlap with.
constexpr std::uint64_t kOneStreamBytes = std::uint64_t{1} << 20;

/// So has one that is reduced where it lies, and divided there: its portions have nothing to overlap with each other.
/// The same on every rank.
bool is_for_one_stream(const std::vector<Portion>& portions) {
  std::uint64_t bytes = 0;
  for (const Portion& portion : portions) bytes += portion.moved_bytes;
  const bool packs_nothing =
      std::all_of(portions.begin(), portions.end(), [](const Portion& portion) { return portion.buffer_bytes == 0; });
  return bytes <= kOneStreamBytes || packs_nothing;
}

/// For comparisons.
cudaStream_t raw_or_null(const LateStream& stream) noexcept {
  return stream.if_made() != nullptr ? stream.if_made()->raw() : nullptr;
}

std::string number_bytes(const std::vector<std::int64_t>& numbers) {
  std::string bytes(numbers.size() * sizeof(std::int64_t), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<std::int64_t> numbers_of(const std::string& bytes) {
  std::vector<std::int64_t> numbers(bytes.size() / sizeof(std::int64_t));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

/// What a rank says of a run: how many units it has for everybody, or for each rank; elements, or rows.
std::vector<std::int64_t> units_of(const data::Run& run) {
  if (run.splits.empty()) return {run.elements};
  return {run.splits.begin(), run.splits.end()};
}

/// From what the ranks have said of a run to the bytes from each to each. Returns what `Run::allocate` wants: what
/// comes from each rank, in bytes for an allgather, in rows for an alltoall. `at`: where in what is said; moved on.
std::vector<std::int64_t> note_units(const data::Run& run, int rank, const std::vector<std::vector<std::int64_t>>& said,
                                     std::size_t& at, std::vector<std::int64_t>& bytes) {
  const bool in_rows = !run.splits.empty();
  const std::int64_t unit = static_cast<std::int64_t>(size_of(run.dtype)) * (in_rows ? run.row_elements : 1);
  const auto units = [&, begin = at](const std::vector<std::int64_t>& one, std::size_t to) {
    return one[begin + (in_rows ? to : 0)];
  };
  std::vector<std::int64_t> parts;
  for (const std::vector<std::int64_t>& one : said) {
    parts.push_back(units(one, static_cast<std::size_t>(rank)) * (in_rows ? 1 : unit));
    for (std::size_t to = 0; to < said.size(); ++to) bytes.push_back(units(one, to) * unit);
  }
  at += in_rows ? said.size() : 1;
  return parts;
}

/// Why a rank has no room for the results, by run; nothing: it has room for all.
std::string refusals_of(Span<const data::Run> runs) {
  const auto failed = [](const data::Run& run) { return !run.status.ok(); };
  if (std::none_of(runs.begin(), runs.end(), failed)) return {};
  std::vector<std::string> refusals;
  for (const data::Run& run : runs) refusals.push_back(run.status.message());
  return base::join_fields(refusals);
}

}  // namespace

std::size_t buffer_bytes_for(std::int64_t fusion_threshold_bytes, int size, bool staged) noexcept {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20;
  constexpr std::int64_t kStaged = std::int64_t{2} << 20;
  constexpr std::int64_t kGaps = std::int64_t{64} << 10;
  const std::int64_t whole = std::max(staged ? kStaged : fusion_threshold_bytes, kLeast) + kGaps;
  // Gathers give every rank a share of a buffer.
  const std::int64_t shares = static_cast<std::int64_t>(size) * 1024;
  const auto bytes = static_cast<std::size_t>(std::max(whole, shares));
  return base::round_up(bytes, kBufferAlignment);
}

CudaBackend::CudaBackend(CudaBackendOptions options, data::DeviceSet world)
    : options_(std::move(options)), world_size_(world.size),
      memory_(std::make_shared<MemoryLimit>(options_.memory_limit)),
      device_(options_.machine_rank, options_.share_device),
      beginning_(options_, world_size_, memory_, device_, counters_), copies_(std::make_unique<Copies>(*this)) {
  add_set(std::move(world));
}

CudaBackend::~CudaBackend() { close(); }

// ---------------------------------------------------------------- sets

void CudaBackend::add_set(data::DeviceSet set) {
  const core::SetId number = set.number;
  sets_.emplace(number, std::make_shared<SetOnDevice>(std::move(set)));
}

bool CudaBackend::remove_set(data::Job& end) {
  const auto found = sets_.find(end.set);
  KOLO_CHECK(found != sets_.end()) << "process set " << end.set;
  const std::shared_ptr<SetOnDevice> set = std::move(found->second);
  sets_.erase(found);
  set->exchange.reset();
  set->plane.reset();
  if (set->link == nullptr) return false;
  auto open = std::make_unique<OpenJob>();
  open->job = &end;
  open->set = set;
  open->ends_set = true;
  jobs_.push_back(std::move(open));
  return true;
}

/// Brings the set of the first batch that is not planned further on its way, as soon as that batch is the first of all:
/// then nothing of ours is on the device.
bool CudaBackend::make_ready(OpenJob& open) {
  if (jobs_.front().get() != &open) return false;
  SetOnDevice& set = *open.set;
  if (set.stage == SetOnDevice::Stage::failed) {
    open.job->status = set.failure;
    open.planned = true;
    open.over = true;
    return true;
  }
  const bool moved = beginning_.move_on(set);
  if (set.stage == SetOnDevice::Stage::failed) let_go_of_equipment();
  return moved;
}

/// Unless a set uses it, or one that was dropped has yet to end its communicator, or a message uses it. The next one
/// that asks for it tries again.
void CudaBackend::let_go_of_equipment() noexcept {
  const bool used = std::any_of(sets_.begin(), sets_.end(),
                                [](const auto& set) { return set.second->stage == SetOnDevice::Stage::ready; });
  const bool ends = std::any_of(jobs_.begin(), jobs_.end(), [](const auto& open) { return open->ends_set; });
  if (used || ends || copies_->is_busy()) return;
  beginning_.let_go();
  counters_.buffer_bytes = 0;
}

bool CudaBackend::end_set(OpenJob& open) {
  if (jobs_.front().get() != &open || !beginning_.equipment()->nccl->end(*open.set->link)) return false;
  --counters_.communicators;
  open.planned = true;
  open.over = true;
  return true;
}

// ---------------------------------------------------------------- the pipeline

void CudaBackend::start(data::Job& job) {
  beginning_.choose_if_absent(job.is_absent);
  auto open = std::make_unique<OpenJob>();
  open->job = &job;
  open->set = sets_.at(job.set);
  jobs_.push_back(std::move(open));
}

data::DeviceCopies& CudaBackend::copies() noexcept { return *copies_; }

bool CudaBackend::expects_soon() const noexcept {
  const bool carries = std::any_of(flights_.begin(), flights_.end(), [](const Flight& one) { return one.under_way; });
  const bool talks = std::any_of(jobs_.begin(), jobs_.end(),
                                 [](const auto& open) { return open->set->plane && open->set->plane->busy(); });
  const bool connects =
      !jobs_.empty() && (jobs_.front()->ends_set || jobs_.front()->set->stage == SetOnDevice::Stage::connecting);
  return (carries || talks || connects) && base::now() - moved_at_ < kSoon;
}

bool CudaBackend::move_planes() {
  bool moved = false;
  const SetOnDevice* last = nullptr;
  for (const std::unique_ptr<OpenJob>& open : jobs_) {
    if (open->set.get() != last && open->set->plane) moved |= open->set->plane->progress();
    last = open->set.get();
  }
  return moved;
}

data::Progress CudaBackend::progress(std::vector<data::Job*>& finished) {
  if (jobs_.empty()) return data::Progress::idle;
  const TurnOfDriver turn(this);
  bool moved = move_planes();
  std::optional<DeviceGuard> guard;
  if (beginning_.has_device()) guard.emplace(*device_.context());
  moved |= serve_regions();
  moved |= plan_one();
  moved |= pack_one();  // one portion passes through all of it, where nothing has to be waited for
  moved |= carry_one();
  moved |= unpack_one();
  moved |= finish_one(finished);
  if (Equipment* const with = beginning_.equipment(); !moved && with != nullptr) with->carrier->look();
  if (moved) moved_at_ = base::now();
  return moved ? data::Progress::advanced : data::Progress::waiting;
}

/// Allocates what arenas have asked for, when nothing of ours is on the device: batches that are packed already end
/// first, others begin after it.
bool CudaBackend::serve_regions() {
  const OpenJob& first = *jobs_.front();
  if (!regions_.are_asked() || first.set->stage != SetOnDevice::Stage::ready || first.ends_set) return false;
  const bool idle =
      std::all_of(jobs_.begin(), jobs_.end(), [](const auto& open) { return open->packed_portions == 0; });
  if (!idle) return false;
  const Equipment& with = *beginning_.equipment();
  const std::vector<std::shared_ptr<Region>> asked = regions_.take_asked();
  for (const std::shared_ptr<Region>& region : asked) {
    region->allocate(!options_.staged, with.unpack.get().raw());
    if (region->is_there()) with.carrier->adopt(*region);
  }
  with.unpack.get().synchronize();  // not every batch ends behind this stream
  return !asked.empty();
}

bool CudaBackend::plan_one() {
  const auto next = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& open) { return !open->planned; });
  if (next == jobs_.end()) return false;
  OpenJob& open = **next;
  if (open.ends_set) return end_set(open);
  return open.set->stage == SetOnDevice::Stage::ready ? plan(open) : make_ready(open);
}

PortionLimits CudaBackend::limits_of(const SetOnDevice& set, const data::Job& job) const noexcept {
  PortionLimits limits;
  limits.rank = set.is.rank;
  limits.size = set.is.size;
  limits.buffer_bytes = options_.buffer_bytes;
  limits.direct = !options_.staged && !job.some_are_absent;
  limits.some_are_absent = job.some_are_absent;
  limits.is_absent = job.is_absent;
  limits.carrier_scales = options_.staged;
  limits.direct_bytes = options_.direct_bytes;
  limits.chunks = kChunksPerPortion;
  return limits;
}

std::string CudaBackend::explain_route(const data::Job& job, const data::Run& run, const data::Piece& piece) {
  return "on cuda:" + std::to_string(device_.index()) + " by " + (options_.staged ? "pinned memory" : "NCCL") + ", " +
         cuda::explain_route(PortionPlanner(limits_of(*sets_.at(job.set), job)), run, piece);
}

/// Plans the first batch that is not planned yet. What ranks must tell each other for it is said when all that was
/// planned before has gone to the CPU's data plane, so that everybody says it at the same place.
bool CudaBackend::plan(OpenJob& open) {
  if (!open.planner) open.planner.emplace(limits_of(*open.set, *open.job));
  bool moved = false;
  std::vector<data::Run>& runs = open.job->runs;
  while (open.planned_runs < runs.size()) {
    data::Run& run = runs[open.planned_runs];
    for (const data::Piece& piece : run.pieces) {
      if (!open.planner->is_in_arena(run, piece)) continue;
      open.job->bytes_in_place += static_cast<std::uint64_t>(piece.elements) * size_of(run.dtype);
    }
    if (!core::traits_of(run.kind).rows_differ) {
      open.planner->add(run);
      ++open.planned_runs;
    } else if (!run.received_splits.empty() && open.planner->limits().direct) {
      plan_known(open, run);
      ++open.planned_runs;
    } else {
      std::size_t end = open.planned_runs + 1;
      while (end < runs.size() && runs[end].kind == run.kind) ++end;
      if (!plan_uneven(open, end)) return moved;
    }
    moved = true;
  }
  open.portions = open.planner->take();
  if (open.portions.empty()) open.portions.emplace_back();  // tensors without elements: an end, and nothing before it
  open.alone = !options_.staged && is_for_one_stream(open.portions);
  open.planned = true;
  return true;
}

/// Of an exchange whose ranks know what comes from each other: nobody has to be asked.
void CudaBackend::plan_known(OpenJob& open, data::Run& run) {
  const auto size = static_cast<std::size_t>(open.set->is.size);
  const auto rank = static_cast<std::size_t>(open.set->is.rank);
  const std::int64_t row_bytes = run.row_elements * static_cast<std::int64_t>(size_of(run.dtype));
  Uneven uneven;
  uneven.bytes.resize(size * size);
  for (std::size_t other = 0; other < size; ++other) {
    uneven.bytes[rank * size + other] = run.splits[other] * row_bytes;
    uneven.bytes[other * size + rank] = run.received_splits[other] * row_bytes;
  }
  uneven.output = run.allocate({run.received_splits.begin(), run.received_splits.end()});  // of which the call was sure
  open.planner->add(run, &uneven);
}

/// Of the runs before `end`, whose rows differ by rank: the ranks tell each other once what they bring to all of them,
/// and once for which they have no room. True when they are planned, or have failed.
bool CudaBackend::plan_uneven(OpenJob& open, std::size_t end) {
  const Span<data::Run> runs(&open.job->runs[open.planned_runs], end - open.planned_runs);
  const bool carried_on =
      std::all_of(flights_.begin(), flights_.end(), [](const Flight& one) { return one.under_way; });
  const bool packed_all = std::all_of(jobs_.begin(), jobs_.end(), [&](const auto& other) {
    return !other->planned || other->packed_portions == other->portions.size();
  });
  Exchange& exchange = *open.set->exchange;
  if (!exchange.started()) {
    if (options_.staged && !(carried_on && packed_all)) return false;
    std::vector<std::int64_t> units;
    for (const data::Run& run : runs) {
      for (const std::int64_t count : units_of(run)) units.push_back(count);
    }
    exchange.start(number_bytes(units));
    ++counters_.exchanges;
    return false;
  }
  if (!exchange.done()) return false;
  const std::vector<std::string> said = exchange.take();
  if (open.uneven.empty()) {  // everybody's lengths; now whether everybody has room for the results
    std::vector<std::vector<std::int64_t>> numbers;
    numbers.reserve(said.size());
    for (const std::string& one : said) numbers.push_back(numbers_of(one));
    std::size_t at = 0;
    for (data::Run& run : runs) {
      Uneven& uneven = open.uneven.emplace_back();
      const std::vector<std::int64_t> parts = note_units(run, open.set->is.rank, numbers, at, uneven.bytes);
      try {
        uneven.output = run.allocate(parts);
      } catch (const Error& error) {
        run.status = error.status();
      }
    }
    exchange.start(refusals_of({runs.data(), runs.size()}));
    ++counters_.exchanges;
    return false;
  }
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank].empty()) continue;
    const std::vector<std::string> refusals = base::split_fields(said[rank]);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (refusals[i].empty() || !runs[i].status.ok()) continue;
      runs[i].status =
          Status(ErrorCode::invalid_argument, "rank " + std::to_string(open.set->member(static_cast<int>(rank))) +
                                                  " has no room for the result: " + refusals[i]);
    }
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (runs[i].status.ok()) open.planner->add(runs[i], &open.uneven[i]);
  open.uneven.clear();
  open.planned_runs = end;
  return true;
}

bool CudaBackend::pack_one() {
  if (flights_.size() == options_.buffers) return false;
  const auto next = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& open) {
    return !open->planned || open->packed_portions < open->portions.size();
  });
  if (next == jobs_.end() || !(*next)->planned) return false;
  OpenJob& open = **next;
  if (open.packed_portions == 0 && (regions_.are_asked() || given_ >= kMostGiven)) return false;
  Equipment& with = *beginning_.equipment();
  const Portion& portion = open.portions[open.packed_portions];
  Flight flight;
  flight.open = &open;
  flight.load.set = open.set.get();
  flight.load.portion = &portion;
  flight.load.alone = open.alone;
  // The carrier's stream runs work in the order in which it is given. Earlier portions must have given all of theirs.
  if (open.alone && !(flights_.empty() && with.carrier->may_carry(flight.load))) return false;
  const bool has_buffer = !open.alone || portion.buffer_bytes > 0;
  if (has_buffer && !choose_buffer(flight.load)) return false;
  const OwnStream& on = open.alone ? *with.carrier->stream(flight.load) : with.pack.get();
  if (!portion.segments.empty()) {
    flight.table = with.tables.find(portion.segments, on.raw());
    if (flight.table == nullptr) return false;
  }
  if (open.packed_portions == 0) {
    for (const PooledEvent* const ready : last_points(open.job->ready)) ready->event().hold_back(on.raw());
    open.job->ready.clear();
    if (open.job->timeline != 0 && times_.are_wanted(open.job->timeline, with.messages.to_host.get().raw()))
      open.stamps.resize(open.portions.size());
  }
  if (has_buffer) take_buffer(flight.load, on);
  Stamps* pack_stamps = nullptr;
  if (!open.stamps.empty()) {
    const PortionStamps& stamps = open.stamps[open.packed_portions] = times_.take(portion);
    pack_stamps = stamps.pack.get();
    flight.load.stamps = stamps.carry.get();
    flight.unpack_stamps = stamps.unpack.get();
  }
  flight.last = ++open.packed_portions == open.portions.size();
  if (portion.packs()) {
    const ProfilerRange range("pack", open.job->label);
    const StampsAround stamps(pack_stamps, on.raw());
    const Move move{flight.table->chunks(), flight.table->count(), Direction::pack, flight.load.memory};
    launch(move, kernels::blocks_for(move.count, with.info.processors), on.raw());
  }
  if (!open.alone) with.carrier->collect(flight.load, on);
  counters_.count(portion);
  flights_.push_back(flight);
  return true;
}

/// All ranks of the set use the same one for a portion: NCCL reaches into it. False while another portion has it.
bool CudaBackend::choose_buffer(Load& load) const {
  load.buffer = (load.set->is.number + load.set->buffers_taken) % options_.buffers;  // sets use different ones at first
  return std::none_of(flights_.begin(), flights_.end(), [&load](const Flight& one) {
    return one.load.memory != nullptr && one.load.buffer == load.buffer;
  });
}

/// The stream is held back behind the last use of the buffer, unless that was on this stream, too.
void CudaBackend::take_buffer(Load& load, const OwnStream& on) {
  Equipment& with = *beginning_.equipment();
  ++load.set->buffers_taken;
  load.memory = with.carrier->buffer(load.buffer);
  const OwnStream* const last = std::exchange(with.buffer_users[load.buffer], load.alone ? &on : &with.unpack.get());
  if (last == nullptr || last == &on) return;
  if (last != with.unpack.if_made()) with.unpacked[load.buffer].record(last->raw());
  with.unpacked[load.buffer].hold_back(on.raw());
}

bool CudaBackend::carry_one() {
  const auto next = std::find_if(flights_.begin(), flights_.end(), [](const Flight& one) { return !one.under_way; });
  if (next == flights_.end()) return false;
  // What follows the portion before on the carrier's stream comes first.
  if (next != flights_.begin() && !options_.staged) return false;
  if (!beginning_.equipment()->carrier->may_carry(next->load)) return false;
  const ProfilerRange range("carry", next->open->job->label);
  beginning_.equipment()->carrier->carry(next->load);
  next->under_way = true;
  return true;
}

bool CudaBackend::unpack_one() {
  if (flights_.empty() || !flights_.front().under_way) return false;
  Equipment& with = *beginning_.equipment();
  const Flight flight = flights_.front();
  if (!with.carrier->carried(flight.load)) return false;
  const bool alone = flight.load.alone;
  const OwnStream& on = alone ? *with.carrier->stream(flight.load) : with.unpack.get();
  if (!alone) with.carrier->deliver(flight.load, on);
  if (flight.load.portion->unpacks()) {
    const ProfilerRange range("unpack", flight.open->job->label);
    const StampsAround stamps(flight.unpack_stamps, on.raw());
    const Move move{flight.table->chunks(), flight.table->count(), Direction::unpack, flight.load.memory};
    launch(move, kernels::blocks_for(move.count, with.info.processors), on.raw());
  }
  if (!alone) with.unpacked[flight.load.buffer].record(on.raw());
  if (flight.table != nullptr) flight.table->used(on);
  flights_.pop_front();
  if (flight.last) enqueue_end(*flight.open, on);
  return true;
}

void CudaBackend::enqueue_end(OpenJob& open, const OwnStream& last) {
  const std::shared_ptr<PooledEvent> end = device_.events().take();
  end->mark(last);
  open.end = end;
  ++given_;
  ++counters_.batches;
  enqueued_(*open.job, open.end);
}

void CudaBackend::ring_at_end(const data::Job& job) {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& open) { return open->job == &job; });
  if (found == jobs_.end() || !(*found)->end) return;
  const DeviceGuard guard(*device_.context());
  beginning_.equipment()->bell.ring_behind((*found)->end->event());
}

/// Of each set the oldest batch is looked at.
bool CudaBackend::finish_one(std::vector<data::Job*>& finished) {
  ++looks_;
  const auto is_over = [](const OpenJob& open) { return open.over || (open.end && open.end->event().reached()); };
  const auto done = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& open) {
    return std::exchange(open->set->looked_at, looks_) != looks_ && is_over(*open);
  });
  if (done == jobs_.end()) return false;
  OpenJob& open = **done;
  if (open.job->timeline != 0) {
    if (!open.stamps.empty()) {
      const Equipment& with = *beginning_.equipment();
      open.job->spans = times_.read(open.portions, std::move(open.stamps),
                                    {raw_or_null(with.pack), raw_or_null(with.unpack), options_.staged});
    }
    open.job->untimed = times_.take_failure();
  }
  finished.push_back(open.job);
  if (open.end) --given_;
  jobs_.erase(done);
  if (jobs_.empty()) {  // else one might lie in an arena that is gone
    const Equipment* const with = beginning_.equipment();
    regions_.free_released(with != nullptr ? with->carrier.get() : nullptr, device_.context());
  }
  return true;
}

// ---------------------------------------------------------------- the end

/// Returns when nothing runs on our streams any more.
void CudaBackend::run_dry(const Equipment& with) noexcept {
  try {
    for (const LateStream* stream : {&with.pack, &with.unpack, &with.bell.stream(), &with.messages.to_host,
                                     &with.messages.to_device, &with.messages.bell.stream()}) {
      if (const OwnStream* const made = stream->if_made()) made->synchronize();
    }
  } catch (const Error&) {
    // The device has failed: it runs nothing any more, either.
  }
}

/// Ends what is on the device. False: not within our patience.
bool CudaBackend::end_by_force(const std::shared_ptr<Leftovers>& held) noexcept {
  const auto end = [held] {
    std::optional<DeviceGuard> guard;
    try {
      guard.emplace(*held->context);
    } catch (const Error&) {
      // The device has failed: there is nothing that a guard would help against.
    }
    held->equipment->carrier->abort();
    run_dry(*held->equipment);
  };
  try {
    if (!base::run_within(options_.abort_patience, "the thread that ends the GPU's work", end)) return false;
  } catch (const Error&) {
    end();  // no thread can be had
  }
  host_was_told();
  return true;
}

void CudaBackend::abort() noexcept {
  for (const auto& [number, set] : sets_) {
    if (set->plane) set->plane->abort();
  }
  copies_->forget();
  const auto held = std::make_shared<Leftovers>();
  held->equipment = beginning_.take_equipment();
  held->jobs.swap(jobs_);
  held->flights.swap(flights_);
  given_ = 0;
  if (!held->equipment) return;  // nothing is on the device
  held->context = device_.context();
  held->sets = sets_;
  if (!end_by_force(held)) {
    held->regions = regions_.take_all();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(options_.abort_patience).count();
    options_.leave_behind(held, "NCCL and cuda:" + std::to_string(device_.index()) +
                                    " have not ended their work within " + std::to_string(seconds) +
                                    " s of a fatal error: what they use is left behind, and tensors of open operations "
                                    "may be written until this process ends");
    return;
  }
  std::optional<DeviceGuard> guard;
  try {
    guard.emplace(*device_.context());
  } catch (const Error&) {
    // As above.
  }
  held->flights.clear();
  held->jobs.clear();
  beginning_.put_back(std::move(held->equipment));
}

void CudaBackend::close() noexcept {
  if (std::exchange(closed_, true)) return;
  beginning_.wait();
  if (Equipment* const with = beginning_.equipment()) {
    try {
      const DeviceGuard guard(*device_.context());
      run_dry(*with);
      if (!with->carrier->leave()) with->carrier->abort();
      beginning_.let_go();
      times_ = DeviceTimes();
    } catch (const Error&) {
      with->carrier->abort();
      beginning_.let_go();
    }
  }
  regions_.clear();
}

}  // namespace kolo::cuda
