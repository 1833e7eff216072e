// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/beginning.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/cpu.hpp"
#include "base/thread.hpp"
#include "data/cuda/cuda_backend.hpp"
#include "data/cuda/device.hpp"
#include "data/cuda/equipment.hpp"
#include "data/cuda/staged_carrier.hpp"

namespace kolo::cuda {
namespace {

/// Of the largest portions; smaller ones take less.
constexpr std::size_t kTables = 32;

std::string new_id() {
  const UniqueId id = make_unique_id();
  return {id.begin(), id.end()};
}

/// Empty: it has connected.
std::string encode_outcome(const NcclLink& link) {
  return link.failure.ok() ? std::string() : (link.is_given_up ? "w" : "f") + link.failure.message();
}

int place_of_outcome(const std::string& outcome) noexcept {
  return outcome.empty() ? 2 : outcome.front() == 'w' ? 1 : 0;
}

UniqueId id_of(const std::string& bytes) {
  UniqueId id{};
  KOLO_CHECK(bytes.size() == id.size());
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return id;
}

}  // namespace

Equipment::Equipment(const CudaBackendOptions& options, const std::shared_ptr<MemoryLimit>& limit,
                     const PrimaryContextPtr& context, bool has_peers)
    : ring(options.ring), info(device_info(context->device())),
      counted(limit, options.buffers * options.buffer_bytes + Tables::device_bytes(kTables * kChunksPerPortion),
              "what batches need, " + std::to_string(options.buffers) + " fusion buffers of " +
                  std::to_string(options.buffer_bytes) + " bytes and tables,",
              "lower KOLO_FUSION_THRESHOLD or KOLO_GPU_BUFFERS"),
      bell(ring), tables(kTables * kChunksPerPortion), unpacked(options.buffers), buffer_users(options.buffers),
      messages(ring) {
  if (!options.staged && has_peers) tenancy.emplace(options.tenants, info.uuid);
  load_kernels();
  if (options.staged) {
    carrier = std::make_unique<StagedCarrier>(options.buffers, options.buffer_bytes, bell);
  } else {
    auto made = std::make_unique<NcclCarrier>(context, options.buffers, options.buffer_bytes, options.patience, ring);
    nccl = made.get();
    carrier = std::move(made);
  }
}

Beginning::Beginning(const CudaBackendOptions& options, int world_size, std::shared_ptr<MemoryLimit> memory,
                     ChosenDevice& device, DeviceCounters& counters) noexcept
    : options_(options), world_size_(world_size), memory_(std::move(memory)), device_(device), counters_(counters) {}

Beginning::~Beginning() { wait(); }

/// Everything that this rank needs for itself, and what it says to the others. On a thread of its own.
void Beginning::make_equipment(bool brings_id) noexcept {
  base::set_thread_name("kolo-equip");
  try {
    const DeviceGuard guard(*device_.context());
    auto made = std::make_unique<Equipment>(options_, memory_, device_.context(), world_size_ > 1);
    Word word;
    word.uuid = made->info.uuid;
    if (!options_.staged) word.bus = base::system_name() + " " + made->info.bus;
    word.shares = made->tenancy && !made->tenancy->is_first();
    if (brings_id) word.id = new_id();  // the first one takes long
    mine_ = std::move(word);
    equipment_ = std::move(made);
  } catch (const std::exception&) {
    mine_ = problem_of_exception();
  }
  equipped_.store(true, std::memory_order_release);
  options_.ring();
}

void Beginning::choose_if_absent(bool is_absent) {
  no_device_ = Status();
  if (!is_absent) return;
  try {
    device_.choose_in_turn("a collective that ran while it had joined");
  } catch (const Error& error) {
    no_device_ = error.status();
  }
}

bool Beginning::equip(bool brings_id) {
  if (!no_device_.ok()) {
    mine_ = Word();
    mine_.problem = no_device_.message();
    state_ = State::equipped;
    return true;
  }
  if (state_ == State::unused) {
    equipped_.store(false);
    equipping_ =
        base::start_thread("the thread that prepares the GPU", [this, brings_id] { make_equipment(brings_id); });
    state_ = State::equipping;
    return true;
  }
  if (!equipped_.load(std::memory_order_acquire)) return false;
  equipping_.join();
  state_ = State::equipped;
  if (equipment_) counters_.buffer_bytes = options_.buffers * options_.buffer_bytes;
  return true;
}

bool Beginning::move_on(SetOnDevice& set) {
  switch (set.stage) {
  case SetOnDevice::Stage::unused:
    if (!has_tried()) return equip(!options_.staged && set.is.rank == 0);
    set.make_plane();
    set.exchange->start(encode(word_for(set)));
    set.stage = SetOnDevice::Stage::meeting;
    return true;
  case SetOnDevice::Stage::meeting:
    if (!set.exchange->done()) return false;
    meet(set);
    return true;
  case SetOnDevice::Stage::connecting:
    if (!equipment_->nccl->connected(*set.link)) {
      if (base::now() - set.link->since > options_.connecting) equipment_->nccl->give_up(*set.link);
      return false;
    }
    set.exchange->start(encode_outcome(*set.link));
    set.stage = SetOnDevice::Stage::confirming;
    return true;
  case SetOnDevice::Stage::confirming:
    if (!set.exchange->done()) return false;
    confirm(set);
    return true;
  case SetOnDevice::Stage::dropping:
    if (!equipment_->nccl->end(*set.link, /*in_peace=*/false)) return false;
    set.link = nullptr;
    --counters_.communicators;
    set.stage = SetOnDevice::Stage::failed;
    return true;
  case SetOnDevice::Stage::failed:
  case SetOnDevice::Stage::ready:
    break;
  }
  KOLO_UNREACHABLE();
}

Word Beginning::word_for(const SetOnDevice& set) {
  Word word = mine_;
  mine_.id.clear();  // it names one communicator
  if (options_.staged || set.is.rank != 0 || !word.id.empty() || !word.problem.empty()) return word;
  try {
    word.id = new_id();
  } catch (const Error&) {
    return problem_of_exception();
  }
  return word;
}

void Beginning::meet(SetOnDevice& set) {
  std::vector<Word> said;
  for (const std::string& one : set.exchange->take()) said.push_back(decode(one));
  set.failure = judge(set, said, options_.share_device);
  if (!set.failure.ok()) {
    set.stage = SetOnDevice::Stage::failed;
  } else if (options_.staged) {
    set.stage = SetOnDevice::Stage::ready;
  } else {
    set.link = &equipment_->nccl->connect(id_of(said.front().id), set.is);
    ++counters_.communicators;
    set.stage = SetOnDevice::Stage::connecting;
  }
}

/// A set whose ranks have not all connected is as one whose devices cannot be used.
void Beginning::confirm(SetOnDevice& set) {
  const std::vector<std::string> said = set.exchange->take();
  // Rather one that knows why than one that has waited for it.
  const auto failed = std::min_element(said.begin(), said.end(), [](const std::string& a, const std::string& b) {
    return place_of_outcome(a) < place_of_outcome(b);
  });
  if (failed->empty()) {
    set.stage = SetOnDevice::Stage::ready;
    return;
  }
  const int rank = set.member(static_cast<int>(failed - said.begin()));
  set.failure =
      Status(ErrorCode::unsupported,
             "rank " + std::to_string(rank) + " cannot use its GPU together with the others: " + failed->substr(1));
  set.stage = SetOnDevice::Stage::dropping;
}

std::unique_ptr<Equipment> Beginning::take_equipment() noexcept {
  return has_tried() ? std::move(equipment_) : nullptr;
}

void Beginning::put_back(std::unique_ptr<Equipment> equipment) noexcept { equipment_ = std::move(equipment); }

void Beginning::let_go() noexcept {
  equipment_.reset();
  state_ = State::unused;
}

void Beginning::wait() noexcept {
  if (!equipping_.joinable()) return;
  equipping_.join();
  state_ = State::equipped;
}

}  // namespace kolo::cuda
