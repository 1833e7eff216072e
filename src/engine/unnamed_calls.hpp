// SPDX-License-Identifier: Apache-2.0
//
// The unnamed calls of a rank in one set that may pass by the log (control/express.hpp, express_routes.hpp): whether
// they still may, and how many did. How to wait for the peers is the engine's (express.cpp).
//
// The first unnamed call of a set other than the world goes by the log: when it is over, all members have made their
// ends of the express, and the memory holds nothing of the set that had it before. So does the first after a join, in
// which all go on from the same number.
//
// Leaving early. Where ranks share CPUs every meeting costs turns on them. So a rank leaves calls early there, once
// kSteady calls in a row have gone together: the first calls of a program wait for all ranks, and so tell their own
// mismatches.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

#include "base/columns.hpp"
#include "control/express.hpp"
#include "core/signature.hpp"
#include "engine/express_routes.hpp"
#include "engine/left_calls.hpp"

namespace kolo::engine {

class UnnamedCalls {
 public:
  /// Once, before any call. Without it all calls go by the log. `ready`: all members have made theirs before the first
  /// call. `ahead`: of the express; `runs_ahead`: this rank may leave calls early.
  void make_express(const base::Columns& columns, int local_rank, Readers readers, const ExpressLimits& limits,
                    bool ready, std::uint64_t ahead, bool runs_ahead) {
    runs_ahead_ = runs_ahead;
    express_.emplace(columns, limits.carried_bytes, local_rank, ahead);
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

  /// Whether some call that this rank has left is not settled.
  [[nodiscard]] bool has_left() const noexcept { return has_left_.load(std::memory_order_acquire); }
  /// Whether somebody waits for such a call to be settled.
  [[nodiscard]] bool is_wanted() const noexcept { return express_ && express_->is_wanted(); }
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }
  /// Of calls that this rank has left.
  [[nodiscard]] LeftCalls& left() noexcept { return left_; }

  // -- inside the claim of the unnamed calls
  /// Up to which call this rank must have settled before it begins this one. `open`: see `begin`. If settling that ends
  /// in the log this rank will not leave the call, and writes into a long payload after all: then all have submitted
  /// the oldest unsettled call, and so have left the one that wrote there last.
  [[nodiscard]] core::Round settled_before(const ExpressCall& call, bool open) const noexcept {
    if (!has_left()) return 0;
    const core::Round last = express_->call();
    if (!open || routes_->may_write_payload(call, may_leave())) return last;
    return last < express_->ahead() ? 0 : last + 1 - express_->ahead();
  }
  /// The last call that was left.
  [[nodiscard]] core::Round last_left() const noexcept { return last_left_; }
  /// Begins a call, and says it to the peers. False: it goes by the log. What must be settled is. `open`: `is_open`
  /// said so since the call before.
  [[nodiscard]] bool begin(const ExpressCall& call, bool open) {
    if (!may_begin(open)) return false;
    express_->speak(routes_->prepare(call, may_leave()));
    express_->expect(routes_->laid_out());
    return true;
  }
  /// Begins one that must go by the log; whether peers know that it does. Everything is settled.
  bool decline() noexcept {
    steady_ = 0;
    if (!may_begin(is_open())) return false;
    express_->say_by_log();
    return true;
  }
  /// Leaves the last call early. True: it is the first that this rank has left in this set. `timeout`: of the call, if
  /// the log must do it.
  bool leave(const ExpressCall& call, std::optional<std::chrono::nanoseconds> timeout) {
    left_.add(express_->call(), call, routes_->laid_out_at(), timeout);
    express_->leave();
    last_left_ = express_->call();
    has_left_.store(true, std::memory_order_release);
    return !std::exchange(has_ever_left_, true);
  }
  /// The oldest call that was left is settled.
  void settle() noexcept {
    express_->settle();
    has_left_.store(express_->settled() < last_left_, std::memory_order_release);
  }
  /// The oldest call that was left is settled: it went by the log, with this outcome.
  void settle_by_log(const Status& status) {
    const core::Round call = express_->settled() + 1;
    if (!status.ok() && !left_.is_told(call)) left_.note_failure(status);
    count(-1, -static_cast<std::int64_t>(left_.bytes(call)));  // the log counts it
    note_verdict(false);
    settle();
  }
  /// The last call has gone together, or by the log.
  void note_verdict(bool together) noexcept { steady_ = together ? steady_ + 1 : 0; }
  /// All go on after that call, and by the log unless `open`.
  void resume(core::Round call, bool open) noexcept {
    if (!express_) return;
    express_->resume(call);
    steady_ = 0;
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
  /// Where ranks share CPUs: whether the next wait should pause for words of other CPUs. Such pauses are in vain where
  /// processes of others hold those CPUs: then some waits do without.
  [[nodiscard]] bool may_pause() noexcept { return waits_without_ == 0 || --waits_without_ == 0; }
  void note_vain_pauses() noexcept { waits_without_ = kWaitsWithout; }
  void note_done(std::size_t bytes) {
    routes_->end_call();
    count(1, static_cast<std::int64_t>(bytes));
  }

 private:
  static constexpr int kWaitsWithout = 16;
  static constexpr std::uint64_t kSteady = 32;
  [[nodiscard]] bool may_leave() const noexcept { return runs_ahead_ && steady_ >= kSteady; }

  /// One writer at a time.
  void count(std::int64_t calls, std::int64_t bytes) noexcept {
    const auto add = [](std::atomic<std::uint64_t>& counter, std::int64_t amount) {
      counter.store(counter.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(amount),
                    std::memory_order_relaxed);
    };
    add(done_, calls);
    add(bytes_, bytes);
  }
  bool may_begin(bool open) noexcept {
    if (!express_) return false;
    if (std::exchange(is_ready_, true) && open) return true;
    express_->pass_over();
    return false;
  }

  std::optional<control::Express> express_;
  std::optional<ExpressRoutes> routes_;
  LeftCalls left_;
  std::atomic<bool> has_left_{false};
  std::uint64_t steady_ = 0;  // calls in a row
  bool runs_ahead_ = false;
  bool has_ever_left_ = false;
  core::Round last_left_ = 0;
  bool is_ready_ = false;
  int waits_without_ = 0;  // pauses
  std::atomic<bool> open_{true};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace kolo::engine
