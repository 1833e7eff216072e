// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/matching.hpp"

#include <algorithm>
#include <utility>

namespace kolo::p2p {
namespace {

bool fits(const Message& receive, const Frame& frame, int source) noexcept {
  return receive.set == frame.set && (receive.peer == kAny || receive.peer == source) &&
         (receive.tag == kAny || receive.tag == frame.tag);
}

/// Of a block of memory, beside its contents.
constexpr std::uint64_t kBlockBytes = 16;

}  // namespace

std::uint64_t Arrival::cost() const noexcept {
  return sizeof(Arrival) + (data == nullptr ? 0 : kBlockBytes + frame.bytes);
}

void Matching::keep(Arrival arrival) {
  Kept& of_source = kept_of_[arrival.source];
  const std::uint64_t cost = arrival.cost();
  arrivals_.push_back(std::move(arrival));
  for (Kept* kept : {&of_source, &kept_}) {
    ++kept->messages;
    kept->bytes += cost;
  }
}

template <class Which>
std::optional<Arrival> Matching::take_first(Which&& which) {
  const auto found = std::find_if(arrivals_.begin(), arrivals_.end(), which);
  if (found == arrivals_.end()) return std::nullopt;
  std::optional<Arrival> taken = std::move(*found);
  arrivals_.erase(found);
  for (Kept* kept : {&kept_of_.find(taken->source)->second, &kept_}) {
    --kept->messages;
    kept->bytes -= taken->cost();
  }
  return taken;
}

Matching::Kept Matching::kept_of(int source) const noexcept {
  const auto found = kept_of_.find(source);
  return found == kept_of_.end() ? Kept() : found->second;
}

void Matching::clear() noexcept {
  posted_.clear();
  arrivals_.clear();
  kept_of_.clear();
  kept_ = {};
}

std::optional<Arrival> Matching::post(Message& receive) {
  std::optional<Arrival> arrival = take_first([&](const Arrival& one) { return fits(receive, one.frame, one.source); });
  if (!arrival) posted_.push_back(&receive);
  return arrival;
}

Message* Matching::find(const Frame& frame, int source) {
  const auto found = std::find_if(posted_.begin(), posted_.end(),
                                  [&](const Message* receive) { return fits(*receive, frame, source); });
  if (found == posted_.end()) return nullptr;
  Message* const receive = *found;
  posted_.erase(found);
  return receive;
}

bool Matching::remove(const Message& receive) { return std::erase(posted_, &receive) > 0; }

std::optional<Arrival> Matching::remove(int source, std::uint64_t id) {
  const auto is_it = [&](const Arrival& one) {
    return one.source == source && one.frame.kind == FrameKind::announced && one.frame.id == id;
  };
  return take_first(is_it);
}

std::optional<Arrival> Matching::take_of_set(std::uint64_t set) {
  return take_first([&](const Arrival& one) { return one.frame.set == set; });
}

}  // namespace kolo::p2p
