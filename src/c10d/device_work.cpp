// SPDX-License-Identifier: Apache-2.0
#include "c10d/device_work.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/jit_type.h>

#include <kolo/config.hpp>
#if KOLO_WITH_CUDA
#include <kolo/cuda.hpp>
#endif

#include "c10d/errors.hpp"

namespace kolo::c10d {

/// Shared by the handles' callbacks, which must not keep a Work: where they run nobody may let go of tensors.
class DeviceWork::Given : public std::enable_shared_from_this<Given> {
 public:
  void watch(const std::vector<std::shared_ptr<Handle>>& handles) {
    open_ = handles.size();
#if KOLO_WITH_CUDA
    for (const auto& handle : handles) {
      cuda::on_given(*handle, [self = shared_from_this()] { self->note_one(); });
    }
#endif
  }

  [[nodiscard]] bool is_given() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return open_ == 0;
  }

  /// Calls it once, when the operation has been given: at once, or on a thread that must not be held up.
  void call_then(std::function<void()> then) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (open_ > 0) {
        then_ = std::move(then);
        return;
      }
    }
    then();
  }

 private:
  void note_one() {
    std::function<void()> then;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (--open_ > 0) return;
      then = std::exchange(then_, nullptr);
    }
    if (then) then();
  }

  std::mutex mutex_;
  std::size_t open_ = 0;        // under the mutex, once watched
  std::function<void()> then_;  // likewise
};

DeviceWork::DeviceWork(std::shared_ptr<World> world, Occasion occasion, std::unique_ptr<Operation> operation)
    : WorkOfKolo(std::move(world), std::move(occasion), std::move(operation)),
      device_(operation_->buffers.front().device()) {}

std::shared_ptr<DeviceWork::Given> DeviceWork::given() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!given_) {
    const auto given = std::make_shared<Given>();
    given->watch(operation_->handles);
    given_ = given;
  }
  return given_;
}

void DeviceWork::end(const std::exception_ptr& error) {
  if (std::exchange(ended_, true)) return;
  operation_->finish = nullptr;
  ::c10d::Work::finish(error);
}

void DeviceWork::end_if_failed(std::exception_ptr error) {
  if (ended_ || !operation_->done()) return;
  if (error == nullptr) error = outcome_of(occasion_, *operation_);
  if (error) end(error);
}

void DeviceWork::end_if_this_throws(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    end(exception_for(occasion_.call, error.code(), error.status().message()));
  } catch (...) {
    end(std::current_exception());
  }
}

void DeviceWork::finish_on_own_stream() {
  if (finished_ || (ended_ && exception())) return;
  end_if_this_throws([&] {
    const OwnStream own(device_);
    follow_on_current_stream(device_, operation_->handles);
    if (const auto finish = std::exchange(operation_->finish, nullptr)) finish();
    finished_ = std::make_unique<Point>(device_);
  });
}

void DeviceWork::hold_back_current_stream() {
  end_if_failed();
  if (operation_->finish) finish_on_own_stream();
  if (ended_ && exception()) return;
  end_if_this_throws([&] {
    if (finished_) {
      finished_->hold_back_current_stream();
    } else {
      follow_on_current_stream(device_, operation_->handles);
    }
    for (const Packed& packed : operation_->buffers) packed.each_memory(note_use_on_current_stream);
    operation_->buffers.clear();
  });
}

bool DeviceWork::isCompleted() {
  // Python's lock may be held here, and a thread that has the mutex may need it to let go of tensors.
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (ended_) return true;
  if (!operation_->done()) return false;
  end_if_failed();
  if (operation_->finish) finish_on_own_stream();
  if (!ended_ && finished_ && !finished_->is_reached()) return false;
  end(nullptr);
  return true;
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  std::exception_ptr late;
  if (!translated(occasion_.call, [&] { return operation_->wait_given(timeout); })) {
    late = abandoned(occasion_, *operation_, ErrorCode::timeout, timed_out(occasion_, *operation_, timeout));
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (late) end_if_failed(late);
    hold_back_current_stream();
  }
  world_->sweep();
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

void DeviceWork::abort() {
  const std::exception_ptr aborted = abandoned(occasion_, *operation_, ErrorCode::cancelled, "this work was aborted");
  const std::lock_guard<std::mutex> lock(mutex_);
  if (aborted) end_if_failed(aborted);
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  const std::shared_ptr<Given> given = this->given();
  bool has_ended = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_) return future_;
    start_threads(occasion_, *world_);
    has_ended = ended_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{device_});
  }
  if (has_ended || given->is_given()) {
    complete_future();
    return future_;
  }
  const auto self = c10::intrusive_ptr<DeviceWork>::unsafe_reclaim_from_nonowning(this);
  // Given away where it runs, as nobody may let go of tensors there.
  given->call_then([self]() mutable {
    Threads& threads = self->world_->threads();
    threads.run([self = std::move(self)] { self->complete_future(); });
  });
  return future_;
}

void DeviceWork::complete_future() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(future_completed_, true)) return;
    end_if_failed();
    finish_on_own_stream();
  }
  if (const std::exception_ptr error = exception()) {
    future_->setError(error);
    return;
  }
  const OwnStream own(device_);
  finished_->hold_back_current_stream();
  future_->markCompleted(c10::IValue(occasion_.results));
}

}  // namespace kolo::c10d
