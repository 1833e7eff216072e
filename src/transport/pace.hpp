// SPDX-License-Identifier: Apache-2.0
//
// How long a rank may sleep while messages come slowly for a long time. Waking up for each message is right if a thread
// waits for it. It is a waste while many messages are under way and the link is the bottleneck, because a wake-up costs
// more than most messages. Once messages have come for a while, the rank naps instead: at most for the time in which a
// part of its open receives will complete, so that the link never runs dry, and at most for a small part of the time so
// far, so that the nap in which the last message comes does not matter. While a rank naps, messages must come and go
// without it: over UCX they need no rendezvous (ucx/ucx_inter_node.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.hpp"

namespace kolo::transport {

class Pace {
 public:
  /// Call it at each look; `open`: messages under way. With none, the count starts anew.
  void look(base::Time now, std::size_t open) noexcept {
    if (open == 0 || begun_ == base::Time::max()) {
      begun_ = open == 0 ? base::Time::max() : now;
      received_ = 0;
    }
    now_ = now;
  }
  /// A message has been received.
  void receive() noexcept { ++received_; }
  /// The length of a nap, as of the last look, with so many receives open; empty: a nap is not worth it.
  [[nodiscard]] std::optional<base::Duration> nap(std::size_t receives) const noexcept {
    if (begun_ == base::Time::max() || received_ < kLeastReceived) return std::nullopt;
    const base::Duration passed = now_ - begun_;
    const base::Duration each = passed / received_;
    const base::Duration nap = std::min(
        {passed / kPartOfTime, each * static_cast<std::int64_t>(receives) / kPartOfOpen, base::Duration(kLongest)});
    if (nap < kShortest) return std::nullopt;
    return nap;
  }

  static constexpr std::int64_t kLeastReceived = 8;
  static constexpr std::int64_t kPartOfTime = 8;
  static constexpr std::int64_t kPartOfOpen = 2;
  /// The shortest nap. At 1 Gbit/s, where two ranks of a host get a message of 64 KiB each every 1.1 ms, naps of 2 to 8
  /// ms halved the CPU time of an all-reduce of 64 MiB, and it took no longer.
  static constexpr std::chrono::milliseconds kShortest{2};
  /// The longest nap. It may be longer than the time in which a death must be noticed: control connections report
  /// deaths.
  static constexpr std::chrono::milliseconds kLongest{200};

 private:
  base::Time begun_ = base::Time::max();  ///< when messages were under way first, without a pause since
  base::Time now_;
  std::int64_t received_ = 0;
};

}  // namespace kolo::transport
