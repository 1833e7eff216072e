// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/nccl_carrier.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/hash.hpp"

namespace kolo::cuda {
namespace {

/// How many forms of portions a communicator remembers: a job whose steps never repeat must not fill its memory with
/// them.
constexpr std::size_t kMostForms = 4096;
/// How often whoever waits for the worker looks.
constexpr std::chrono::milliseconds kLook{50};
/// How long whoever wants to abort waits for the worker to come back by itself: a call that waits for a dead rank ends
/// when its sockets do.
constexpr std::chrono::seconds kLiveCall{2};

/// By DType; nothing: NCCL has no such type.
constexpr std::array<std::optional<ncclDataType_t>, kDTypeCount> kNcclTypes{
    ncclUint8,  ncclInt8,   std::nullopt, ncclInt32,    ncclInt64,   ncclUint8,  std::nullopt,
    ncclUint32, ncclUint64, ncclFloat16,  ncclBfloat16, ncclFloat32, ncclFloat64};
/// By ReduceOp, but for those that work on bits.
constexpr std::array<ncclRedOp_t, 5> kNcclOps{ncclSum, ncclAvg, ncclMin, ncclMax, ncclProd};

std::optional<ncclDataType_t> nccl_type(DType dtype) noexcept { return kNcclTypes[static_cast<std::size_t>(dtype)]; }

bool is_message(const Call& call) noexcept { return call.kind == Call::Kind::send || call.kind == Call::Kind::receive; }

ncclRedOp_t nccl_op(ReduceOp op) {
  KOLO_CHECK(op <= ReduceOp::product) << "NCCL has no operation " << to_string(op);
  return kNcclOps[static_cast<std::size_t>(op)];
}

}  // namespace

bool nccl_reduces(DType dtype) noexcept { return nccl_type(dtype).has_value(); }

NcclCarrier::NcclCarrier(PrimaryContextPtr context, std::size_t buffers, std::size_t buffer_bytes,
                         std::chrono::nanoseconds patience, const std::function<void()>& ring)
    : context_(std::move(context)), patience_(patience), ring_(ring), packed_(buffers), reduced_(buffers),
      aborter_("kolo-abort", context_), worker_("kolo-nccl", context_) {
  memory_.reserve(buffers);
  for (std::size_t i = 0; i < buffers; ++i) memory_.emplace_back(buffer_bytes);
}

NcclCarrier::~NcclCarrier() { abort(); }

// ---------------------------------------------------------------- the worker

/// One task at a time: it may use everything here but the mutex's, and the driver leaves that alone until it is done.
void NcclCarrier::hand_over(std::function<void()> task) {
  busy_.store(true, std::memory_order_relaxed);
  try {
    worker_.run([this, task = std::move(task)] { work(task); });
  } catch (...) {
    busy_.store(false, std::memory_order_relaxed);
    throw;
  }
}

void NcclCarrier::work(const std::function<void()>& task) noexcept {
  bool begins = false;
  {
    const base::MutexLock lock(mutex_);
    begins = !aborted_;
  }
  if (begins) {
    try {
      task();
    } catch (const Error& error) {
      failure_ = error.status();
    } catch (const std::exception& error) {
      failure_ = Status(ErrorCode::transport, error.what());
    }
  }
  {
    const base::MutexLock lock(mutex_);
    busy_.store(false, std::memory_order_release);
    changed_.notify_all();
  }
  ring_();
}

bool NcclCarrier::is_idle() {
  if (busy_.load(std::memory_order_acquire)) return false;
  if (!failure_.ok()) throw Error(std::exchange(failure_, Status()));
  return true;
}

bool NcclCarrier::is_idle_by(base::Time until) {
  const base::MutexLock lock(mutex_);
  while (busy_.load(std::memory_order_acquire)) {
    if (!changed_.wait_until(mutex_, std::min(until, base::now() + kLook)) && base::now() >= until) return false;
  }
  return true;
}

// ---------------------------------------------------------------- communicators

NcclLink& NcclCarrier::connect(const UniqueId& id, const data::DeviceSet& set) {
  links_.push_back(std::make_shared<NcclLink>());
  NcclLink& link = *links_.back();
  link.members = set.members;
  if (set.is_pair) link.own.emplace();
  link.stream = link.own ? &*link.own : &choose_stream();
  link.since = base::now();
  hand_over([this, &link, id, rank = set.rank, size = set.size] {
    try {
      link.communicator.make(id, size, rank);
      tell_of_memory(link);
    } catch (const Error& error) {
      link.failure = error.status();
      link.communicator.abort();  // so that no other rank waits for this one
    }
  });
  return link;
}

/// The one that fewer communicators have. It need not be the same on all ranks.
const OwnStream& NcclCarrier::choose_stream() const {
  const auto users = [this](const OwnStream& stream) {
    return std::count_if(links_.begin(), links_.end(), [&](const auto& link) { return link->stream == &stream; });
  };
  return users(streams_[1]) < users(streams_[0]) ? streams_[1] : streams_[0];
}

bool NcclCarrier::connected(NcclLink& link) {
  if (link.stage == NcclLink::Stage::making && is_idle()) link.stage = NcclLink::Stage::made;
  return link.stage == NcclLink::Stage::made;
}

void NcclCarrier::give_up(NcclLink& link) {
  link.since = base::now();
  link.is_given_up = true;
  const auto its = std::find_if(links_.begin(), links_.end(), [&](const auto& known) { return known.get() == &link; });
  aborter_.run([held = *its] { held->communicator.abort(); });
}

bool NcclCarrier::end(NcclLink& link, bool in_peace) {
  if (!is_idle()) return false;
  if (link.stage != NcclLink::Stage::ending) {
    link.stage = NcclLink::Stage::ending;
    hand_over([&link, in_peace] {
      if (in_peace) return end_in_peace(link);
      link.regions.clear();
      link.buffers.clear();
      link.communicator.abort();
    });
    return false;
  }
  links_.erase(std::find_if(links_.begin(), links_.end(), [&](const auto& known) { return known.get() == &link; }));
  return true;
}

void NcclCarrier::end_in_peace(NcclLink& link) {
  link.regions.clear();
  link.buffers.clear();
  link.communicator.finalize();
  link.communicator.destroy();
}

/// Tells the communicator of memory that it has not been told of, and that all its ranks have: NCCL may not know of it
/// on some of them.
void NcclCarrier::tell_of_memory(NcclLink& link) {
  while (link.buffers.size() < memory_.size()) {
    link.buffers.push_back(std::make_unique<Registration>(link.communicator, memory_[link.buffers.size()]));
  }
  for (const Region* region : regions_) {
    if (!region->is_shared_by(link.members)) continue;
    std::unique_ptr<Registration>& known = link.regions[region];
    if (!known) known = std::make_unique<Registration>(link.communicator, region->for_nccl());
  }
}

void NcclCarrier::adopt(const Region& region) {
  regions_.push_back(&region);
  regions_are_new_ = true;
}

void NcclCarrier::forget(const Region& region) {
  std::erase(regions_, &region);
  for (const auto& link : links_) link->regions.erase(&region);
}

// ---------------------------------------------------------------- loads

void NcclCarrier::collect(const Load& load, const OwnStream& stream) { packed_[load.buffer].record(stream.raw()); }

bool NcclCarrier::may_carry(const Load& /*load*/) {
  if (!is_idle()) return false;
  if (!std::exchange(regions_are_new_, false)) return true;
  hand_over([this] {
    for (const auto& link : links_) tell_of_memory(*link);
  });
  return false;
}

void NcclCarrier::carry(const Load& load) {
  NcclLink& link = *load.set->link;
  if (link.forms.size() >= kMostForms) link.forms.clear();
  if (load.portion->calls.empty() || !is_new(load)) return give(load);
  hand_over([this, load] { give(load); });
}

/// Notes it. For messages NCCL connects two ranks once, whatever the size, so each of them has a form of its own.
bool NcclCarrier::is_new(const Load& load) {
  std::unordered_set<std::uint64_t>& forms = load.set->link->forms;
  bool is_new = forms.insert(form_of(load)).second;
  for (const Call& call : load.portion->calls) {
    if (is_message(call)) is_new |= forms.insert(form_of(call, load)).second;
  }
  return is_new;
}

bool NcclCarrier::carried(const Load& /*load*/) { return is_idle(); }

/// All of them are asked, whatever the first says: each may have an error to tell of. Of a peer that is lost while a
/// collective runs on the device NCCL tells only who asks.
void NcclCarrier::look() {
  if (!is_idle()) return;  // what the worker waits for ends with that error, too
  std::exception_ptr first;
  for (const auto& link : links_) {
    try {
      link->communicator.look();
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void NcclCarrier::deliver(const Load& load, const OwnStream& stream) {
  reduced_[load.buffer].record(load.set->link->stream->raw());
  reduced_[load.buffer].hold_back(stream.raw());
}

/// Only now is the stream held back behind the pack, when all that was carried before is on it.
void NcclCarrier::give(const Load& load) {
  NcclLink& link = *load.set->link;
  if (!load.alone) packed_[load.buffer].hold_back(link.stream->raw());
  const StampsAround stamps(load.stamps, link.stream->raw());
  const std::vector<Call>& calls = load.portion->calls;
  if (calls.size() == 1) return call(calls.front(), link, load.memory);
  if (calls.empty()) return;
  GroupedCalls group(link.communicator);
  for (const Call& one : calls) call(one, link, load.memory);
  group.end();
}

/// What decides by which connections NCCL carries a portion, but for its messages.
std::uint64_t NcclCarrier::form_of(const Load& load) const noexcept {
  std::uint64_t form = 0;
  for (const Call& call : load.portion->calls) {
    if (!is_message(call)) form = base::hash_hash(form_of(call, load), form);
  }
  return form;
}

/// Of a call: its connections, and which memory of ours they reach into.
std::uint64_t NcclCarrier::form_of(const Call& call, const Load& load) const noexcept {
  std::uint64_t form = 0;
  const auto add = [&form](std::uint64_t value) { form = base::hash_hash(value, form); };
  const auto place_of = [this, &load](const std::byte* data) -> std::uint64_t {
    if (data == nullptr) return load.buffer + 1;
    const bool is_known = std::any_of(regions_.begin(), regions_.end(), [data](const Region* region) {
      const std::byte* const begin = region->for_nccl().data();
      return data >= begin && data < begin + region->bytes();
    });
    return is_known ? reinterpret_cast<std::uintptr_t>(data) : 0;
  };
  add(static_cast<std::uint64_t>(call.kind) << 24U | static_cast<std::uint64_t>(call.dtype) << 16U |
      static_cast<std::uint64_t>(call.op) << 8U | static_cast<std::uint64_t>(call.from == call.to));
  if (!is_message(call)) add(call.count);
  add(static_cast<std::uint64_t>(call.peer));
  if (call.kind != Call::Kind::receive) add(place_of(call.from));
  if (call.kind != Call::Kind::send) add(place_of(call.to));
  return form;
}

void NcclCarrier::call(const Call& call, NcclLink& link, std::byte* buffer) {
  Communicator& communicator = link.communicator;
  const cudaStream_t stream = link.stream->raw();
  const std::byte* from = call.from != nullptr ? call.from : buffer + call.offset;
  std::byte* to = call.to != nullptr ? call.to : buffer + call.offset;
  const std::optional<ncclDataType_t> type = nccl_type(call.dtype);
  KOLO_CHECK(type) << "NCCL has no " << to_string(call.dtype);
  switch (call.kind) {
  case Call::Kind::all_reduce:
    return communicator.all_reduce(from, to, call.count, *type, nccl_op(call.op), stream);
  case Call::Kind::reduce:
    return communicator.reduce(from, to, call.count, *type, nccl_op(call.op), call.peer, stream);
  case Call::Kind::broadcast:
    return communicator.broadcast(from, to, call.count, *type, call.peer, stream);
  case Call::Kind::all_gather:
    return communicator.all_gather(from, to, call.count, *type, stream);
  case Call::Kind::reduce_scatter:
    return communicator.reduce_scatter(from, to, call.count, *type, nccl_op(call.op), stream);
  case Call::Kind::all_to_all:
    return communicator.all_to_all(from, to, call.count, stream);
  case Call::Kind::send:
    return communicator.send(from, call.count, *type, call.peer, stream);
  case Call::Kind::receive:
    return communicator.receive(to, call.count, *type, call.peer, stream);
  }
  KOLO_UNREACHABLE();
}

// ---------------------------------------------------------------- the end

/// To end a communicator NCCL frees memory, which waits for the kernels of the others, too: so each has a thread, and
/// all hear of the end before one waits.
void NcclCarrier::abort_all() noexcept {
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < links_.size(); ++i) {
    try {
      threads.emplace_back([this, &communicator = links_[i]->communicator] {
        try {
          const DeviceGuard guard(*context_);
          communicator.abort();
        } catch (const Error&) {
          communicator.abort();  // the device has failed: there is nothing that a guard would help against
        }
      });
    } catch (const std::exception&) {
      break;  // no thread can be had: one after another, below
    }
  }
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (i == 0 || i > threads.size()) links_[i]->communicator.abort();
  }
  for (std::thread& thread : threads) thread.join();
}

/// NCCL must not free what a call still uses. So the worker has time to come back by itself; a call that is still there
/// then probably waits for a rank, and is ended by what frees nothing. Where NCCL has not made the communicator yet, or
/// cannot do that, the communicator is aborted beside the call: NCCL looks for that where it waits. If it did not know
/// the communicator yet, it is aborted again.
void NcclCarrier::end_live_call() noexcept {
  if (is_idle_by(base::now() + kLiveCall)) return;
  std::vector<Communicator*> others;
  for (const auto& link : links_) {
    if (!link->communicator.revoke()) others.push_back(&link->communicator);
  }
  while (!is_idle_by(base::now() + kLook)) {
    for (Communicator* const communicator : others) communicator->abort();
  }
}

void NcclCarrier::abort() noexcept {
  {
    const base::MutexLock lock(mutex_);
    aborted_ = true;
  }
  end_live_call();
  abort_all();
  failure_ = Status();
  try {
    for (const OwnStream& stream : streams_) stream.synchronize();
    for (const auto& link : links_) {
      if (link->own) link->own->synchronize();
    }
  } catch (const Error&) {
    // The device has failed: it runs nothing any more, either.
  }
  links_.clear();
}

bool NcclCarrier::leave() {
  if (links_.empty()) return true;
  const base::Time until = base::now() + patience_;
  if (!is_idle_by(until)) return false;
  hand_over([this] {
    for (const auto& link : links_) end_in_peace(*link);
  });
  if (!is_idle_by(until) || !is_idle()) return false;
  links_.clear();
  return true;
}

}  // namespace kolo::cuda
