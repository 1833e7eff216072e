// SPDX-License-Identifier: Apache-2.0
#include "api/spares.hpp"

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "base/cache_line.hpp"
#include "base/hot.hpp"
#include "base/mutex.hpp"
#include "core/signature.hpp"

namespace kolo::api {
namespace {

using Chunk = std::vector<engine::OperationPtr>;

/// A thread that takes one has the cache fetch the one so many behind.
constexpr std::size_t kFetchedAhead = 2;

/// Of full chunks. Nobody waits for it: who finds it taken goes without. So it holds up no child of a `fork` either,
/// whose parent was at it.
class Shelf {
 public:
  /// The oldest; empty: there is none.
  Chunk take() {
    if (!mutex_.try_lock()) return {};
    const base::MutexLock lock(mutex_, std::adopt_lock);
    if (count_ == 0) return {};
    --count_;
    return std::exchange(chunks_[oldest_++ % kMost], {});
  }
  /// What there is no room for is left with the caller.
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

/// There before the program's first object, and never destroyed: threads may end after its last.
union Lasting {
  constexpr Lasting() : shelf() {}
  ~Lasting() {}  // NOLINT(modernize-use-equals-default): that would be none
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

/// Takes an operation that is over. What it cannot keep is left with the caller.
void give(engine::OperationPtr& operation) {
  Spares* const spares = mine != nullptr ? mine : begin_thread();
  if (spares == nullptr) return;
  if (spares->given.capacity() < kSparesOfChunk) spares->given.reserve(kSparesOfChunk);
  spares->given.push_back(std::move(operation));
  if (spares->given.size() < kSparesOfChunk) return;
  lasting.shelf.put(spares->given);
  spares->given.clear();
}

/// All that a call may have left in it but its signature and its buffers. An all-reduce leaves nothing.
void clear(detail::HandleState& operation) {
  if (operation.signature->kind == core::CollectiveKind::allreduce) return;
  operation.ready.clear();
  operation.room = {};
  operation.more_rooms.clear();
  operation.splits.clear();
  operation.received_splits.clear();
}

}  // namespace

KOLO_HOT engine::OperationPtr take_spare(engine::Entry& entry) {
  Spares* const spares = mine != nullptr ? mine : begin_thread();
  engine::OperationPtr operation;
  if (spares != nullptr && (spares->next < spares->taken.size() || refill(*spares))) {
    operation = std::move(spares->taken[spares->next++]);
    operation->reset();
    if (spares->next + kFetchedAhead < spares->taken.size()) {
      base::fetch_early(spares->taken[spares->next + kFetchedAhead].get(), engine::kTouchedBySubmission);
    }
  } else {
    operation = std::make_shared<detail::HandleState>();
  }
  operation->entry = &entry;
  return operation;
}

KOLO_HOT void drop(engine::OperationPtr&& operation) noexcept {
  engine::OperationPtr one = std::move(operation);
  if (!one->is_lent) return;
  if (!one->settled()) one = detail::HandleState::leave(std::move(one));
  // One that failed goes: who held it last may have read its outcome. So does one that somebody still asks about.
  if (one == nullptr || one->failed() || one.use_count() != 1) return;
  try {
    clear(*one);
    give(one);
  } catch (const std::exception&) {
    // No memory: it goes.
  }
}

}  // namespace kolo::api
