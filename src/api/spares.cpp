// SPDX-License-Identifier: Apache-2.0
#include "api/spares.hpp"

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "core/signature.hpp"

namespace kolo::api {
namespace {

using Chunk = std::vector<engine::OperationPtr>;

/// Holds full chunks. No thread waits for it: a thread that finds it locked does without. So it also cannot block the
/// child of a `fork` that came while a thread of the parent held the lock.
class Shelf {
 public:
  /// The oldest chunk; empty: there is none.
  Chunk take() {
    if (!mutex_.try_lock()) return {};
    const base::MutexLock lock(mutex_, std::adopt_lock);
    if (count_ == 0) return {};
    --count_;
    return std::exchange(chunks_[oldest_++ % kMost], {});
  }
  /// Takes the chunk, unless the shelf is full: then the caller still has it.
  void put(Chunk& chunk) {
    if (!mutex_.try_lock()) return;
    const base::MutexLock lock(mutex_, std::adopt_lock);
    if (count_ == kMost) return;
    chunks_[(oldest_ + count_++) % kMost] = std::exchange(chunk, {});
  }

 private:
  static constexpr std::size_t kMost = kMostSpares / kSparesOfChunk;

  base::TryMutex mutex_;
  std::array<Chunk, kMost> chunks_ KOLO_GUARDED_BY(mutex_);
  std::size_t oldest_ KOLO_GUARDED_BY(mutex_) = 0;  // of these
  std::size_t count_ KOLO_GUARDED_BY(mutex_) = 0;
};

/// Exists before the first static object of the program and is never destroyed: threads may end after the last one.
union Lasting {
  constexpr Lasting() : shelf() {}
  ~Lasting() {}  // NOLINT(modernize-use-equals-default): a default one would be deleted
  Shelf shelf;
};
constinit Lasting lasting;

struct Spares {
  Chunk taken;           // from the shelf, or given here
  std::size_t next = 0;  // of these
  Chunk given;
};

/// This thread's; null: it has none yet, or is at its end.
constinit thread_local Spares* mine = nullptr;

struct Keeper {
  Keeper() { mine = &spares; }
  ~Keeper() { mine = nullptr; }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  Spares spares;
};

/// Null at the thread's end.
Spares* begin_thread() {
  static thread_local Keeper keeper;
  return mine;
}

/// The next chunk to take from; whether there is one.
bool refill(Spares& spares) {
  spares.taken = lasting.shelf.take();
  if (spares.taken.empty()) std::swap(spares.taken, spares.given);
  spares.next = 0;
  return !spares.taken.empty();
}

/// Keeps an operation that is over. At the thread's end it keeps nothing: then the caller still has it.
void give(engine::OperationPtr& operation) {
  Spares* const spares = mine != nullptr ? mine : begin_thread();
  if (spares == nullptr) return;
  if (spares->given.capacity() < kSparesOfChunk) spares->given.reserve(kSparesOfChunk);
  spares->given.push_back(std::move(operation));
  if (spares->given.size() < kSparesOfChunk) return;
  lasting.shelf.put(spares->given);
  spares->given.clear();
}

/// Removes what a call has left in the operation, except its signature and its buffers. An all-reduce leaves no more.
void clear(detail::HandleState& operation) {
  if (operation.signature->kind == core::CollectiveKind::allreduce) return;
  operation.ready.clear();
  operation.room = {};
  operation.more_rooms.clear();
  operation.splits.clear();
  operation.received_splits.clear();
}

}  // namespace

engine::OperationPtr take_spare(engine::Entry& entry) {
  Spares* const spares = mine != nullptr ? mine : begin_thread();
  engine::OperationPtr operation;
  if (spares != nullptr && (spares->next < spares->taken.size() || refill(*spares))) {
    operation = std::move(spares->taken[spares->next++]);
    operation->reset();
  } else {
    operation = std::make_shared<detail::HandleState>();
  }
  operation->entry = &entry;
  return operation;
}

void drop(engine::OperationPtr&& operation) noexcept {
  engine::OperationPtr one = std::move(operation);
  if (!one->is_lent) return;
  if (!one->settled()) one = detail::HandleState::leave(std::move(one));
  // These are freed: a failed operation, whose outcome its last holder may have read, and one that another thread holds
  // because it asks who is late.
  if (one == nullptr || one->failed() || one.use_count() != 1) return;
  try {
    clear(*one);
    give(one);
  } catch (const std::exception&) {
    // There is no memory to keep it: it is freed.
  }
}

}  // namespace kolo::api
