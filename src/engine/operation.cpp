// SPDX-License-Identifier: Apache-2.0
#include "engine/operation.hpp"

#include <numeric>
#include <utility>

#include "base/check.hpp"

namespace kolo::detail {

std::byte* HandleState::make_room(const std::vector<std::int64_t>& bytes) {
  const std::int64_t total = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  if (!owns_result) {
    const auto element = static_cast<std::int64_t>(size_of(signature->tensors.front().dtype));
    if (total == output_elements * element) return buffers.front().output;
    throw Error(ErrorCode::invalid_argument, "the output of this allgather has " + std::to_string(output_elements) +
                                                 " elements, but the ranks together gave " +
                                                 std::to_string(total / element));
  }
  std::vector<std::int64_t> extents{total / row_bytes};
  extents.insert(extents.end(), row.begin(), row.end());
  result = Tensor(signature->tensors.front().dtype, Shape(extents));
  return static_cast<std::byte*>(result.data());
}

std::byte* HandleState::make_room_for(const std::vector<std::int64_t>& rows) {
  received_splits = rows;
  const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  std::vector<std::int64_t> extents{total};
  extents.insert(extents.end(), row.begin(), row.end());
  const Shape shape(extents);
  if (owns_result) {
    result = Tensor(signature->tensors.front().dtype, shape);
    return static_cast<std::byte*>(result.data());
  }
  if (shape.elements() == output_elements) return buffers.front().output;
  throw Error(ErrorCode::invalid_argument, "the output of this alltoall has " + std::to_string(output_elements) +
                                               " elements, but the ranks together gave this one " +
                                               std::to_string(shape.elements()));
}

bool HandleState::mark_interest() noexcept {
  int expected = kNone;
  return interest_.compare_exchange_strong(expected, kMarked);
}

bool HandleState::sleep_until(std::optional<base::Time> until) {
  std::unique_lock lock(mutex_);
  ++sleepers_;
  const auto is_done = [this] { return done(); };
  if (until) {
    changed_.wait_until(lock, *until, is_done);
  } else {
    changed_.wait(lock, is_done);
  }
  --sleepers_;
  return done();
}

core::DeviceEventPtr HandleState::sleep_until_enqueued() {
  std::unique_lock lock(mutex_);
  ++sleepers_;
  changed_.wait(lock, [this] { return done() || enqueued_ != nullptr; });
  --sleepers_;
  return done() ? nullptr : enqueued_;
}

void HandleState::set_enqueued(core::DeviceEventPtr event) {
  const std::lock_guard lock(mutex_);
  enqueued_ = std::move(event);
  if (sleepers_ > 0) changed_.notify_all();
}

bool HandleState::add_callback(std::function<void(const Status&)>& callback) {
  const std::lock_guard lock(mutex_);
  if (done()) return false;
  callbacks_.push_back(std::move(callback));
  return true;
}

std::vector<std::function<void(const Status&)>> HandleState::complete(Status status, bool& was_interesting) {
  KOLO_CHECK(!done()) << "an operation completed twice";
  was_interesting = interest_.exchange(kClosed) == kMarked;
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(status);
  enqueued_.reset();
  done_.store(true, std::memory_order_release);
  if (sleepers_ > 0) changed_.notify_all();
  return std::move(callbacks_);
}

void HandleState::reset() noexcept {
  const std::lock_guard lock(mutex_);
  KOLO_CHECK(sleepers_ == 0) << "a prepared operation is started again while a thread waits for it";
  callbacks_.clear();
  outcome_ = Status();
  interest_.store(kNone, std::memory_order_relaxed);
  latch_at = base::Time::max();
  warned = false;
  done_.store(false, std::memory_order_release);
}

}  // namespace kolo::detail
