// SPDX-License-Identifier: Apache-2.0
//
// A bounded queue from many threads to one, without locks (after D. Vyukov's bounded queue).
//
// Every cell carries a sequence number. Cell i starts at i: free for the producer who claims ticket i. A producer
// claims the next ticket t by advancing tail_, fills cell t mod capacity, and sets its sequence to t + 1: full. The
// consumer takes it out and sets t + capacity: free for the ticket one round later.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/machine.hpp"

namespace kolo::base {

/// Any number of threads push; one at a time pops (different threads may pop if a lock orders them).
template <class T>
class Mailbox {
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T>,
                "an exception would leave a claimed cell that is never filled");

 public:
  /// Room for at least this many, rounded up to a power of two (at least 2).
  explicit Mailbox(std::size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? std::size_t{2} : capacity) - 1), cells_(new Cell[mask_ + 1]) {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].sequence.store(i, std::memory_order_relaxed);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox() {
    while (try_pop()) {
    }
  }

  /// Any thread. False if full; the value is then unchanged. If a producer pushes and then checks for a sleeper, and
  /// the consumer marks itself asleep and then checks `empty`, all sequentially consistent, at least one sees the
  /// other.
  [[nodiscard]] bool try_push(T&& value) noexcept {
    std::size_t ticket = tail_.load(std::memory_order_relaxed);
    while (true) {
      Cell& cell = cells_[ticket & mask_];
      const std::size_t sequence = cell.sequence.load(std::memory_order_acquire);
      const auto ahead = static_cast<std::ptrdiff_t>(sequence - ticket);
      if (ahead < 0) return false;  // still holds the value of one round ago
      if (ahead > 0) {
        ticket = tail_.load(std::memory_order_relaxed);  // another producer claimed this ticket
      } else if (tail_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) {
        ::new (static_cast<void*>(cell.storage)) T(std::move(value));
        cell.sequence.store(ticket + 1, std::memory_order_seq_cst);
        return true;
      }
    }
  }

  /// Only the consumer. Empty if there is nothing, or if the next cell is still being filled.
  [[nodiscard]] std::optional<T> try_pop() noexcept {
    Cell& cell = cells_[head_ & mask_];
    if (cell.sequence.load(std::memory_order_acquire) != head_ + 1) return std::nullopt;
    T* value = std::launder(reinterpret_cast<T*>(cell.storage));
    std::optional<T> result(std::move(*value));
    value->~T();
    cell.sequence.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return result;
  }

  /// Only the consumer. Whether `try_pop` would find nothing. Sequentially consistent, see `try_push`.
  [[nodiscard]] bool empty() const noexcept {
    return cells_[head_ & mask_].sequence.load(std::memory_order_seq_cst) != head_ + 1;
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

 private:
  struct Cell {
    std::atomic<std::size_t> sequence;
    alignas(T) std::byte storage[sizeof(T)];
  };

  const std::size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(kCacheLine) std::atomic<std::size_t> tail_{0};  // the next ticket; producers
  alignas(kCacheLine) std::size_t head_ = 0;              // the next to pop; the consumer
};

}  // namespace kolo::base
