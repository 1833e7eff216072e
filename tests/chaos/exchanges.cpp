// SPDX-License-Identifier: Apache-2.0
#include "exchanges.hpp"

#include <array>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

namespace kolo::chaos {
namespace {

constexpr int kRounds = 60;
/// Short, long enough for the ring in shared memory, and read where it lies.
constexpr std::array<std::size_t, 3> kLengths = {1, 3000, 60000};

class Rounds {
 public:
  Rounds(std::uint64_t seed, const std::function<void()>& event) : random_(seed), event_(event) {}

  void run() {
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t length = kLengths[random_() % kLengths.size()];
      round_ = round;
      out_.assign(length, round * size_ + rank_);
      in_.assign(length, -1);
      const auto pattern = random_() % 4;
      event_();
      if (pattern == 0) {
        ring();
      } else if (pattern == 1) {
        chain();
      } else if (pattern == 2) {
        at_once();
      } else {
        gather(static_cast<int>(random_() % static_cast<std::uint64_t>(size_)));
      }
    }
  }

 private:
  [[nodiscard]] int after() const { return (rank_ + 1) % size_; }
  [[nodiscard]] int before() const { return (rank_ + size_ - 1) % size_; }
  void check(int source) const {
    const int wanted = out_.front() - rank_ + source;
    if (in_.front() != wanted || in_.back() != wanted)
      throw std::runtime_error("a message of rank " + std::to_string(source) + " has other data");
  }

  /// All at once: each sends to the next one, and receives from the one before.
  void ring() {
    sendrecv(const_view(out_), after(), view(in_), before());
    check(before());
  }
  /// One after another: each receives before it sends.
  void chain() {
    if (rank_ > 0) {
      recv(view(in_), before());
      check(before());
      event_();
    }
    if (rank_ + 1 < size_) send(const_view(out_), after());
  }
  /// As `ring`, with events while both messages are in flight.
  void at_once() {
    Handle received = recv_async(view(in_), before());
    event_();
    Handle sent = send_async(const_view(out_), after());
    event_();
    received.wait();
    sent.wait();
    check(before());
  }
  /// One receives from whoever comes, and answers each. The tags are the round's: a rank that has its answer may be in
  /// the next round already.
  void gather(int root) {
    if (rank_ != root) {
      send(const_view(out_), root, 2 * round_ + 1);
      event_();
      recv(view(in_), root, 2 * round_ + 2);
      return check(root);
    }
    for (int other = 1; other < size_; ++other) {
      const int source = recv(view(in_), any_rank, 2 * round_ + 1).source;
      check(source);
      event_();
      send(const_view(out_), source, 2 * round_ + 2);
    }
  }

  std::mt19937_64 random_;
  const std::function<void()>& event_;
  const int rank_ = kolo::rank();
  const int size_ = kolo::size();
  int round_ = 0;
  std::vector<int> out_;
  std::vector<int> in_;
};

}  // namespace

void exchange_messages(std::uint64_t seed, const std::function<void()>& event) { Rounds(seed, event).run(); }

}  // namespace kolo::chaos
