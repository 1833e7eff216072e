// SPDX-License-Identifier: Apache-2.0
#include <kolo/handle.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/access.hpp"
#include "api/forks.hpp"
#include "base/check.hpp"
#include "base/log.hpp"
#include "engine/engine.hpp"
#include "engine/operation.hpp"

namespace kolo {

Handle::Handle(std::shared_ptr<detail::HandleState> state) noexcept
    : state_(std::move(state)), exceptions_at_birth_(std::uncaught_exceptions()), generation_(api::fork_generation()) {}

detail::HandleState& Handle::state() const {
  if (!state_) throw Error(ErrorCode::invalid_argument, "this handle is empty: it was moved from, or never started");
  if (generation_ != api::fork_generation()) api::throw_inherited();
  return *state_;
}

namespace {
/// The engine of an open operation; null if the operation is done and its context destroyed.
std::shared_ptr<engine::Engine> engine_of(const detail::HandleState& operation) {
  std::shared_ptr<engine::Engine> engine = operation.engine.lock();
  KOLO_CHECK(engine != nullptr || operation.done()) << "a context went before its operations were done";
  return engine;
}

void wait_until(detail::HandleState& operation, std::optional<base::Time> until) {
  if (operation.done()) return;
  if (const auto engine = engine_of(operation)) engine->driving().wait(operation, until);
}

void note_awaited(detail::HandleState& operation) {
  if (operation.done()) return;
  if (const auto engine = engine_of(operation)) engine->submitter().note_awaited(operation);
}

/// Ends an operation whose memory the caller wants back. It is unknown when other ranks will submit it, so it ends
/// together with this rank's part of the job, unless there are no other ranks.
void end_open(engine::Engine& engine, detail::HandleState& operation, const std::string& reason) {
  const bool is_alone = engine.topology().size == 1 && operation.message == nullptr;
  if (is_alone && !engine.driving().in_callback()) return engine.driving().wait(operation, std::nullopt);
  engine.driving().end_now(operation, reason);
}

/// Ends the operation of a handle that an exception destroys.
void end_unwound(engine::Engine& engine, detail::HandleState& operation) {
  if (operation.message != nullptr) {
    return end_open(engine, operation, "an exception has destroyed the handle of this message");
  }
  engine.driving().await_if_deserted(operation);  // another rank has left, and this exception is only a consequence
  if (operation.done()) return;
  end_open(engine, operation,
           "it destroyed the handle of an open operation (" +
               (operation.is_join ? "join" : core::describe(*operation.signature)) + ")");
}
}  // namespace

void Handle::let_go() noexcept {
  const bool is_here = generation_ == api::fork_generation();
  if (is_here && !state_->done() && std::uncaught_exceptions() > exceptions_at_birth_) {
    if (const auto engine = engine_of(*state_)) {
      try {
        end_unwound(*engine, *state_);
      } catch (const std::exception& error) {
        engine->logger().write(LogLevel::error, std::string("shutdown failed: ") + error.what());
      }
    }
  }
  detach();
}

void Handle::abandon(const std::string& reason) {
  detail::HandleState& operation = state();
  if (operation.done()) return;
  if (const auto engine = engine_of(operation)) end_open(*engine, operation, reason);
}

void Handle::detach() noexcept {
  if (!state_) return;
  if (generation_ != api::fork_generation()) return api::keep_inherited(std::move(state_));
  state_.reset();
}

void Handle::wait() {
  detail::HandleState& operation = state();
  wait_until(operation, std::nullopt);
  if (operation.failed()) throw Error(operation.outcome());
}

bool Handle::wait_for_ns(std::chrono::nanoseconds duration) {
  detail::HandleState& operation = state();
  wait_until(operation, base::after(base::now(), std::max(duration, std::chrono::nanoseconds::zero())));
  if (!operation.done()) return false;
  if (operation.failed()) throw Error(operation.outcome());
  return true;
}

std::vector<int> Handle::late_ranks_ns(std::chrono::nanoseconds patience) const {
  static_cast<void>(state());
  const auto engine = state_->engine.lock();  // null: the operation is done, and its context destroyed
  return engine ? engine->submitter().late_ranks(state_, base::after(base::now(), patience)) : std::vector<int>();
}

bool Handle::done() const {
  detail::HandleState& operation = state();
  if (operation.done()) return true;
  note_awaited(operation);
  return false;
}

std::optional<Status> Handle::status() const {
  if (!done()) return std::nullopt;
  return state().outcome();
}

void Handle::on_done(std::function<void(const Status&)> callback) {
  if (!callback) throw Error(ErrorCode::invalid_argument, "on_done needs something to call");
  detail::HandleState& operation = state();
  note_awaited(operation);  // which may complete it: then no thread must be woken for the callback
  if (operation.add_callback(callback)) return;
  if (const auto engine = operation.engine.lock()) {
    engine->driving().call_back(std::move(callback), operation.outcome());
  } else {
    engine::call_back(callback, operation.outcome(), base::Logger());  // its context is destroyed, and so is the log
  }
}

void wait_all(Span<const Handle> handles) {
  std::vector<const Handle*> all;
  all.reserve(handles.size());
  for (const Handle& handle : handles) all.push_back(&handle);
  detail::wait_all(all);
}

void detail::wait_all(Span<const Handle* const> handles) {
  std::vector<HandleState*> operations;
  operations.reserve(handles.size());
  for (const Handle* handle : handles) operations.push_back(&HandleAccess::state(*handle));
  // Operations of one engine are waited for together; handles of several contexts take turns.
  for (std::size_t at = 0, end = 0; at < operations.size(); at = end) {
    const auto same = [&](const HandleState* operation) {
      return !operation->engine.owner_before(operations[at]->engine) &&
             !operations[at]->engine.owner_before(operation->engine);
    };
    for (end = at + 1; end < operations.size() && same(operations[end]);) ++end;
    if (const auto engine = operations[at]->engine.lock()) {  // without an engine they are done
      engine->driving().wait_all(Span<HandleState* const>(operations.data() + at, end - at), std::nullopt);
    }
  }
  for (const HandleState* operation : operations) {
    if (operation->failed()) throw Error(operation->outcome());
  }
}

namespace {
/// The operation of a future whose result is taken. Throws if it has been taken before.
detail::HandleState& result_of(const Handle& handle) {
  detail::HandleState& operation = detail::HandleAccess::state(handle);
  if (!operation.outputs.first.owns_result) {
    throw Error(ErrorCode::invalid_argument, "the result of this operation has been taken already");
  }
  operation.outputs.first.owns_result = false;
  return operation;
}
}  // namespace

template <>
Tensor Future<Tensor>::get() {
  wait();
  return std::move(result_of(*this).outputs.first.result);
}

template <>
AlltoallResult Future<AlltoallResult>::get() {
  wait();
  detail::HandleState& operation = result_of(*this);
  return {std::move(operation.outputs.first.result), std::move(operation.outputs.received)};
}

}  // namespace kolo
