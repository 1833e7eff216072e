// SPDX-License-Identifier: Apache-2.0
#include "c10d/work.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/core/jit_type.h>

#include "c10d/errors.hpp"

namespace kolo::c10d {
namespace {

/// For all that are asked why nothing comes.
constexpr std::chrono::milliseconds kPatienceForAnswers{250};

/// Who has not made the call.
std::string describe_late_ranks(const Operation& operation) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + kPatienceForAnswers;
  for (const auto& handle : operation.handles) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) break;
    const std::vector<int> late = handle->late_ranks(left);
    if (late.empty()) continue;
    std::string text = late.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < late.size(); ++i) {
      if (i > 0) text += i + 1 < late.size() ? ", " : " and ";
      text += std::to_string(late[i]);
    }
    return text + (late.size() == 1 ? " has" : " have") + " not made this call";
  }
  return "some rank is late";
}

}  // namespace

void start_threads(const Occasion& occasion, World& world) {
  try {
    world.threads().start();
  } catch (const std::system_error& error) {
    raise(occasion.call, ErrorCode::out_of_memory,
          std::string("no thread can be started that completes futures: ") + error.what() +
              "; \"ulimit -u\" limits the threads of a user, and a container's pids.max those of a container");
  }
}

std::exception_ptr outcome_of(const Occasion& occasion, const Operation& operation) {
  for (const auto& handle : operation.handles) {
    const std::optional<Status> status = handle->status();
    if (!status->ok()) return exception_for(occasion.call, status->code(), status->message());
  }
  return nullptr;
}

std::string timed_out(const Occasion& occasion, const Operation& operation, std::chrono::milliseconds after) {
  return "Timed out waiting " + std::to_string(after.count()) + "ms for operation " +
         std::to_string(occasion.sequence) + " of the group to complete: " + describe_late_ranks(operation);
}

std::exception_ptr abandoned(const Occasion& occasion, const Operation& operation, ErrorCode code,
                             const std::string& sentence) {
  if (operation.done()) return nullptr;
  translated(occasion.call, [&] { operation.abandon(occasion.call + ": " + sentence); });
  return outcome_of(occasion, operation) == nullptr ? nullptr : exception_for(occasion.call, code, sentence);
}

WorkOfKolo::WorkOfKolo(std::shared_ptr<World> world, Occasion occasion, std::unique_ptr<Operation> operation)
    : ::c10d::Work(occasion.rank, occasion.type, occasion.title, occasion.inputs), world_(std::move(world)),
      occasion_(std::move(occasion)), operation_(std::move(operation)) {}

WorkOfKolo::~WorkOfKolo() {
  if (world_->is_inherited()) {
    static_cast<void>(operation_.release());
    return;
  }
  if (operation_->finish == nullptr && operation_->done()) return;
  world_->adopt(std::move(operation_));
  world_->sweep();
}

bool Work::settle(const std::exception_ptr& error) {
  if (settled_.load(std::memory_order_acquire)) return true;
  if (!operation_->done()) return false;
  const std::lock_guard<std::mutex> lock(settling_);
  settle_once(error);
  return true;
}

void Work::settle_once(std::exception_ptr error) {
  if (settled_) return;
  if (error == nullptr) error = outcome_of(occasion_, *operation_);
  if (error == nullptr && operation_->finish) {
    try {
      operation_->finish();
    } catch (...) {
      error = std::current_exception();
    }
  }
  operation_->finish = nullptr;
  operation_->buffers.clear();
  ::c10d::Work::finish(error);
  settled_.store(true, std::memory_order_release);
}

bool Work::isCompleted() {
  if (settled_.load(std::memory_order_acquire)) return true;
  if (!operation_->done()) return false;
  // Python's lock may be held here, and a thread that settles may need it to let go of tensors.
  const std::unique_lock<std::mutex> lock(settling_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  settle_once(nullptr);
  return true;
}

bool Work::wait(std::chrono::milliseconds timeout) {
  std::exception_ptr late;
  if (!settled_ && !translated(occasion_.call, [&] { return operation_->wait_for(timeout); })) {
    late = abandoned(occasion_, *operation_, ErrorCode::timeout, timed_out(occasion_, *operation_, timeout));
  }
  settle(late);
  world_->sweep();
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

void Work::abort() { settle(abandoned(occasion_, *operation_, ErrorCode::cancelled, "this work was aborted")); }

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  {
    const std::lock_guard<std::mutex> lock(future_mutex_);
    if (future_) return future_;
    start_threads(occasion_, *world_);
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  }
  if (settle()) {
    complete_future();
  } else {
    complete_future_when_done();
  }
  return future_;
}

void Work::complete_future_when_done() {
  open_handles_ = operation_->handles.size();
  // The last callback takes the Work out of what they share: where they run nobody may let go of tensors.
  const auto shared =
      std::make_shared<c10::intrusive_ptr<Work>>(c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this));
  for (const auto& handle : operation_->handles) {
    handle->on_done([shared](const Status&) {
      if (--(*shared)->open_handles_ > 0) return;
      Threads& threads = (*shared)->world_->threads();
      threads.run([self = std::move(*shared)] {
        self->settle();
        self->complete_future();
      });
    });
  }
}

void Work::complete_future() {
  if (const std::exception_ptr error = exception()) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(occasion_.results));
  }
}

}  // namespace kolo::c10d
