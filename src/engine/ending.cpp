// SPDX-License-Identifier: Apache-2.0
#include "engine/ending.hpp"

#include <exception>
#include <new>

#include "control/sentences.hpp"

namespace kolo::engine {

void Ending::refuse() const {
  if (!faulted()) throw Error(ErrorCode::shut_down, "this context was shut down");
  const base::MutexLock lock(mutex_);
  throw Error(status_);
}

void Ending::report_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    // An error code that is not fatal for a call is fatal here.
    report(is_fatal(error.code()) ? error.code() : ErrorCode::transport, error.status().message());
  } catch (const std::bad_alloc&) {
    report(ErrorCode::transport, "there is no memory left");
  } catch (const std::exception& error) {
    report(ErrorCode::transport, error.what());
  } catch (...) {
    report(ErrorCode::transport, "an exception that is no std::exception");
  }
}

void Ending::report_loss(int rank, ErrorCode code, const std::string& reason) {
  if (!may_use_backends()) {
    record_if_due(base::now());  // an exception in every pass must not put the deadline off
    return;
  }
  reported_ = Status(code, control::rank_lost({rank, code, reason}));
  recorder_.at(base::now());
  recorder_.record(recorder::Kind::reported, 0, 0, 0, static_cast<std::uint32_t>(rank),
                   static_cast<std::uint8_t>(code));
  recorder_.sentence(reported_.message());
  due = base::now() + patience_;
  open_.due_at(due);
  to_leader_.add(control::RankLost{rank, code, reason});
}

void Ending::note_desertion(int by) {
  deserted_.store(true);
  if (by < 0 || by == rank_ || faulted()) return;
  deserted_at_ = base::now();
  if (deserted_by_.exchange(by) == by) return;
  to_leader_.add(control::Deserted{rank_, by});
}

void Ending::go_on() {
  deserted_by_.store(-1);
  to_leader_.add(control::Deserted{rank_, -1});
}

void Ending::record(const Status& status) {
  if (faulted()) return;
  {
    const base::MutexLock lock(mutex_);
    status_ = status;
  }
  recorder_.at(base::now());
  recorder_.record(recorder::Kind::fault, 0, 0, 0, 0, static_cast<std::uint8_t>(status.code()));
  recorder_.sentence(status.message());
  recorder_.set_state(recorder::State::faulted);
  recorded_.store(true, std::memory_order_release);
  due = base::Time::max();
  abort_due = true;
  sets_.close_shortcuts();  // before anything is over because of that
  open_.waiters.note_change();
  if (inter_ != nullptr) inter_->abandon();
  deferred_.log(LogLevel::error, status.message());
  if (leader_ != nullptr) leader_->latch(status, -1);
}

}  // namespace kolo::engine
