// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/cuda_backend.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/fields.hpp"
#include "base/round_up.hpp"
#include "base/thread_name.hpp"
#include "core/reduce_op.hpp"
#include "data/cuda/bell.hpp"
#include "data/cuda/device.hpp"
#include "data/cuda/kernels.hpp"
#include "data/cuda/nccl_carrier.hpp"
#include "data/cuda/staged_carrier.hpp"

namespace kolo::cuda {
namespace {

constexpr std::size_t kTables = 32;
constexpr std::size_t kChunksPerStep = 4096;
/// For how long after something moved it is worth looking again at once: what NCCL does between a group's end and its
/// launch takes some tens of microseconds.
constexpr std::chrono::microseconds kSoon{200};

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

/// " (NVIDIA H200)"; empty where the device does not say, as after a fault.
std::string name_in_brackets(int device) {
  try {
    return " (" + device_info(device).name + ")";
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

/// All that is allocated on the device, in the order in which it may be given back.
class CudaBackend::Equipment {
 public:
  Equipment(HostPlane& plane, const CudaBackendOptions& options, int device)
      : info(device_info(device)), bell(options.ring), tables(kTables, kChunksPerStep), unpacked(options.slots) {
    if (!options.staged && options.size > 1) tenancy.emplace(options.tenants, info.uuid);
    load_kernels();
    if (options.staged) {
      carrier = std::make_unique<StagedCarrier>(plane, options.slots, options.slot_bytes, bell);
    } else {
      auto made = std::make_unique<NcclCarrier>(options.slots, options.slot_bytes, options.patience);
      nccl = made.get();
      carrier = std::move(made);
    }
  }

  const DeviceInfo info;
  std::optional<Tenants::Tenancy> tenancy;  // of one who waits for peers there
  OwnStream pack;
  OwnStream unpack;
  Bell bell;
  Tables tables;
  std::vector<Event> unpacked;  // by slot
  std::unique_ptr<Carrier> carrier;
  NcclCarrier* nccl = nullptr;  // the carrier, where it is NCCL
};

struct CudaBackend::OpenJob {
  data::Job* job = nullptr;
  std::size_t planned_runs = 0;
  bool planned = false;
  std::optional<StepPlanner> planner;
  std::vector<Step> steps;
  std::size_t packed_steps = 0;
  std::shared_ptr<const PooledEvent> end;  // recorded behind the last unpack
  // An uneven run, while the ranks tell each other about it.
  std::optional<Uneven> uneven;
  Status refusal;
};

struct CudaBackend::Flight {
  OpenJob* open = nullptr;
  Load load;
  Table* table = nullptr;
  bool last = false;
  bool under_way = false;
};

std::size_t slot_bytes_for(std::int64_t fusion_threshold_bytes, int size, bool staged) noexcept {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20;
  constexpr std::int64_t kStaged = std::int64_t{2} << 20;
  constexpr std::int64_t kGaps = std::int64_t{64} << 10;
  const std::int64_t whole = std::max(staged ? kStaged : fusion_threshold_bytes, kLeast) + kGaps;
  // Gathers give every rank a share of a slot.
  const std::int64_t shares = static_cast<std::int64_t>(size) * 1024;
  const auto bytes = static_cast<std::size_t>(std::max(whole, shares));
  return base::round_up(bytes, kSlotAlignment);
}

CudaBackend::CudaBackend(CudaBackendOptions options, std::unique_ptr<data::Backend> plane)
    : options_(std::move(options)), plane_(std::move(plane)), exchange_(plane_, options_.size) {}

CudaBackend::~CudaBackend() { close(); }

// ---------------------------------------------------------------- callers' threads

void CudaBackend::choose(int device, const char* how) {
  if (!count_) count_ = count_devices();
  if (count_->devices == 0) {
    throw Error(ErrorCode::unsupported, "there is no CUDA device: " + count_->why);
  }
  if (device_ >= 0 && device == device_) return;
  if (device_ >= 0) {
    throw Error(ErrorCode::unsupported, "this rank uses cuda:" + std::to_string(device_) + ", which " + chosen_by_ +
                                            " chose; one rank uses one device");
  }
  if (device < 0 || device >= count_->devices) {
    throw Error(ErrorCode::unsupported, "there is no such CUDA device: " + std::to_string(count_->devices) +
                                            (count_->devices == 1 ? " is visible" : " are visible"));
  }
  events_ = std::make_shared<EventPool>(device);
  chosen_by_ = how;
  device_ = device;
}

/// Which of the visible devices is this rank's; -1 when there are more ranks than devices. One device: the launcher
/// gave each rank its own, or there is no other. Whether two ranks got the same one is seen when they meet.
int CudaBackend::turn(int devices) const noexcept {
  if (devices > 1 && options_.machine_rank >= devices && !options_.share_device) return -1;
  return options_.machine_rank % devices;
}

int CudaBackend::bind() {
  const base::MutexLock lock(mutex_);
  if (device_ >= 0) return device_;
  if (!count_) count_ = count_devices();
  const int devices = std::max(count_->devices, 1);
  const int device = turn(devices);
  if (device < 0) {
    throw Error(ErrorCode::unsupported, "rank " + std::to_string(options_.machine_rank) +
                                            " of this machine has no device: only " + std::to_string(devices) +
                                            " are visible; KOLO_SHARE_DEVICE=1 lets ranks share them");
  }
  choose(device, "kolo::cuda::bind");
  return device_;
}

void CudaBackend::check_usable(Device device, const core::Signature& signature) {
  {
    const base::MutexLock lock(mutex_);
    choose(device.index, "its first tensor");
  }
  if (options_.staged || !core::traits_of(signature.kind).reduces) return;
  for (const core::TensorSignature& tensor : signature.tensors) {
    const bool by_min_or_max = tensor.dtype == DType::boolean && signature.op != ReduceOp::bit_xor;
    if (core::is_bitwise(signature.op) && !by_min_or_max) {
      throw Error(ErrorCode::unsupported, "NCCL has no " + std::string(to_string(signature.op)) + " of " +
                                              std::string(to_string(tensor.dtype)) +
                                              "; use KOLO_GPU_BACKEND=staged, which reduces on the CPU");
    }
    if (nccl_reduces(tensor.dtype)) continue;
    const std::string type(to_string(tensor.dtype));
    throw Error(ErrorCode::unsupported, "NCCL cannot reduce " + type +
                                            "; use a wider integer, or KOLO_GPU_BACKEND=staged, which reduces on the "
                                            "CPU");
  }
}

data::DeviceEventPtr CudaBackend::record(Device device, Stream stream) {
  const DeviceGuard guard(device.index);
  refuse_capture(native(stream));
  std::shared_ptr<EventPool> pool;
  {
    const base::MutexLock lock(mutex_);
    pool = events_;
  }
  std::shared_ptr<const PooledEvent> event = pool->take();
  event->event().record(native(stream));
  return event;
}

std::shared_ptr<data::DeviceRegion> CudaBackend::ask_region(std::uint16_t number, std::size_t bytes) {
  const base::MutexLock lock(mutex_);
  KOLO_CHECK(device_ >= 0) << "check_usable comes first";
  regions_.push_back({std::make_shared<Region>(device_, number, bytes)});
  regions_asked_.store(true);
  return regions_.back().region;
}

void CudaBackend::retire(const data::DeviceRegion& region, bool release) noexcept {
  const base::MutexLock lock(mutex_);
  for (KnownRegion& known : regions_) {
    if (known.region.get() != &region) continue;
    known.retired = true;
    known.released = release;
    if (release) regions_released_.store(true);
  }
}

std::uint64_t CudaBackend::place_of(const std::byte* data, std::size_t bytes) const {
  const base::MutexLock lock(mutex_);
  for (const KnownRegion& known : regions_) {
    const std::uint64_t place = known.retired ? 0 : known.region->place_of(data, bytes);
    if (place != 0) return place;
  }
  return 0;
}

data::DeviceUsage CudaBackend::usage() const {
  data::DeviceUsage usage;
  usage.batches = counters_.batches;
  usage.steps = counters_.steps;
  usage.bytes_packed = counters_.bytes_packed;
  usage.bytes_in_place = counters_.bytes_in_place;
  usage.collective_calls = counters_.collective_calls;
  usage.slot_bytes = counters_.slot_bytes;
  usage.communicators = counters_.communicators;
  const base::MutexLock lock(mutex_);
  for (const KnownRegion& known : regions_) usage.arena_bytes += known.region->is_there() ? known.region->bytes() : 0;
  return usage;
}

std::string CudaBackend::describe() const {
  const data::DeviceUsage used = usage();
  const base::MutexLock lock(mutex_);
  const DeviceCount count = count_ ? *count_ : count_devices();
  if (count.devices == 0) return "no CUDA device: " + count.why;
  const int device = device_ >= 0 ? device_ : turn(count.devices);
  std::string text =
      device < 0 ? "no device for this rank" : "cuda:" + std::to_string(device) + name_in_brackets(device);
  text +=
      " of " + std::to_string(count.devices) + " visible, " + (used.slot_bytes > 0 ? "in use: " : "not in use yet: ");
  text += (options_.staged ? "pinned memory and the CPU" : "NCCL " + nccl_version()) + ", " +
          std::to_string(options_.slots) + " slots of " + std::to_string(options_.slot_bytes >> 10) + " KiB";
  if (!options_.staged) text += ", tensors from " + std::to_string(options_.direct_bytes >> 10) + " KiB in place";
  if (used.arena_bytes > 0) text += ", arenas of " + std::to_string(used.arena_bytes >> 10) + " KiB";
  return text;
}

// ---------------------------------------------------------------- the beginning

void CudaBackend::start(data::Job& job) {
  auto open = std::make_unique<OpenJob>();
  open->job = &job;
  jobs_.push_back(std::move(open));
}

/// Everything that a rank needs for itself, and what it says to the others. On a thread of its own.
void CudaBackend::equip() noexcept {
  base::set_thread_name("kolo-equip");
  try {
    const DeviceGuard guard(chosen_device());
    auto made = std::make_unique<Equipment>(plane_, options_, chosen_device());
    std::string id;
    if (!options_.staged && options_.rank == 0) {
      const UniqueId unique = make_unique_id();
      id.assign(unique.begin(), unique.end());
    }
    const bool shares = made->tenancy && !made->tenancy->is_first();
    mine_ = {"", made->info.uuid, id, shares ? "shares" : "", ""};
    equipment_ = std::move(made);
  } catch (const std::exception& error) {
    const auto* const own = dynamic_cast<const Error*>(&error);
    const bool lacks_memory = own != nullptr ? own->code() == ErrorCode::out_of_memory
                                             : dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    mine_ = {own != nullptr ? own->status().message() : error.what(), "", "", "", lacks_memory ? "memory" : ""};
  }
  equipped_.store(true, std::memory_order_release);
  options_.ring();
}

bool CudaBackend::begin() {
  if (state_ == State::unused) {
    try {
      equipping_ = std::thread([this] { equip(); });
    } catch (const std::system_error& error) {
      throw Error(ErrorCode::transport,
                  std::string("the thread that prepares the GPU cannot be started: ") + error.what());
    }
    state_ = State::equipping;
    return true;
  }
  if (state_ == State::equipping) {
    if (!equipped_.load(std::memory_order_acquire)) return false;
    equipping_.join();
    if (equipment_) counters_.slot_bytes = options_.slots * options_.slot_bytes;
    exchange_.start(base::join_fields(mine_));
    state_ = State::meeting;
    return true;
  }
  if (state_ == State::meeting) return exchange_.done() && meet();
  if (!equipment_->nccl->connected()) return false;
  state_ = State::ready;
  return true;
}

/// Whether the job can use its GPUs, from what all ranks have said: the same answer everywhere.
Status CudaBackend::judge(const std::vector<Said>& said) const {
  const auto of = [](std::size_t rank) { return "rank " + std::to_string(rank) + " cannot use its GPU: "; };
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    KOLO_CHECK(said[rank].size() == 5);
    if (said[rank][0].empty()) continue;
    return Status(said[rank][4].empty() ? ErrorCode::unsupported : ErrorCode::out_of_memory, of(rank) + said[rank][0]);
  }
  if (options_.share_device) return {};
  for (std::size_t a = 0; a < said.size(); ++a) {
    for (std::size_t b = a + 1; b < said.size(); ++b) {
      if (said[a][1] != said[b][1]) continue;
      return Status(ErrorCode::unsupported, "ranks " + std::to_string(a) + " and " + std::to_string(b) +
                                                " use the same GPU: give each rank one of its own (kolo::cuda::bind "
                                                "does), or set KOLO_SHARE_DEVICE=1");
    }
  }
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank][3].empty()) continue;
    return Status(ErrorCode::unsupported,
                  of(rank) +
                      "another context of its process uses it by NCCL, and nothing orders the two. Shut that context "
                      "down first, or set KOLO_GPU_BACKEND=staged for one of them, or KOLO_SHARE_DEVICE=1 where the "
                      "program never has collectives of both open at a time");
  }
  return {};
}

