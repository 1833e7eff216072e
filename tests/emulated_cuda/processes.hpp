// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a communicator as processes: what they tell each other lies in shared memory that the communicator's id
// names. Collectives go one after another: a rank brings its input, with what it has been called with, waits until all
// have, and takes its own result from all inputs. Its input stays until all have taken theirs.
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

#include "arithmetic.hpp"

namespace kolo::emulated {

class ProcessRounds {
 public:
  static constexpr int kMostRanks = 16;
  /// What one rank brings to one collective at most.
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;

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

 private:
  struct Seat {
    std::atomic<std::uint64_t> brought{0};
    std::atomic<std::uint64_t> taken{0};
    Signature signature;  // of what was brought last
  };
  struct Shared {
    std::atomic<int> joined{0};
    Seat seats[kMostRanks];
  };

  [[nodiscard]] std::byte* input_of(int rank) const noexcept;
  [[nodiscard]] bool wait(const std::function<bool()>& until, const std::function<bool()>& ended) const;

  const std::string name_;
  const int size_;
  std::size_t bytes_ = 0;
  Shared* shared_ = nullptr;
};

}  // namespace kolo::emulated
