// SPDX-License-Identifier: Apache-2.0
#include "c10d/arena_hook.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "c10d/errors.hpp"

namespace kolo::c10d {
namespace {

/// Memory of the arena, which it keeps.
c10::DataPtr memory_of(std::shared_ptr<GradientArena> arena, void* memory) {
  auto* owner = new std::shared_ptr<GradientArena>(std::move(arena));
  const auto drop = [](void* kept) { delete static_cast<std::shared_ptr<GradientArena>*>(kept); };
  return {memory, owner, drop, at::Device(at::kCPU)};
}

}  // namespace

ArenaHook::ArenaHook(c10::intrusive_ptr<ProcessGroupKolo> group, std::size_t bytes)
    : CppCommHookInterface(std::move(group)),
      arena_(translated("arena_hook", [&] { return std::make_shared<GradientArena>(state_->group(), bytes); })) {}

void ArenaHook::take_in(const at::Tensor& bucket) {
  c10::StorageImpl* storage = bucket.storage().unsafeGetStorageImpl();
  const std::size_t bytes = storage->nbytes();
  if (bytes == 0 || arena_->contains(bucket.data_ptr())) return;
  const Shape shape{static_cast<std::int64_t>(bytes)};
  if (arena_->capacity() - arena_->allocated() < GradientArena::room_for(DType::uint8, shape)) return;
  const TensorView room = arena_->allocate(DType::uint8, shape);
  std::memcpy(room.data(), storage->data(), bytes);
  storage->set_data_ptr(memory_of(arena_, room.data()));
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
