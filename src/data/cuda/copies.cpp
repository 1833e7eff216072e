// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/copies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <kolo/error.hpp>

#include "data/cuda/device.hpp"
#include "data/cuda/equipment.hpp"
#include "data/cuda/events.hpp"

namespace kolo::cuda {
namespace {

using data::DeviceCopy;

const Event& event_of(const data::DeviceEventPtr& event) { return static_cast<const PooledEvent&>(*event).event(); }

/// Once, however much has become known of it.
void tell(DeviceCopy& copy, std::vector<DeviceCopy*>& news) {
  if (std::find(news.begin(), news.end(), &copy) == news.end()) news.push_back(&copy);
}

}  // namespace

CopyEquipment::CopyEquipment(const std::function<void()>& ring) : bell(ring) {
  for (Piece& piece : pieces) piece.memory = PinnedMemory(kPieceBytes);
}

void CudaBackend::Copies::stop(DeviceCopy& copy) {
  copy.stopped = true;
  std::erase(fresh_, &copy);
  std::erase(waiting_, &copy);
  copy.over = !is_under_way(copy);
}

void CudaBackend::Copies::forget() noexcept {
  fresh_.clear();
  waiting_.clear();
  to_host_.clear();
  to_device_.clear();
}

bool CudaBackend::Copies::is_under_way(const DeviceCopy& copy) const noexcept {
  const auto is_its = [&](const Piece* piece) { return piece->copy == &copy; };
  return std::any_of(to_host_.begin(), to_host_.end(), is_its) ||
         std::any_of(to_device_.begin(), to_device_.end(), is_its);
}

bool CudaBackend::Copies::progress(std::vector<DeviceCopy*>& news) {
  if (!is_busy()) return false;
  Equipment* const equipment = backend_.beginning_.equipment();
  if (equipment == nullptr) return make_ready(news);
  const TurnOfDriver turn(&backend_);
  CopyEquipment& with = equipment->messages;
  const DeviceGuard guard(*backend_.device_.context());
  begin_fresh(with);
  bool moved = collect(to_host_, news);
  moved |= collect(to_device_, news);
  moved |= give(with, news);
  return moved;
}

/// The rank has no equipment yet: it gets it, or all copies fail.
bool CudaBackend::Copies::make_ready(std::vector<DeviceCopy*>& news) {
  if (!backend_.beginning_.has_tried()) {
    const bool is_first = !backend_.options_.staged && backend_.sets_.at(core::kGlobalSet)->is.rank == 0;
    return backend_.beginning_.equip(is_first);
  }
  for (DeviceCopy* copy : std::exchange(fresh_, {})) {
    const Word& word = backend_.beginning_.word();
    copy->status = Status(word.lacks_memory ? ErrorCode::out_of_memory : ErrorCode::unsupported,
                          "this rank cannot use its GPU: " + word.problem);
    copy->over = true;
    news.push_back(copy);
  }
  if (backend_.jobs_.empty()) backend_.let_go_of_equipment();  // else its batch tells the others
  return true;
}

/// Has the bell rung when their streams have come to the calls.
void CudaBackend::Copies::begin_fresh(const CopyEquipment& with) {
  for (DeviceCopy* copy : fresh_) {
    if (copy->ready) with.bell.ring_behind(event_of(copy->ready));
    waiting_.push_back(copy);
  }
  fresh_.clear();
}

/// What has been copied.
bool CudaBackend::Copies::collect(std::deque<Piece*>& under_way, std::vector<DeviceCopy*>& news) {
  bool moved = false;
  for (; !under_way.empty() && under_way.front()->copied.reached(); moved = true) {
    Piece& piece = *under_way.front();
    under_way.pop_front();
    DeviceCopy& copy = *std::exchange(piece.copy, nullptr);
    if (!copy.stopped && copy.direction == DeviceCopy::Direction::to_host) {
      host_touches(piece.memory.data(), piece.bytes, false, "a message");
      std::memcpy(copy.on_host + copy.copied, piece.memory.data(), piece.bytes);
    }
    copy.copied += piece.bytes;
    copy.over = copy.copied == (copy.stopped ? copy.given : copy.bytes);
    tell(copy, news);
  }
  return moved;
}

/// Free pieces to the copies that can go on, in the order in which they were started.
bool CudaBackend::Copies::give(CopyEquipment& with, std::vector<DeviceCopy*>& news) {
  bool moved = false;
  auto free = with.pieces.begin();
  std::size_t left = 0;
  for (DeviceCopy* copy : waiting_) {
    const auto find_free = [&] {
      return free = std::find_if(free, with.pieces.end(), [](const Piece& one) { return one.copy == nullptr; });
    };
    if (find_free() != with.pieces.end() && copy->ready && event_of(copy->ready).reached()) copy->ready.reset();
    while (!copy->ready && copy->given < copy->bytes && find_free() != with.pieces.end()) {
      give_piece(with, *copy, *free);
      moved = true;
    }
    if (copy->given < copy->bytes) {
      waiting_[left++] = copy;
    } else {
      tell(*copy, news);
    }
  }
  waiting_.resize(left);
  return moved;
}

void CudaBackend::Copies::give_piece(CopyEquipment& with, DeviceCopy& copy, Piece& piece) {
  const bool to_host = copy.direction == DeviceCopy::Direction::to_host;
  const OwnStream& stream = (to_host ? with.to_host : with.to_device).get();
  std::byte* const pinned = piece.memory.data();
  std::byte* const on_device = copy.on_device + copy.given;
  piece.bytes = static_cast<std::size_t>(std::min<std::uint64_t>(CopyEquipment::kPieceBytes, copy.bytes - copy.given));
  if (to_host) {
    copy_async(pinned, on_device, piece.bytes, stream.raw());
  } else {
    host_touches(pinned, piece.bytes, true, "a message");
    std::memcpy(pinned, copy.on_host + copy.given, piece.bytes);
    copy_async(on_device, pinned, piece.bytes, stream.raw());
  }
  piece.copied.record(stream.raw());
  with.bell.ring_behind(piece.copied);
  piece.copy = &copy;
  copy.given += piece.bytes;
  (to_host ? to_host_ : to_device_).push_back(&piece);
  if (copy.given < copy.bytes) return;
  const std::shared_ptr<PooledEvent> end = backend_.device_.events().take();
  end->mark(stream);
  copy.end = end;
}

}  // namespace kolo::cuda
