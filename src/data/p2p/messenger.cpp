// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/messenger.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <kolo/error.hpp>

#include "base/machine.hpp"
#include "data/p2p/message_sentences.hpp"

namespace kolo::p2p {

Messenger::Messenger(const core::Topology& topology, std::byte* memory, transport::NodeLink& link,
                     std::shared_ptr<transport::PeerMemory> peers, std::uint64_t read_above, bool cpu_of_its_own,
                     kernels::PeerCopy to_peers, std::shared_ptr<transport::InterNode> inter)
    : topology_(topology), read_above_(peers ? read_above : std::numeric_limits<std::uint64_t>::max()),
      node_(topology, memory, link, std::move(peers), read_above, cpu_of_its_own, to_peers),
      net_(inter ? std::make_unique<NetChannels>(std::move(inter)) : nullptr), routes_(topology, node_, net_.get()),
      protocol_(topology.rank, topology.size, routes_) {}

/// After everything that changes what is open.
void Messenger::update() {
  busy_.store(protocol_.is_busy() || (net_ && net_->has_unsent()), std::memory_order_release);
  news_.store(protocol_.has_news(), std::memory_order_release);
}

bool Messenger::start(Message& message) {
  const base::MutexLock lock(mutex_);
  try {
    protocol_.start(message);
  } catch (...) {  // it is done
    update();
    throw;
  }
  update();
  return message.done();
}

bool Messenger::start(Span<Message* const> messages, int pauses) {
  const base::MutexLock lock(mutex_);
  const auto are_done = [&] {
    return std::all_of(messages.begin(), messages.end(), [](const Message* message) { return message->done(); });
  };
  try {
    for (Message* message : messages) protocol_.start(*message);
    if (!are_done()) look(pauses);
  } catch (...) {  // the messages go with the call
    for (Message* message : messages) protocol_.give_up(*message, no_memory());
    update();
    throw;
  }
  update();
  return are_done();
}

bool Messenger::try_send(const Message& send) {
  const base::MutexLock lock(mutex_);
  return protocol_.try_send(send);
}

Messenger::Look Messenger::look(Message& message, int pauses) {
  const base::MutexLock lock(mutex_);
  if (message.done()) return Look::done;
  const bool moved = look(pauses);
  if (moved) update();
  if (message.done()) return Look::done;
  return moved ? Look::moved : Look::nothing;
}

/// Pauses for as long as nothing has come, so often at most. A pause costs less than a look, and takes less from a rank
/// that shares this core.
bool Messenger::look(int pauses) {
  node_.disarm();
  if (!protocol_.moves()) {
    for (; pauses > 0 && !node_.has_come() && !mutex_.is_awaited(); --pauses) base::cpu_relax();
  }
  return protocol_.progress();
}

bool Messenger::hand_over(Message& message, void* owner, base::Time begun, std::chrono::nanoseconds patience,
                          base::Duration warn_after) {
  const base::MutexLock lock(mutex_);
  if (message.done()) return false;
  message.owner = owner;
  message.begun = begun;
  message.patience = patience;
  message.deadline = base::after(begun, patience);
  message.warn_at = base::after(begun, warn_after);
  protocol_.open().note_deadline(message);
  return true;
}

void Messenger::provide(Message& send, std::uint64_t bytes) {
  const base::MutexLock lock(mutex_);
  if (send.done()) return;
  protocol_.provide(send, bytes);
  update();
}

bool Messenger::cancel(Message& receive) {
  const base::MutexLock lock(mutex_);
  const bool was_open = protocol_.cancel(receive);
  update();
  return was_open;
}

void Messenger::await(Message& receive) {
  const base::MutexLock lock(mutex_);
  protocol_.await(receive);
  update();
}

void Messenger::give_up(Message& message, const Status& status, int because) {
  const base::MutexLock lock(mutex_);
  protocol_.give_up(message, status, because);
  update();
}

bool Messenger::leaves_node(const Message& message) const noexcept {
  if (topology_.node_count() == 1) return false;
  const auto is_elsewhere = [this](int rank) {
    return topology_.node_of[static_cast<std::size_t>(rank)] != topology_.node;
  };
  if (message.peer != kAny) return is_elsewhere(message.peer);
  return message.members == nullptr || std::any_of(message.members->begin(), message.members->end(), is_elsewhere);
}

bool Messenger::has_unsent() {
  const base::MutexLock lock(mutex_);
  return protocol_.has_unsent() || (net_ && net_->has_unsent());
}

bool Messenger::uses(const std::byte* begin, std::size_t bytes) {
  const base::MutexLock lock(mutex_);
  const std::vector<Message*>& open = protocol_.open().all();
  return std::any_of(open.begin(), open.end(), [&](const Message* message) {
    return message->tensor >= begin && message->tensor < begin + bytes;
  });
}

MessageCounters Messenger::counters() {
  const base::MutexLock lock(mutex_);
  return protocol_.open().counters();
}

base::Time Messenger::next_due_of_open() {
  const base::MutexLock lock(mutex_);
  return protocol_.open().empty() ? base::Time::max() : protocol_.open().next_due();
}

// ---------------------------------------------------------------- the driver

bool Messenger::is_read_by_peer(const Message& message) const noexcept {
  return message.bytes > read_above_ && message.role == Message::Role::send && message.peer != topology_.rank &&
         !leaves_node(message);
}

/// Whether something may come from other nodes that this rank waits for.
bool Messenger::moves_net() const {
  if (net_ == nullptr || closed_) return false;
  const std::vector<Message*>& open = protocol_.open().all();
  return protocol_.awaits_answers() ||
         std::any_of(open.begin(), open.end(), [this](const Message* message) { return leaves_node(*message); });
}

bool Messenger::progress(base::Time now, std::vector<std::string>& warnings) {
  const base::MutexLock lock(mutex_);
  if (closed_) return false;
  node_.disarm();
  routes_.drives = true;
  bool moved = false;
  try {
    if (net_) net_->expect(moves_net());
    moved = protocol_.progress();
    if (net_ && net_->has_unsent()) moved |= net_->look();
    if (now >= protocol_.open().next_due()) {
      protocol_.expire(now);
      warnings.swap(protocol_.warnings());
    }
  } catch (...) {
    routes_.drives = false;
    update();
    throw;
  }
  routes_.drives = false;
  update();
  return moved;
}

const News& Messenger::take_news() {
  const base::MutexLock lock(mutex_);
  protocol_.take_news(told_);
  update();
  return told_;
}

void Messenger::on_found(const Direction& direction) {
  const base::MutexLock lock(mutex_);
  protocol_.on_found(direction);
}

bool Messenger::arm() {
  const base::MutexLock lock(mutex_);
  if (closed_ || (!protocol_.is_busy() && !(net_ && net_->has_unsent()))) return !protocol_.has_news();
  protocol_.open().note_wait();
  node_.arm();
  const bool moved = protocol_.progress();  // of this node
  update();
  return !moved && !protocol_.has_news();
}

void Messenger::on_set(std::uint64_t set) {
  const base::MutexLock lock(mutex_);
  protocol_.on_set(set);
}

void Messenger::on_set_gone(std::uint64_t set) {
  const base::MutexLock lock(mutex_);
  protocol_.on_set_gone(set);
  update();
}

void Messenger::on_departed(const std::vector<std::int32_t>& ranks, const std::map<std::int32_t, std::int32_t>& because,
                            base::Time until) {
  const base::MutexLock lock(mutex_);
  if (ranks.size() == departed_) return;
  departed_ = ranks.size();
  for (const std::int32_t rank : ranks) {
    const auto cause = because.find(rank);
    protocol_.on_departed(rank, routes_.is_here(rank) ? base::Time::min() : until,
                          cause == because.end() ? -1 : cause->second);
  }
  update();
}

void Messenger::close(const Status& status) {
  const base::MutexLock lock(mutex_);
  closed_ = true;
  protocol_.close(status);
  if (net_) net_->expect(false);
  update();
}

}  // namespace kolo::p2p
