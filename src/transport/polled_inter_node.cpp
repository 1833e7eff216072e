// SPDX-License-Identifier: Apache-2.0
#include "transport/polled_inter_node.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

namespace kolo::transport {
namespace {

constexpr std::chrono::microseconds kShortestNap{20};
constexpr std::chrono::milliseconds kLongestNap{1};
/// After what time without data a rank reports that it is starved; the longest time between two reports; how long ranks
/// push after one.
constexpr std::chrono::milliseconds kStarved{100};
constexpr std::chrono::seconds kMostStarved{1};
constexpr std::chrono::milliseconds kPushing{100};

}  // namespace

PolledInterNode::PolledInterNode(std::shared_ptr<InterNode> transport)
    : transport_(std::move(transport)), starving_(kStarved) {}

PolledInterNode::~PolledInterNode() {
  const Call call(watched());
  transport_.reset();
}

void PolledInterNode::limit_calls(base::Duration patience, const std::string& last_words) {
  watch_.emplace(patience, last_words, EXIT_FAILURE);
}

void PolledInterNode::listen(int tag, std::size_t bytes) {
  const Call call(watched());
  transport_->listen(tag, bytes);
}

InterNode::Operation PolledInterNode::send(int rank, int tag, const std::byte* data, std::size_t bytes) {
  const Call call(watched());
  return note(transport_->send(rank, tag, data, bytes));
}

InterNode::Operation PolledInterNode::receive(int rank, int tag, std::byte* data, std::size_t bytes) {
  const Call call(watched());
  return note(transport_->receive(rank, tag, data, bytes));
}

InterNode::Operation PolledInterNode::note(Operation operation) noexcept {
  ++open_;
  moved_ = true;
  return operation;
}

bool PolledInterNode::test(Operation operation) {
  const Call call(watched());
  if (!transport_->test(operation)) return false;
  --open_;
  moved_ = true;
  return true;
}

std::optional<InterNode::Heard> PolledInterNode::hear() {
  const Call call(watched());
  std::optional<Heard> heard = transport_->hear();
  moved_ |= heard.has_value();
  return heard;
}

void PolledInterNode::expect(bool expects) {
  if (std::exchange(expects_, expects) == expects) return;
  open_ = expects ? open_ + 1 : open_ - 1;
  moved_ = true;
}

void PolledInterNode::push(base::Time now) { push_until_ = now + kPushing; }

void PolledInterNode::progress(base::Time now) {
  looked_at_ = now;
  if (now < push_until_) {
    const Call call(watched());
    transport_->push(now);
  }
  watch(now);
}

/// A send that is not received counts as well: its receiver may be the rank that waits.
void PolledInterNode::watch(base::Time now) {
  if (std::exchange(moved_, false) || open_ == 0) {
    starved_at_ = base::Time::max();
    starving_ = kStarved;
    quiet_since_ = now;
  } else if (starved_at_ == base::Time::max()) {
    starved_at_ = now + starving_;
  } else if (now >= starved_at_) {
    if (reports_.starved) reports_.starved();
    starving_ = std::min<base::Duration>(2 * starving_, kMostStarved);
    starved_at_ = now + starving_;
  }
}

std::optional<std::chrono::nanoseconds> PolledInterNode::nap() noexcept {
  if (open_ > 0) return std::clamp<std::chrono::nanoseconds>(looked_at_ - quiet_since_, kShortestNap, kLongestNap);
  if (looked_at_ < push_until_) return kLongestNap;
  return std::nullopt;
}

}  // namespace kolo::transport
