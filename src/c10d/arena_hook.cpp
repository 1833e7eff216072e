// SPDX-License-Identifier: Apache-2.0
#include "c10d/arena_hook.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>

#include "c10d/errors.hpp"
#include "c10d/streams.hpp"

namespace kolo::c10d {
namespace {

/// Memory of the arena, which it keeps.
c10::DataPtr memory_of(std::shared_ptr<GradientArena> arena, void* memory, at::Device device) {
  auto* owner = new std::shared_ptr<GradientArena>(std::move(arena));
  const auto drop = [](void* kept) { delete static_cast<std::shared_ptr<GradientArena>*>(kept); };
  return {memory, owner, drop, device};
}

Device place_of(at::Device device) { return device.is_cpu() ? cpu() : Device{DeviceKind::cuda, device.index()}; }

}  // namespace

ArenaHook::ArenaHook(c10::intrusive_ptr<ProcessGroupKolo> group, std::size_t bytes, at::Device device)
    : CppCommHookInterface(std::move(group)), device_(device), arena_(translated("arena_hook", [&] {
        return std::make_shared<GradientArena>(state_->group(), bytes, place_of(device));
      })) {}

void ArenaHook::take_in(const at::Tensor& bucket) {
  c10::StorageImpl* storage = bucket.storage().unsafeGetStorageImpl();
  const std::size_t bytes = storage->nbytes();
  if (bytes == 0 || arena_->contains(bucket.data_ptr())) return;
  const Shape shape{static_cast<std::int64_t>(bytes)};
  if (arena_->capacity() - arena_->allocated() < GradientArena::room_for(DType::uint8, shape)) return;
  const TensorView room = arena_->allocate(DType::uint8, shape);
  void* const memory = bucket.storage().data_ptr().get();
  if (device_.is_cpu()) {
    std::memcpy(room.data(), memory, bytes);
  } else {
    const auto bytes_at = [&](void* place) {
      return at::for_blob(place, {static_cast<std::int64_t>(bytes)})
          .options(at::TensorOptions(at::kByte).device(device_))
          .target_device(device_)  // else CUDA is asked where it lies
          .make_tensor();
    };
    bytes_at(room.data()).copy_(bytes_at(memory));
    note_use_on_current_stream(bucket);
  }
  storage->set_data_ptr(memory_of(arena_, room.data(), device_));
}

c10::intrusive_ptr<c10::ivalue::Future> ArenaHook::runHook(::c10d::GradBucket& bucket) {
  at::Tensor& buffer = bucket.getBufferRef();
  ::c10d::AllreduceOptions options;
  if (buffer.is_sparse()) {
    buffer.div_(state_->getSize());  // sparse tensors are summed
  } else {
    translated("arena_hook", [&] { take_in(buffer); });
    options.reduceOp = ::c10d::ReduceOp::AVG;
  }
  std::vector<at::Tensor> tensors{buffer};
  return state_->allreduce(tensors, options)->getFuture();
}

}  // namespace kolo::c10d