bool CudaBackend::meet() {
  std::vector<Said> said;
  for (const std::string& one : exchange_.take()) said.push_back(base::split_fields(one));
  failure_ = judge(said);
  if (!failure_.ok()) {
    state_ = State::failed;
    equipment_.reset();
    counters_.slot_bytes = 0;
    return true;
  }
  if (options_.staged) {
    state_ = State::ready;
    return true;
  }
  UniqueId id{};
  KOLO_CHECK(said.front()[2].size() == id.size());
  std::copy(said.front()[2].begin(), said.front()[2].end(), id.begin());
  equipment_->nccl->connect(id, options_.rank, options_.size);
  counters_.communicators = 1;
  state_ = State::connecting;
  return true;
}

void CudaBackend::fail_open(const Status& status, std::vector<data::Job*>& finished) {
  for (const std::unique_ptr<OpenJob>& open : jobs_) {
    open->job->status = status;
    finished.push_back(open->job);
  }
  jobs_.clear();
}

// ---------------------------------------------------------------- the pipeline

bool CudaBackend::expects_soon() const noexcept {
  const bool carries = std::any_of(flights_.begin(), flights_.end(), [](const Flight& one) { return one.under_way; });
  return (carries || plane_.busy()) && base::now() - moved_at_ < kSoon;
}

