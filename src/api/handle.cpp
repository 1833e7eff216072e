// SPDX-License-Identifier: Apache-2.0
#include <kolo/handle.hpp>

#include <utility>
#include <vector>

#include "api/handle_access.hpp"
#include "engine/engine.hpp"
#include "engine/operation.hpp"

namespace kolo {

Handle::Handle(std::shared_ptr<detail::HandleState> state) noexcept : state_(std::move(state)) {}
Handle::Handle(Handle&&) noexcept = default;
Handle& Handle::operator=(Handle&&) noexcept = default;
Handle::~Handle() = default;

detail::HandleState& Handle::state() const {
  if (!state_) throw Error(ErrorCode::invalid_argument, "this handle is empty: it was moved from, or never started");
  return *state_;
}

void Handle::wait() {
  detail::HandleState& operation = state();
  if (!operation.done()) operation.engine->wait(operation, std::nullopt);
  if (!operation.outcome().ok()) throw Error(operation.outcome());
}

bool Handle::wait_for_ns(std::chrono::nanoseconds duration) {
  detail::HandleState& operation = state();
  const base::Time now = base::now();
  const base::Time until = duration >= base::Time::max() - now ? base::Time::max() : now + duration;
  if (!operation.done()) operation.engine->wait(operation, until);
  if (!operation.done()) return false;
  if (!operation.outcome().ok()) throw Error(operation.outcome());
  return true;
}

bool Handle::done() const {
  detail::HandleState& operation = state();
  if (operation.done()) return true;
  operation.engine->note_interest(operation);
  return false;
}

std::optional<Status> Handle::status() const {
  if (!done()) return std::nullopt;
  return state().outcome();
}

void Handle::on_done(std::function<void(const Status&)> callback) {
  if (!callback) throw Error(ErrorCode::invalid_argument, "on_done needs something to call");
  detail::HandleState& operation = state();
  operation.engine->note_interest(operation);  // which may complete it: then nobody need be woken to call back
  if (!operation.add_callback(callback)) operation.engine->call_back(std::move(callback), operation.outcome());
}

void wait_all(Span<Handle> handles) {
  // Operations of one engine are waited for together; handles of several contexts take turns.
  std::vector<detail::HandleState*> operations;
  operations.reserve(handles.size());
  for (const Handle& handle : handles) operations.push_back(&detail::HandleAccess::state(handle));
  std::size_t at = 0;
  while (at < operations.size()) {
    std::size_t end = at + 1;
    while (end < operations.size() && operations[end]->engine == operations[at]->engine) ++end;
    operations[at]->engine->wait_all(Span<detail::HandleState* const>(operations.data() + at, end - at), std::nullopt);
    at = end;
  }
  for (const detail::HandleState* operation : operations) {
    if (!operation->outcome().ok()) throw Error(operation->outcome());
  }
}

namespace {
/// The operation of a future that has been waited for, once.
detail::HandleState& result_of(const Handle& handle) {
  detail::HandleState& operation = detail::HandleAccess::state(handle);
  if (!operation.room.owns_result) {
    throw Error(ErrorCode::invalid_argument, "the result of this operation has been taken already");
  }
  operation.room.owns_result = false;
  return operation;
}
}  // namespace

Tensor Future<Tensor>::get() {
  wait();
  return std::move(result_of(*this).room.result);
}

AlltoallResult Future<AlltoallResult>::get() {
  wait();
  detail::HandleState& operation = result_of(*this);
  return {std::move(operation.room.result), std::move(operation.received_splits)};
}

}  // namespace kolo
