// SPDX-License-Identifier: Apache-2.0
//
// The unnamed calls of a rank in one set that may pass by the log (control/express.hpp, express_routes.hpp): whether
// they still may, and how many did. How to wait for the peers is the engine's (express.cpp).
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
#include "engine/express_routes.hpp"

namespace kolo::engine {

class UnnamedCalls {
 public:
  /// Once, before any call. Without it all calls go by the log. `ready`: all members have made theirs before the first
  /// call.
  void make_express(const base::Columns& columns, int local_rank, Readers readers, const ExpressLimits& limits,
                    bool ready) {
    express_.emplace(columns, limits.carried_bytes, local_rank);
    routes_.emplace(*express_, std::move(readers), limits);
    is_ready_ = ready;
  }

  // -- any thread
  /// From now on all calls go by the log: a rank has left, or has joined, and will not come to any.
  void close() noexcept { open_.store(false, std::memory_order_release); }
  [[nodiscard]] std::uint64_t done() const noexcept { return done_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  /// A call has ended well by the log, on which that was decided. The next one may have begun.
  void note_done_by_log(const ExpressRoutes::Decision& decision) {
    if (routes_) routes_->note_end(decision);
  }

  // -- inside the claim of the unnamed calls
  /// Begins a call, and says it to the peers. False: it goes by the log.
  [[nodiscard]] bool begin(const ExpressCall& call) {
    if (!may_begin()) return false;
    express_->speak(routes_->prepare(call));
    express_->expect(routes_->laid_out());
    return true;
  }
  /// Begins one that must go by the log.
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
  /// What was decided on it.
  [[nodiscard]] ExpressRoutes::Decision decision() const noexcept {
    return routes_ ? routes_->decision_on(call()) : ExpressRoutes::Decision{};
  }
  /// Of a call that was begun.
  [[nodiscard]] control::Express& express() noexcept { return *express_; }
  [[nodiscard]] ExpressRoutes& routes() noexcept { return *routes_; }
  void note_done(std::size_t bytes) {
    routes_->end_call();
    // One writer at a time.
    done_.store(done() + 1, std::memory_order_relaxed);
    bytes_.store(this->bytes() + bytes, std::memory_order_relaxed);
  }

 private:
  bool may_begin() noexcept {
    if (!express_) return false;
    if (std::exchange(is_ready_, true) && open_.load(std::memory_order_acquire)) return true;
    express_->pass_over();
    return false;
  }

  std::optional<control::Express> express_;
  std::optional<ExpressRoutes> routes_;
  bool is_ready_ = false;
  std::atomic<bool> open_{true};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace kolo::engine