data::Progress CudaBackend::progress(std::vector<data::Job*>& finished) {
  if (jobs_.empty()) return data::Progress::idle;
  bool moved = plane_.progress();
  const DeviceGuard guard(chosen_device());
  if (state_ == State::failed) {
    fail_open(failure_, finished);
    return data::Progress::advanced;
  }
  if (state_ != State::ready) {
    moved |= begin();
  } else {
    moved |= serve_regions();
    moved |= plan_one();
    moved |= unpack_one();
    moved |= carry_one();
    moved |= pack_one();
    moved |= finish_one(finished);
    if (!moved) equipment_->carrier->look();
  }
  if (moved) moved_at_ = base::now();
  return moved ? data::Progress::advanced : data::Progress::waiting;
}

/// Allocates what arenas have asked for, when nothing of ours is on the device: batches that are packed already end
/// first, others begin after it.
bool CudaBackend::serve_regions() {
  if (!regions_asked_.load()) return false;
  const bool idle = std::all_of(jobs_.begin(), jobs_.end(), [](const auto& open) { return open->packed_steps == 0; });
  if (!idle) return false;
  std::vector<std::shared_ptr<Region>> asked;
  {
    const base::MutexLock lock(mutex_);
    regions_asked_.store(false);
    for (const KnownRegion& known : regions_) {
      if (!known.region->answered() && !known.retired) asked.push_back(known.region);
    }
  }
  for (const std::shared_ptr<Region>& region : asked) {
    region->allocate(!options_.staged, equipment_->unpack.raw());
    if (region->is_there()) equipment_->carrier->adopt(*region);
  }
  return !asked.empty();
}

