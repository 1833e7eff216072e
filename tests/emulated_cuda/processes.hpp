// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a communicator as processes: what they tell each other lies in shared memory that the communicator's id
// names. Collectives go one after another: a rank brings its input, with what it has been called with, waits until all
// have, and takes its own result from all inputs. Its input stays until all have taken theirs.
//
// Messages go from one rank to another through a channel of their own, one at a time. All of a group move together, as
// each comes to what it needs; a send is over when it has been received.
//
// A process has clocks of its own: of the others' memory it knows nothing, so that races are found within each process.
//
// Nothing here is locked: each word has one writer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arithmetic.hpp"

namespace kolo::emulated {

class ProcessRounds {
 public:
  static constexpr int kMostRanks = 16;
  /// What one rank brings to one collective at most.
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  /// And to one message.
  static constexpr std::size_t kMostMessageBytes = std::size_t{64} << 20;

  ProcessRounds(const std::string& id, int size);
  ~ProcessRounds();
  ProcessRounds(const ProcessRounds&) = delete;
  ProcessRounds& operator=(const ProcessRounds&) = delete;

  void join(int rank);
  [[nodiscard]] bool complete() const noexcept { return shared_->joined.load() == size_; }

  /// The rank's next collective, over memory that this process may touch. False when `ended` said so on the way, or
  /// ranks disagree: then `dispute` says how.
  [[nodiscard]] bool run(int rank, const Signature& signature, const Buffers& own, const std::function<bool()>& ended,
                         std::string& dispute);

  /// A send or a receive: the `number`-th from its sender to its receiver.
  struct Message {
    Signature signature;
    Buffers own;
    std::uint64_t number = 0;
    bool done = false;
  };
  /// The rank's messages of one group. False as above; those that are over are marked.
  [[nodiscard]] bool pass(int rank, std::vector<Message>& messages, const std::function<bool()>& ended,
                          std::string& dispute);

 private:
  struct Seat {
    std::atomic<std::uint64_t> brought{0};
    std::atomic<std::uint64_t> taken{0};
    Signature signature;  // of what was brought last
  };
  /// From one rank to another.
  struct Channel {
    std::atomic<std::uint64_t> brought{0};  // by the sender, as `sent` says
    std::atomic<std::uint64_t> taken{0};    // by the receiver, as `wanted` says
    std::uint64_t over = 0;                 // the sender's own: up to where it has seen what was wanted
    Signature sent;
    Signature wanted;
  };
  struct Shared {
    std::atomic<int> joined{0};
    Seat seats[kMostRanks];
    Channel channels[kMostRanks * kMostRanks];
  };

  [[nodiscard]] std::byte* input_of(int rank) const noexcept;
  [[nodiscard]] Channel& channel(int from, int to) const noexcept { return shared_->channels[from * size_ + to]; }
  [[nodiscard]] std::byte* message_of(int from, int to) const noexcept;
  [[nodiscard]] bool send(int rank, Message& message, std::string& dispute);
  [[nodiscard]] bool receive(int rank, Message& message, std::string& dispute);
  [[nodiscard]] bool wait(const std::function<bool()>& until, const std::function<bool()>& ended) const;

  const std::string name_;
  const int size_;
  std::size_t bytes_ = 0;
  Shared* shared_ = nullptr;
};

}  // namespace kolo::emulated
