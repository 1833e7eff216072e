// SPDX-License-Identifier: Apache-2.0
//
// The express of one set, as this rank uses it: whether a call may avoid the log (control/express.hpp), and how many
// did.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/columns.hpp"
#include "control/express.hpp"
#include "core/signature.hpp"
#include "data/kernels/peer_copy.hpp"
#include "engine/express_data.hpp"

namespace kolo::engine {

class ExpressRoute {
 public:
  /// Once, before any call. Without it all calls go by the log. `longest`: inputs of more bytes do so, and so do all
  /// calls up to the number `by_log`. `to_peers`: how inputs are written.
  void make(const base::Columns& columns, int local_rank, std::size_t longest, kernels::PeerCopy to_peers,
            core::Round by_log) {
    express_.emplace(columns, longest, local_rank);
    data_.emplace(*express_, to_peers);
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
    if (express_) express_->give(call);
  }

  // -- the thread that holds the reservation (sequence.hpp), once the call before is over
  [[nodiscard]] bool is_open_for(core::Round call) const noexcept {
    return express_ && call > by_log_ && open_.load(std::memory_order_acquire);
  }
  /// Tells the peers of a call. Null: it is too long, and nothing was told.
  [[nodiscard]] control::Express* begin(core::Round number, const ExpressCall& call) {
    express_->begin(number);
    if (!data_->lay_out(call)) return nullptr;
    express_->speak(
        control::Express::tag_of(call.kind, call.dtype, call.shape, call.op, call.prescale, call.postscale, call.root));
    express_->expect(data_->laid_out());
    return &*express_;
  }
  /// Does the call that was begun last, once the verdict is `together`. Throws what `make_room` throws.
  void finish(const ExpressCall& call) {
    data_->take(call);
    // One writer at a time.
    done_.store(done() + 1, std::memory_order_relaxed);
    bytes_.store(bytes() + call.bytes(), std::memory_order_relaxed);
  }

 private:
  std::optional<control::Express> express_;
  std::optional<ExpressData> data_;
  core::Round by_log_ = 0;
  std::atomic<bool> open_{true};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace kolo::engine