/// The arenas that are gone, when no batch is open that might lie there.
void CudaBackend::let_go_of_regions() {
  if (!regions_released_.load()) return;
  std::vector<std::shared_ptr<Region>> released;
  {
    const base::MutexLock lock(mutex_);
    regions_released_.store(false);
    const auto kept = std::stable_partition(regions_.begin(), regions_.end(),
                                            [](const KnownRegion& known) { return !known.released; });
    for (auto known = kept; known != regions_.end(); ++known) released.push_back(std::move(known->region));
    regions_.erase(kept, regions_.end());
  }
  for (const std::shared_ptr<Region>& region : released) equipment_->carrier->forget(*region);
}

/// Plans the first batch that is not planned yet. What ranks must tell each other for it is said when all that was
/// planned before has gone to the CPU's data plane, so that everybody says it at the same place.
bool CudaBackend::plan_one() {
  const auto next = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& open) { return !open->planned; });
  if (next == jobs_.end()) return false;
  OpenJob& open = **next;
  if (!open.planner) {
    StepLimits limits;
    limits.rank = options_.rank;
    limits.size = options_.size;
    limits.slot_bytes = options_.slot_bytes;
    limits.direct = !options_.staged;
    limits.carrier_scales = options_.staged;
    limits.direct_bytes = options_.direct_bytes;
    limits.chunks = kChunksPerStep;
    open.planner.emplace(limits);
  }
  bool moved = false;
  for (; open.planned_runs < open.job->runs.size(); ++open.planned_runs) {
    const data::Run& run = open.job->runs[open.planned_runs];
    for (const data::Piece& piece : run.pieces) {
      if (!open.planner->is_in_arena(run, piece)) continue;
      open.job->bytes_in_place += static_cast<std::uint64_t>(piece.elements) * size_of(run.dtype);
    }
    if (!core::traits_of(run.kind).rows_differ) {
      open.planner->add(run);
    } else if (!plan_uneven(open, run)) {
      return moved;
    }
    moved = true;
  }
  open.steps = open.planner->take();
  if (open.steps.empty()) open.steps.emplace_back();  // tensors without elements: an end, and nothing before it
  open.planned = true;
  return true;
}

