// SPDX-License-Identifier: Apache-2.0
//
// One rank in one world: executes the common plan in an order of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <kolo/context.hpp>

#include "plan.hpp"

namespace kolo::soak {

using testing::InFlight;

class Cells;

/// How long a rank has waited for one thing.
struct Wait {
  double seconds = 0;
  std::string what;
  std::uint64_t step = 0;
};

/// In each step a rank draws for itself: which tensors lie in an arena, the order of submission, one or more threads
/// that submit and wait, the way of waiting, and which operations it leaves open beyond the step's end. (All of a step
/// is submitted before anything of it is waited for: two ranks that wait for each other's next call would wait forever,
/// and rightly.) One thread.
class Rank {
 public:
  /// `before_call` is called before every submission, every wait and every unnamed call, on the thread that makes it.
  Rank(
      Context& context, std::uint64_t seed, std::uint64_t world, const Limits& limits,
      std::function<void()> before_call = [] {});

  /// Throws Wrong, with the operation's description.
  void run(const Step& step, std::uint64_t number);
  /// What was left open. To be called before the world ends.
  void finish();
  /// Of all waits so far.
  [[nodiscard]] Wait longest_wait() const;

 private:
  using Members = std::vector<std::unique_ptr<InFlight>>;

  std::unique_ptr<InFlight> make(const Operation& operation, Random& own);
  std::unique_ptr<InFlight> take(const Operation& operation, Random& own);
  void put_back(std::unique_ptr<InFlight> one);
  void submit(Members& members, const Step& step, Random& own);
  void wait(Members& members, Random& own);
  void run_unnamed(int calls, std::uint64_t number);
  /// Makes a call that may wait, on any thread.
  void wait_in(const std::string& what, const std::function<void()>& call);

  Context& context_;
  const std::function<void()> before_call_;
  const std::uint64_t seed_;
  const std::uint64_t world_;
  std::shared_ptr<Cells> cells_;  ///< an arena's
  std::map<std::string, std::unique_ptr<InFlight>> prepared_;
  std::map<std::string, std::unique_ptr<InFlight>> late_;  ///< still open, by name
  std::uint64_t step_ = 0;
  mutable std::mutex mutex_;
  Wait longest_;  ///< guarded by mutex_
};

}  // namespace kolo::soak
