// SPDX-License-Identifier: Apache-2.0
//
// That something has changed which others may wait for. A driver notes it as often as it likes, and rings once, at the
// end of its pass.
#pragma once

#include <utility>

#include "base/clock.hpp"
#include "base/event_count.hpp"

namespace kolo::engine {

class Changes {
 public:
  // -- any thread
  [[nodiscard]] base::EventCount::Ticket ticket() const noexcept { return count_.ticket(); }
  void sleep(base::EventCount::Ticket ticket, base::Time until) { count_.sleep(ticket, until); }

  // -- the driver
  void note() noexcept { pending_ = true; }
  void settle() noexcept {
    if (std::exchange(pending_, false)) count_.ring();
  }

 private:
  base::EventCount count_;
  bool pending_ = false;
};

}  // namespace kolo::engine
