// SPDX-License-Identifier: Apache-2.0
//
// A bounded queue of words from many threads to one, without locks. It is D. Vyukov's bounded queue with a sequence
// number and a value in one word, so that a push is one atomic step where that queue needs two.
//
// Ticket t belongs to cell t mod capacity. A cell holds an odd word, which was pushed, or an even one: 2 t, free for
// ticket t. A producer changes the first free cell from 2 t to its word, in one step; that claims the ticket and fills
// it. The consumer takes the word out and writes 2 (t + capacity): free for the ticket one round later.
//
// Where the first free ticket is, `tail_` says, or a ticket before it: it is written behind a push, by whoever comes
// last. From there a producer goes on, ticket by ticket. It cannot take a free cell of another ticket for its own, and
// so it leaves no gap. A word in the cell was pushed with this ticket or a later one of the cell, or, when the mailbox
// is full, a round before: how far the consumer has come tells these apart.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/cache_line.hpp"

namespace kolo::base {

/// Any number of threads push; one at a time pops (the consumers may change if something orders them, say a lock).
class Mailbox {
 public:
  /// Room for at least this many, rounded up to a power of two (at least 2).
  explicit Mailbox(std::size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? std::size_t{2} : capacity) - 1), cells_(new Cell[mask_ + 1]) {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].store(2 * i, std::memory_order_relaxed);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox() = default;

  /// Any thread. `word` is odd. False when full, or when it has been a moment ago. A push, then a sequentially
  /// consistent look for a sleeper never misses a consumer that announced its sleep likewise and then found the mailbox
  /// `empty`.
  [[nodiscard]] bool try_push(std::uint64_t word) noexcept {
    // Whoever reads a ticket here sees all pushes before it: no older state of their cells.
    std::uint64_t ticket = tail_.load(std::memory_order_acquire);
    while (true) {
      std::uint64_t free = 2 * ticket;
      if (cell(ticket).compare_exchange_strong(free, word, std::memory_order_seq_cst, std::memory_order_relaxed)) {
        tail_.store(ticket + 1, std::memory_order_release);
        return true;
      }
      // First how far the consumer has come, then the cell: a word that was pushed a round before is not taken for this
      // round's because it is popped in between.
      const std::uint64_t head = head_.load(std::memory_order_acquire);
      const std::uint64_t now = cell(ticket).load(std::memory_order_acquire);
      if (now == 2 * ticket) continue;
      if (is_word(now) && ticket >= head + capacity()) return false;
      ticket = std::max(ticket + 1, head);  // all before the head are over
    }
  }

  /// The consumer. 0 when nothing is there.
  [[nodiscard]] std::uint64_t try_pop() noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    const std::uint64_t word = cell(head).load(std::memory_order_acquire);
    if (!is_word(word)) return 0;
    cell(head).store(2 * (head + capacity()), std::memory_order_release);
    head_.store(head + 1, std::memory_order_release);
    return word;
  }

  /// The consumer: whether `try_pop` would find nothing. Sequentially consistent, see `try_push`.
  [[nodiscard]] bool empty() const noexcept {
    return !is_word(cells_[head_.load(std::memory_order_relaxed) & mask_].load(std::memory_order_seq_cst));
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

 private:
  using Cell = std::atomic<std::uint64_t>;

  [[nodiscard]] static bool is_word(std::uint64_t cell) noexcept { return (cell & 1) != 0; }
  [[nodiscard]] Cell& cell(std::uint64_t ticket) noexcept { return cells_[ticket & mask_]; }

  const std::size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(kCacheLine) std::atomic<std::uint64_t> tail_{0};  // the first free ticket, or one before it; producers
  alignas(kCacheLine) std::atomic<std::uint64_t> head_{0};  // the next to pop; written by the consumer
};

}  // namespace kolo::base