/// From what the ranks have said to the bytes from each to each. Returns what `Run::allocate` wants: what comes from
/// each rank, in bytes for an allgather, in rows for an alltoall.
std::vector<std::int64_t> CudaBackend::note_units(const data::Run& run, const std::vector<std::string>& said,
                                                  std::vector<std::int64_t>& bytes) const {
  const bool in_rows = !run.splits.empty();
  const auto size = static_cast<std::size_t>(options_.size);
  const std::int64_t unit = static_cast<std::int64_t>(size_of(run.dtype)) * (in_rows ? run.row_elements : 1);
  std::vector<std::int64_t> parts;
  for (const std::string& one : said) {
    std::vector<std::int64_t> units = numbers_of(one);
    units.resize(size, units.front());
    parts.push_back(units[static_cast<std::size_t>(options_.rank)] * (in_rows ? 1 : unit));
    for (const std::int64_t count : units) bytes.push_back(count * unit);
  }
  return parts;
}

/// True when the run is planned, or has failed.
bool CudaBackend::plan_uneven(OpenJob& open, const data::Run& run) {
  const bool carried_on =
      std::all_of(flights_.begin(), flights_.end(), [](const Flight& one) { return one.under_way; });
  const bool packed_all = std::all_of(jobs_.begin(), jobs_.end(), [&](const auto& other) {
    return !other->planned || other->packed_steps == other->steps.size();
  });
  if (!exchange_.started()) {
    if (options_.staged && !(carried_on && packed_all)) return false;
    // How many units it has for everybody, or for each: elements, or rows.
    std::vector<std::int64_t> units{run.elements};
    if (!run.splits.empty()) units.assign(run.splits.begin(), run.splits.end());
    exchange_.start(number_bytes(units));
    return false;
  }
  if (!exchange_.done()) return false;
  const std::vector<std::string> said = exchange_.take();
  if (!open.uneven) {  // everybody's length; now whether everybody has room for the result
    open.uneven.emplace();
    const std::vector<std::int64_t> parts = note_units(run, said, open.uneven->bytes);
    open.refusal = Status();
    try {
      open.uneven->output = run.allocate(parts);
    } catch (const Error& error) {
      open.refusal = error.status();
    }
    exchange_.start(open.refusal.message());
    return false;
  }
  const auto bad = std::find_if(said.begin(), said.end(), [](const std::string& one) { return !one.empty(); });
  if (bad == said.end()) {
    open.planner->add(run, &*open.uneven);
  } else if (!open.refusal.ok()) {
    open.job->status = open.refusal;
  } else {
    open.job->status = Status(ErrorCode::invalid_argument,
                              "rank " + std::to_string(bad - said.begin()) + " has no room for the result: " + *bad);
  }
  open.uneven.reset();
  return true;
}

bool CudaBackend::pack_one() {
  if (flights_.size() == options_.slots) return false;
  const auto next = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& open) {
    return !open->planned || open->packed_steps < open->steps.size();
  });
  if (next == jobs_.end() || !(*next)->planned) return false;
  OpenJob& open = **next;
  if (open.packed_steps == 0 && regions_asked_.load()) return false;
  Equipment& with = *equipment_;
  const Step& step = open.steps[open.packed_steps];
  Flight flight;
  if (!step.segments.empty()) {
    flight.table = with.tables.find(step.segments, with.pack.raw());
    if (flight.table == nullptr) return false;
  }
  if (open.packed_steps == 0) {
    for (const data::DeviceEventPtr& ready : open.job->ready) {
      static_cast<const PooledEvent&>(*ready).event().hold_back(with.pack.raw());
    }
    open.job->ready.clear();
  }
  flight.open = &open;
  flight.load.set = open.job->set;
  flight.load.step = &step;
  flight.load.slot = packed_ % options_.slots;
  flight.load.memory = with.carrier->slot(flight.load.slot);
  flight.last = ++open.packed_steps == open.steps.size();
  ++packed_;
  with.unpacked[flight.load.slot].hold_back(with.pack.raw());
  if (step.packs()) {
    const Move move{flight.table->chunks(), flight.table->count(), Direction::pack, flight.load.memory};
    launch(move, kernels::blocks_for(move.count, with.info.processors), with.pack.raw());
  }
  with.carrier->collect(flight.load, with.pack);
  count(step);
  flights_.push_back(flight);
  return true;
}

