// SPDX-License-Identifier: Apache-2.0
//
// How long a rank may look away from messages that come slowly and for long. To be woken for each of them is right
// while somebody waits for it, and a waste while many are under way and the link is what takes the time: a wake-up
// costs more than most messages. So once messages have come for a while, the rank naps instead: for the time in which a
// part of those that it has asked for will come, so that the link never runs dry, and for a small part of the time that
// this has taken already, so that the nap that the last of them comes in does not count. While a rank naps, messages
// must go and come without it: over UCX they need no rendezvous (ucx/ucx_inter_node.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.hpp"

namespace kolo::transport {

class Pace {
 public:
  /// At each look; `open`: messages that are under way. With none of them the count begins anew.
  void look(base::Time now, std::size_t open) noexcept {
    if (open == 0 || begun_ == base::Time::max()) {
      begun_ = open == 0 ? base::Time::max() : now;
      received_ = 0;
    }
    now_ = now;
  }
  /// One has been received.
  void receive() noexcept { ++received_; }
  /// As of the last look, with so many receives open; nothing: it is not worth one.
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
  /// Shorter ones are not worth it. At 1 Gbit/s, where two ranks of a host get a message of 64 KiB each every 1.1 ms,
  /// naps of 2 to 8 ms halved the CPU time of an all-reduce of 64 MiB, and it took no longer.
  static constexpr std::chrono::milliseconds kShortest{2};
  /// The end of a peer's process is no reason for shorter ones: control connections tell of that.
  static constexpr std::chrono::milliseconds kLongest{200};

 private:
  base::Time begun_ = base::Time::max();  ///< when messages were under way first, without a pause since
  base::Time now_;
  std::int64_t received_ = 0;
};

}  // namespace kolo::transport
