// SPDX-License-Identifier: Apache-2.0
//
// The shortcut of one set, as this rank uses it: whether a call may avoid the log (control/shortcut.hpp), and how many
// did.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/columns.hpp"
#include "control/shortcut.hpp"
#include "core/signature.hpp"
#include "data/kernels/peer_copy.hpp"
#include "engine/small_calls.hpp"

namespace kolo::engine {

class SetShortcut {
 public:
  /// Once, before any call. Without it all calls go by the log. `longest`: inputs of more bytes do so, and so do all
  /// calls up to the number `by_log`. `to_peers`: how inputs are written.
  void make(const base::Columns& columns, int local_rank, std::size_t longest, kernels::PeerCopy to_peers,
            core::Round by_log) {
    shortcut_.emplace(columns, longest, local_rank);
    data_.emplace(*shortcut_, to_peers);
    by_log_ = by_log;
  }

  // -- any thread
  /// From now on calls go by the log: one may be over that a member has not made, or never will make.
  void close() noexcept { open_.store(false, std::memory_order_release); }
  void open() noexcept { open_.store(true, std::memory_order_release); }
  /// Calls that avoided the log, and the bytes of their inputs.
  [[nodiscard]] std::uint64_t done() const noexcept { return done_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  /// This rank has given the call to the log. In the order of the calls.
  void give(core::Round call) noexcept {
    if (shortcut_) shortcut_->give(call);
  }

  // -- whoever has the turn (sequence.hpp), once the call before is over
  [[nodiscard]] bool is_open_for(core::Round call) const noexcept {
    return shortcut_ && call > by_log_ && open_.load(std::memory_order_acquire);
  }
  /// Tells the peers of a call. Null: it is too long, and nothing was told.
  [[nodiscard]] control::Shortcut* begin(core::Round number, const SmallCall& call) {
    shortcut_->begin(number);
    if (!data_->lay_out(call)) return nullptr;
    shortcut_->speak(control::Shortcut::tag_of(call.kind, call.dtype, call.shape, call.op, call.prescale,
                                               call.postscale, call.root));
    shortcut_->expect(data_->laid_out());
    return &*shortcut_;
  }
  /// Does the call that was begun last, once the verdict is `together`. Throws what `make_room` throws.
  void finish(const SmallCall& call) {
    data_->take(call);
    // One writer at a time.
    done_.store(done() + 1, std::memory_order_relaxed);
    bytes_.store(bytes() + call.bytes(), std::memory_order_relaxed);
  }

 private:
  std::optional<control::Shortcut> shortcut_;
  std::optional<SmallCalls> data_;
  core::Round by_log_ = 0;
  std::atomic<bool> open_{true};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace kolo::engine
