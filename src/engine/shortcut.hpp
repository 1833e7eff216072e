// SPDX-License-Identifier: Apache-2.0
//
// The shortcut of one set, as this rank uses it: whether a call may avoid the log (control/shortcut.hpp), what it does
// with its data (data/small_calls.hpp), and how many did.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "control/shortcut.hpp"
#include "core/collectives.hpp"
#include "core/shortcut_memory.hpp"
#include "core/signature.hpp"
#include "data/small_calls.hpp"
#include "engine/counts.hpp"

namespace kolo::engine {

class SetShortcut {
 public:
  /// Once, before any call. Without it all calls go by the log, and with it all up to the number `by_log`.
  void make(const core::ShortcutMemory& memory, std::unique_ptr<data::SmallCalls> data, core::Round by_log) {
    words_.emplace(memory);
    data_ = std::move(data);
    by_log_ = by_log;
  }

  // -- any thread
  /// From now on calls go by the log: one may be over that a member has not made, or never will make.
  void close() noexcept { open_.store(false, std::memory_order_release); }
  void open() noexcept { open_.store(true, std::memory_order_release); }
  /// Adds the calls that avoided the log, by kind.
  void add_counts(CountsByKind& to) const noexcept {
    for (std::size_t kind = 0; kind < to.size(); ++kind) {
      to[kind].calls += done_[kind].calls.load(std::memory_order_relaxed);
      to[kind].bytes += done_[kind].bytes.load(std::memory_order_relaxed);
    }
  }
  /// This rank has given the call to the log. In the order of the calls.
  void give(core::Round call) noexcept {
    if (words_) words_->give(call);
  }

  // -- the thread that holds the reservation (sequence.hpp), once the call before is over
  [[nodiscard]] bool is_open_for(core::Round call) const noexcept {
    return words_ && call > by_log_ && open_.load(std::memory_order_acquire);
  }
  /// Tells the peers of a call. Null: it must go by the log, and nothing was told.
  [[nodiscard]] control::Shortcut* begin(core::Round number, const data::SmallCall& call) {
    words_->begin(number);
    if (!data_->lay_out(number, call)) return nullptr;
    words_->speak(control::Shortcut::tag_of(call.kind, call.dtype, call.shape, call.op, call.prescale, call.postscale,
                                            call.root));
    data_->expect_next();
    return &*words_;
  }
  /// Does the call that was begun last, once the verdict is `together`. Throws what `make_room` throws.
  void finish(const data::SmallCall& call) {
    data_->take(call);
    Count& done = done_[static_cast<std::size_t>(call.kind)];  // one writer at a time
    done.calls.store(done.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    done.bytes.store(done.bytes.load(std::memory_order_relaxed) + call.bytes(), std::memory_order_relaxed);
  }

 private:
  std::optional<control::Shortcut> words_;
  std::unique_ptr<data::SmallCalls> data_;
  core::Round by_log_ = 0;
  std::atomic<bool> open_{true};
  struct Count {
    std::atomic<std::uint64_t> calls{0}, bytes{0};
  };
  std::array<Count, core::kCollectiveCount> done_;
};

}  // namespace kolo::engine