void CudaBackend::count(const Step& step) {
  ++counters_.steps;
  for (const Segment& segment : step.segments) {
    if (segment.packs) counters_.bytes_packed += segment.bytes;
  }
  counters_.collective_calls += step.calls.size();
  for (const Call& call : step.calls) {
    if (call.to != nullptr) counters_.bytes_in_place += call.count * size_of(call.dtype);
  }
}

bool CudaBackend::carry_one() {
  const auto next = std::find_if(flights_.begin(), flights_.end(), [](const Flight& one) { return !one.under_way; });
  if (next == flights_.end() || !equipment_->carrier->may_carry(next->load)) return false;
  equipment_->carrier->carry(next->load);
  next->under_way = true;
  return true;
}

bool CudaBackend::unpack_one() {
  if (flights_.empty() || !flights_.front().under_way) return false;
  Equipment& with = *equipment_;
  const Flight flight = flights_.front();
  if (!with.carrier->carried(flight.load)) return false;
  with.carrier->deliver(flight.load, with.unpack);
  if (flight.load.step->unpacks()) {
    const Move move{flight.table->chunks(), flight.table->count(), Direction::unpack, flight.load.memory};
    launch(move, kernels::blocks_for(move.count, with.info.processors), with.unpack.raw());
  }
  with.unpacked[flight.load.slot].record(with.unpack.raw());
  if (flight.table != nullptr) flight.table->used(with.unpack.raw());
  flights_.pop_front();
  if (flight.last) enqueue_end(*flight.open);
  return true;
}

void CudaBackend::enqueue_end(OpenJob& open) {
  open.end = chosen_events().take();
  open.end->event().record(equipment_->unpack.raw());
  ++counters_.batches;
  enqueued_(*open.job, open.end);
  equipment_->bell.ring_behind(open.end->event());
}

bool CudaBackend::finish_one(std::vector<data::Job*>& finished) {
  if (jobs_.empty() || !jobs_.front()->end || !jobs_.front()->end->event().reached()) return false;
  finished.push_back(jobs_.front()->job);
  jobs_.pop_front();
  if (jobs_.empty()) let_go_of_regions();
  return true;
}

// ---------------------------------------------------------------- the end

/// Returns when nothing runs on our streams any more.
void CudaBackend::run_dry() noexcept {
  try {
    const DeviceGuard guard(chosen_device());
    const Equipment& with = *equipment_;
    for (const OwnStream* stream : {&with.pack, &with.unpack, &with.bell.stream()}) stream->synchronize();
  } catch (const Error&) {
    // The device has failed: it runs nothing any more, either.
  }
}

void CudaBackend::abort() noexcept {
  plane_.abort();
  flights_.clear();
  jobs_.clear();
  if (state_ == State::equipping) return;  // nothing is on the device; `close` waits for what is being made
  if (!equipment_) return;
  std::optional<DeviceGuard> guard;
  try {
    guard.emplace(chosen_device());
  } catch (const Error&) {
    // The device has failed: there is nothing that a guard would help against.
  }
  equipment_->carrier->abort();
  run_dry();
}

void CudaBackend::close() noexcept {
  if (state_ == State::closed) return;
  if (equipping_.joinable()) equipping_.join();
  if (equipment_) {
    run_dry();
    try {
      const DeviceGuard guard(chosen_device());
      if (!equipment_->carrier->leave()) equipment_->carrier->abort();
      equipment_.reset();
    } catch (const Error&) {
      equipment_->carrier->abort();
      equipment_.reset();
    }
  }
  state_ = State::closed;
  std::vector<KnownRegion> regions;  // whose memory may go with them, without the lock
  const base::MutexLock lock(mutex_);
  regions.swap(regions_);
}

}  // namespace kolo::cuda
