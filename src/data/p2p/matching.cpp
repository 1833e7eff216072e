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

template <class Which>
std::optional<Arrival> take_first(std::deque<Arrival>& arrivals, Which&& which) {
  const auto found = std::find_if(arrivals.begin(), arrivals.end(), which);
  if (found == arrivals.end()) return std::nullopt;
  std::optional<Arrival> taken = std::move(*found);
  arrivals.erase(found);
  return taken;
}

}  // namespace

std::optional<Arrival> Matching::post(Message& receive) {
  std::optional<Arrival> arrival =
      take_first(arrivals_, [&](const Arrival& one) { return fits(receive, one.frame, one.source); });
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

bool Matching::remove(const Message& receive) {
  const auto found = std::find(posted_.begin(), posted_.end(), &receive);
  if (found == posted_.end()) return false;
  posted_.erase(found);
  return true;
}

bool Matching::remove(int source, std::uint64_t id) {
  return take_first(arrivals_,
                    [&](const Arrival& one) {
                      return one.source == source && one.frame.kind == FrameKind::announced && one.frame.id == id;
                    })
      .has_value();
}

std::optional<Arrival> Matching::take_of_set(std::uint64_t set) {
  return take_first(arrivals_, [&](const Arrival& one) { return one.frame.set == set; });
}

}  // namespace kolo::p2p
