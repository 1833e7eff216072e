// SPDX-License-Identifier: Apache-2.0
#include "c10d/world.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <kolo/detail/leaving.hpp>
#include <kolo/error.hpp>

#include "c10d/streams.hpp"

namespace kolo::c10d {
namespace {

std::string in_seconds(std::chrono::milliseconds timeout) {
  // Not by std::to_string, which spells a double as the locale does: with a comma in many.
  const std::int64_t milliseconds = std::max<std::int64_t>(bounded(timeout).count(), 1);
  const std::string fraction = std::to_string(1000 + milliseconds % 1000).substr(1);
  return std::to_string(milliseconds / 1000) + "." + fraction;
}

std::atomic<World::Around> around_leaving{nullptr};

void leaving(const std::function<void()>& leave) {
  const World::Around around = around_leaving;
  if (around != nullptr) {
    around(leave);
  } else {
    leave();
  }
}

void finish(Operation& operation) {
  const bool failed = std::any_of(operation.handles.begin(), operation.handles.end(),
                                  [](const auto& handle) { return !handle->status()->ok(); });
  if (failed || !operation.finish) return;
  try {
    operation.finish();
  } catch (const std::exception&) {  // nobody is left to be told
  }
}

}  // namespace

bool Operation::done() const {
  return std::all_of(handles.begin(), handles.end(), [](const auto& handle) { return handle->done(); });
}

namespace {

/// Waits by `wait(handle, duration)` for each handle. False: the time is over. With zero that lasts for ever.
template <class Wait>
bool wait_for_each(const std::vector<std::shared_ptr<Handle>>& handles, std::chrono::milliseconds timeout, Wait wait) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begun = Clock::now();
  for (const auto& handle : handles) {
    try {
      std::chrono::nanoseconds left = std::chrono::nanoseconds::max();
      if (timeout > kNoTimeout) {
        left = bounded(timeout) - std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begun);
      }
      if (!wait(*handle, left)) return false;
    } catch (const Error&) {
      if (!handle->done()) throw;  // not the operation's error, but one of waiting here
    }
  }
  return true;
}

}  // namespace

bool Operation::wait_for(std::chrono::milliseconds timeout) const {
  return wait_for_each(handles, timeout, [](Handle& handle, std::chrono::nanoseconds left) {
    if (left < std::chrono::nanoseconds::max()) return handle.wait_for(left);
    handle.wait();
    return true;
  });
}

bool Operation::wait_given(std::chrono::milliseconds timeout) const {
  return wait_for_each(handles, timeout, &c10d::wait_given);
}

void Operation::abandon(const std::string& reason) const {
  for (const auto& handle : handles) handle->abandon(reason);
}

std::shared_ptr<World> World::join(c10::intrusive_ptr<::c10d::Store> store, int rank, int size,
                                   std::chrono::milliseconds timeout, std::chrono::milliseconds start, AtExit at_exit) {
  std::shared_ptr<World> world =
      of(Context(Options{}
                     .with_store(std::make_shared<MeetingStore>(std::move(store)), rank, size)
                     .with_setting("KOLO_CONNECT_TIMEOUT_S", in_seconds(start))
                     .with_setting("KOLO_TIMEOUT_S", in_seconds(timeout))));
  world->at_exit_ = at_exit;
  return world;
}

std::shared_ptr<World> World::of(Context context) {
  const std::shared_ptr<World> world(new World(std::move(context)), [](const World* gone) {
    if (!gone->is_inherited()) delete gone;
  });
  Registry<World>::get().add(world);
  return world;
}

World::~World() {
  leaving([this] { context_.reset(); });
}

Context& World::context() {
  if (context_) return *context_;
  throw Error(ErrorCode::not_initialized,
              "the group is of ranks that were reconfigured since: make it again, of the present ones");
}

void World::abandon(const std::string& reason) {
  if (context_) context_->abandon(reason);
}

void World::leave() {
  if (is_inherited() || !context_) return;
  leaving([this] {
    context_->shutdown();
    threads_.finish();
  });
}

void World::leave_at_exit() {
  if (!context_) return;
  if (at_exit_ == AtExit::waits_for_all) return leave();
  leaving([this] {
    detail::leave_early(*context_);
    threads_.finish();
  });
}

void World::leave_now(const std::string& reason) {
  if (is_inherited()) return;
  leaving([&] {
    std::optional<Context> gone = std::exchange(context_, std::nullopt);
    detail::leave_now(*gone, reason);
  });
}

void World::leave_all(const std::optional<std::string>& reason) noexcept {
  for (const auto& each : Registry<World>::get().all()) {
    const std::shared_ptr<World> world = each.lock();
    if (!world || world->is_inherited()) continue;
    try {
      reason ? world->abandon(*reason) : world->leave_at_exit();
    } catch (const Error&) {  // what has failed has said so
    }
  }
  leaving(&Threads::finish_all);
}

void World::set_around(Around around) noexcept { around_leaving = around; }

void World::adopt(std::unique_ptr<Operation> operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  adopted_.push_back(std::move(operation));
  has_adopted_ = true;
}

void World::sweep() {
  if (!has_adopted_) return;
  std::vector<std::unique_ptr<Operation>> completed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto open = [](const auto& operation) { return !operation->done(); };
    const auto middle = std::stable_partition(adopted_.begin(), adopted_.end(), open);
    completed.assign(std::make_move_iterator(middle), std::make_move_iterator(adopted_.end()));
    adopted_.erase(middle, adopted_.end());
    has_adopted_ = !adopted_.empty();
  }
  for (const auto& operation : completed) finish(*operation);
}

MeetingStore::MeetingStore(c10::intrusive_ptr<::c10d::Store> store) : store_(std::move(store)) { prepare(*store_); }

void MeetingStore::set(const std::string& key, const std::string& value) {
  store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::optional<std::string> MeetingStore::get(const std::string& key, std::chrono::nanoseconds timeout) {
  if (!store_->check({key})) {
    // Zero means "for ever" to PyTorch's stores, and they warn of a wait that ends without the key.
    if (timeout <= std::chrono::nanoseconds::zero()) return std::nullopt;
    try {
      store_->wait({key}, std::chrono::ceil<std::chrono::milliseconds>(timeout));
    } catch (const std::exception&) {
      // Stores have no exception of their own for a key that does not come; one that fails does so again here.
      if (!store_->check({key})) return std::nullopt;
    }
  }
  const std::vector<std::uint8_t> value = store_->get(key);
  return std::string(value.begin(), value.end());
}

}  // namespace kolo::c10d
