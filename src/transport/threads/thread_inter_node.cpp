// SPDX-License-Identifier: Apache-2.0
#include "transport/threads/thread_inter_node.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"

namespace kolo::threads {

namespace {

void deliver(std::byte* to, std::size_t room, const std::byte* from, std::size_t bytes) {
  KOLO_CHECK(room == bytes) << "a message of " << bytes << " bytes where " << room << " were expected";
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

void MailRoom::send(int from, int to, int tag, const std::byte* data, std::size_t bytes) {
  const base::MutexLock lock(mutex_);
  check_alive();
  if (const auto found = receivers_.find(to); found != receivers_.end() && found->second.listens == tag) {
    found->second.heard.push_back({from, std::vector<std::byte>(data, data + bytes)});
    tell(found->second);
    return;
  }
  Queue& queue = queues_[{to, from, tag}];
  if (queue.wanted.empty()) {
    queue.sent.emplace_back(data, data + bytes);
    return;
  }
  const Wanted wanted = queue.wanted.front();
  queue.wanted.pop_front();
  deliver(wanted.data, wanted.bytes, data, bytes);
  serve(to, wanted.operation);
}

void MailRoom::receive(int from, int to, int tag, std::byte* data, std::size_t bytes, Operation operation) {
  const base::MutexLock lock(mutex_);
  check_alive();
  Queue& queue = queues_[{to, from, tag}];
  if (queue.sent.empty()) {
    queue.wanted.push_back({data, bytes, operation});
    return;
  }
  deliver(data, bytes, queue.sent.front().data(), queue.sent.front().size());
  queue.sent.pop_front();
  serve(to, operation);
}

bool MailRoom::arrived(int to, Operation operation) {
  const base::MutexLock lock(mutex_);
  check_alive();
  std::vector<Operation>& served = receivers_[to].served;
  const auto found = std::find(served.begin(), served.end(), operation);
  if (found == served.end()) return false;
  served.erase(found);
  return true;
}

void MailRoom::listen(int to, int tag) {
  const base::MutexLock lock(mutex_);
  check_alive();
  Receiver& receiver = receivers_[to];
  receiver.listens = tag;
  for (auto& [key, queue] : queues_) {
    if (std::get<0>(key) != to || std::get<2>(key) != tag) continue;
    for (std::vector<std::byte>& data : queue.sent) receiver.heard.push_back({std::get<1>(key), std::move(data)});
    queue.sent.clear();
  }
}

std::optional<MailRoom::Letter> MailRoom::hear(int to) {
  const base::MutexLock lock(mutex_);
  check_alive();
  std::deque<Letter>& heard = receivers_[to].heard;
  if (heard.empty()) return std::nullopt;
  std::optional<Letter> letter = std::move(heard.front());
  heard.pop_front();
  return letter;
}

void MailRoom::serve(int to, Operation operation) {
  Receiver& receiver = receivers_[to];
  receiver.served.push_back(operation);
  tell(receiver);
}

void MailRoom::tell(Receiver& receiver) noexcept {
  receiver.news = true;
  ring(receiver);
}

void MailRoom::ring(Receiver& receiver) noexcept {
  if (const base::EventFd* bell = std::exchange(receiver.bell, nullptr)) bell->signal();
}

/// Holds the mutex, as the thread that rings does: an operation is either served before this and seen here, or served
/// later and rings.
bool MailRoom::arm(int to, const base::EventFd& bell) {
  const base::MutexLock lock(mutex_);
  check_alive();
  Receiver& receiver = receivers_[to];
  if (std::exchange(receiver.news, false)) return false;
  bell.drain();
  receiver.bell = &bell;
  return true;
}

void MailRoom::forget(int to) {
  const base::MutexLock lock(mutex_);
  for (auto& [key, queue] : queues_)
    if (std::get<0>(key) == to) queue.wanted.clear();
  receivers_.erase(to);
}

void MailRoom::abort(const std::string& reason) {
  const base::MutexLock lock(mutex_);
  if (aborted_.empty()) aborted_ = reason;
  for (auto& [rank, receiver] : receivers_) ring(receiver);
}

void MailRoom::check_alive() const {
  if (!aborted_.empty()) throw Error(ErrorCode::transport, aborted_);
}

ThreadInterNode::Operation ThreadInterNode::send(int rank, int tag, const std::byte* data, std::size_t bytes) {
  room_->send(rank_, rank, tag, data, bytes);
  return last_ += 2;
}

ThreadInterNode::Operation ThreadInterNode::receive(int rank, int tag, std::byte* data, std::size_t bytes) {
  last_ += 2;
  room_->receive(rank, rank_, tag, data, bytes, last_ | kReceive);
  return last_ | kReceive;
}

bool ThreadInterNode::test(Operation operation) {
  return (operation & kReceive) == 0 || room_->arrived(rank_, operation);
}

std::optional<transport::InterNode::Heard> ThreadInterNode::hear() {
  std::optional<MailRoom::Letter> letter = room_->hear(rank_);
  if (!letter) return std::nullopt;
  letter_ = std::move(*letter);
  return Heard{letter_.from, letter_.data.data(), letter_.data.size()};
}

}  // namespace kolo::threads
