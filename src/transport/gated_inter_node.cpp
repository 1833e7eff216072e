// SPDX-License-Identifier: Apache-2.0
#include "transport/gated_inter_node.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <utility>

namespace kolo::transport {

bool CallerGate::move() noexcept {
  if (!has_open()) return false;
  if (!mutex_.try_lock()) return false;
  const base::MutexLock lock(mutex_, std::adopt_lock);
  moved_at_.store(base::now());
  bool moved = false;
  for (GatedInterNode* member : members_) moved |= member->move_own();
  return moved;
}

bool CallerGate::is_callers_thread() {
  const base::MutexLock lock(own_mutex_);
  return std::find(own_threads_.begin(), own_threads_.end(), std::this_thread::get_id()) == own_threads_.end();
}

void CallerGate::set_own_thread(bool own) {
  const base::MutexLock lock(own_mutex_);
  if (own) {
    own_threads_.push_back(std::this_thread::get_id());
  } else {
    own_threads_.erase(std::find(own_threads_.begin(), own_threads_.end(), std::this_thread::get_id()));
  }
}

GatedInterNode::GatedInterNode(std::shared_ptr<InterNode> transport, CallRule rule)
    : transport_(std::move(transport)), rule_(std::move(rule)) {
  const base::MutexLock held(gate().mutex());
  gate().members_.push_back(this);
}

GatedInterNode::~GatedInterNode() {
  abandon();
  const base::MutexLock held(gate().mutex());
  auto& members = gate().members_;
  members.erase(std::find(members.begin(), members.end(), this));
  transport_.reset();
}

// ---------------------------------------------------------------- the driver

GatedInterNode::Operation GatedInterNode::send(int rank, int tag, const std::byte* data, std::size_t bytes) {
  return note({0, rank, tag, data, nullptr, bytes});
}

GatedInterNode::Operation GatedInterNode::receive(int rank, int tag, std::byte* data, std::size_t bytes) {
  return note({0, rank, tag, nullptr, data, bytes});
}

GatedInterNode::Operation GatedInterNode::note(Call call) {
  {
    const base::MutexLock lock(mutex_);
    if (!failure_.ok()) throw Error(failure_);
    call.operation = ++last_;
    if (abandoned_) return call.operation;
    noted_.push_back(call);
    count();
  }
  gate().changes().ring();
  return call.operation;
}

bool GatedInterNode::test(Operation operation) {
  const base::MutexLock lock(mutex_);
  if (!failure_.ok()) throw Error(failure_);
  return done_.erase(operation) > 0;
}

void GatedInterNode::listen(int tag, std::size_t bytes) {
  const base::MutexLock lock(mutex_);
  listen_ = Listening{tag, bytes};
}

std::optional<InterNode::Heard> GatedInterNode::hear() {
  const base::MutexLock lock(mutex_);
  if (!failure_.ok()) throw Error(failure_);
  if (heard_.empty()) return std::nullopt;
  letter_ = std::move(heard_.front());
  heard_.pop_front();
  return Heard{letter_.rank, letter_.data.data(), letter_.data.size()};
}

/// Counts as an operation.
void GatedInterNode::expect(bool expects) {
  {
    const base::MutexLock lock(mutex_);
    if (expects_ == expects || abandoned_ || !failure_.ok()) return;
    expects_ = expects;
    if (!expects) return forget(1);
    count();
  }
  gate().changes().ring();
}

void GatedInterNode::push(base::Time /*now*/) {
  {
    const base::MutexLock lock(mutex_);
    if (push_ || abandoned_) return;
    push_ = true;
    count();
  }
  gate().changes().ring();
}

// ---------------------------------------------------------------- any thread

void GatedInterNode::set_wake(std::function<void()> wake) {
  const base::MutexLock lock(wake_mutex_);
  wake_ = std::move(wake);
}

void GatedInterNode::abandon() noexcept {
  const base::MutexLock lock(mutex_);
  abandoned_ = true;
  forget(open_);
}

bool GatedInterNode::is_neglected(base::Time now) {
  constexpr std::chrono::milliseconds kWhile{100};
  const base::MutexLock lock(mutex_);
  const std::int64_t operations = open_ - (push_ ? 1 : 0);  // a push alone holds nobody up here
  return operations > 0 && now - std::max(opened_at_, gate().moved_at_.load()) > kWhile;
}

void GatedInterNode::count() {
  if (open_++ == 0) opened_at_ = base::now();
  gate().open_.fetch_add(1);
}

void GatedInterNode::forget(std::int64_t open) noexcept {
  open_ -= open;
  gate().open_.fetch_sub(open);
}

bool GatedInterNode::move_own() noexcept {
  gate().mutex().assert_held();  // that of the members' gate is this one's gate's
  bool push = false;
  std::optional<Listening> begins;
  {
    const base::MutexLock lock(mutex_);
    if (abandoned_ || !failure_.ok()) return false;
    calls_.swap(noted_);
    push = std::exchange(push_, false);
    begins = std::exchange(listen_, std::nullopt);
  }
  const bool called = push || !calls_.empty();
  Status failure;
  try {
    call_transport(push);
    hear_transport(begins);
  } catch (const Error& error) {
    failure = error.status();
  } catch (const std::exception& error) {
    failure = Status(ErrorCode::transport, error.what());
  }
  const bool news = !finished_.empty() || !letters_.empty() || !failure.ok();
  {
    const base::MutexLock lock(mutex_);
    done_.insert(finished_.begin(), finished_.end());
    std::move(letters_.begin(), letters_.end(), std::back_inserter(heard_));
    const std::int64_t settled = failure.ok() ? static_cast<std::int64_t>(finished_.size()) + (push ? 1 : 0) : open_;
    failure_ = std::move(failure);
    if (!abandoned_) forget(settled);
  }
  finished_.clear();
  letters_.clear();
  if (!news) return called;
  const base::MutexLock lock(wake_mutex_);
  if (wake_) wake_();
  return true;
}

void GatedInterNode::call_transport(bool push) {
  for (const Call& call : calls_) {
    const Operation inner = call.sent != nullptr ? transport_->send(call.rank, call.tag, call.sent, call.bytes)
                                                 : transport_->receive(call.rank, call.tag, call.received, call.bytes);
    running_.push_back({call.operation, inner});
  }
  calls_.clear();
  if (push) transport_->push(base::now());
  const auto is_done = [this](const Running& one) KOLO_REQUIRES(gate().mutex()) {
    if (!transport_->test(one.inner)) return false;
    finished_.push_back(one.operation);
    return true;
  };
  running_.erase(std::remove_if(running_.begin(), running_.end(), is_done), running_.end());
}

void GatedInterNode::hear_transport(const std::optional<Listening>& begins) {
  if (begins) {
    transport_->listen(begins->tag, begins->bytes);
    listening_ = true;
  }
  if (!listening_) return;
  while (const std::optional<Heard> heard = transport_->hear()) {
    letters_.push_back({heard->rank, std::vector<std::byte>(heard->data, heard->data + heard->bytes)});
  }
}

}  // namespace kolo::transport
