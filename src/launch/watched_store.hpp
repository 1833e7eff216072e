// SPDX-License-Identifier: Apache-2.0
//
// A store that knows when a start by it cannot succeed any more, because the keeper has said that a member is gone. The
// start then fails at once, instead of waiting for that member until KOLO_CONNECT_TIMEOUT_S is over.
#pragma once

#include <string>

#include <kolo/store.hpp>

namespace kolo::launch {

/// The new members may be called from any thread.
class WatchedStore : public Store {
 public:
  /// Readable once `why_over` says something.
  [[nodiscard]] virtual int fd() const noexcept = 0;
  /// Why the start cannot succeed; empty: it may.
  [[nodiscard]] virtual std::string why_over() const = 0;
};

}  // namespace kolo::launch
