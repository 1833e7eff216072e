// SPDX-License-Identifier: Apache-2.0
//
// The blocking unnamed calls of a rank in one set: whether they may avoid the log (control/express.hpp), and how many
// did.
//
// The first unnamed call of a set other than the world goes by the log: when it is over, all members have made their
// ends of the express, and the memory holds nothing of the set that had it before. So does the first after a join, in
// which all go on from the same number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/columns.hpp"
#include "control/express.hpp"
#include "core/signature.hpp"
#include "engine/express_data.hpp"

namespace kolo::engine {

class UnnamedCalls {
 public:
  /// Once, before any call. Without it all calls go by the log. `longest`: inputs of more bytes do so. `ready`: all
  /// members have made theirs before the first call.
  void make_express(const base::Columns& columns, int local_rank, std::size_t longest, kernels::PeerCopy to_peers,
                    bool ready) {
    express_.emplace(columns, longest, local_rank);
    data_.emplace(*express_, to_peers);
    is_ready_ = ready;
  }

  // -- any thread
  /// From now on all calls go by the log: a rank has left, or has joined, and will not come to any.
  void close() noexcept { open_.store(false, std::memory_order_release); }
  /// Calls that avoided the log, and the bytes of their inputs.
  [[nodiscard]] std::uint64_t done() const noexcept { return done_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  // -- inside the claim of the unnamed calls
  /// Begins a call, and tells the peers. Null: it goes by the log without a word. Else the verdict decides.
  [[nodiscard]] control::Express* begin(const ExpressCall& call) {
    if (!may_begin()) return nullptr;
    express_->begin();
    express_->speak(data_->lay_out(call) ? tag_of(call) : control::Express::kByLog);
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
  /// Begins a call that must go by the log.
  void decline() noexcept {
    if (may_begin()) express_->say_by_log();
  }
  /// All go on after that call, and by the log unless `open`.
  void resume(core::Round call, bool open) noexcept {
    if (!express_) return;
    express_->resume(call);
    is_ready_ = false;
    open_.store(open, std::memory_order_release);
  }
  /// The number of the call that was begun last, for one that goes by the log; 0: all go there.
  [[nodiscard]] core::Round call() const noexcept { return express_ ? express_->call() : 0; }

 private:
  static control::Express::Tag tag_of(const ExpressCall& call) noexcept {
    return control::Express::tag_of(call.kind, call.dtype, call.shape, call.op, call.prescale, call.postscale,
                                    call.root);
  }
  [[nodiscard]] bool may_begin() noexcept {
    if (!express_) return false;
    if (std::exchange(is_ready_, true) && open_.load(std::memory_order_acquire)) return true;
    express_->pass_over();
    return false;
  }

  std::optional<control::Express> express_;
  std::optional<ExpressData> data_;
  bool is_ready_ = false;
  std::atomic<bool> open_{true};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace kolo::engine
