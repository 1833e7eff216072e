// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace kolo::testing {

/// A place where threads wait for one another without Kolo. They sleep: who waits until another one's deadline has
/// passed would else take the CPU from it.
class Gate {
 public:
  void come() {
    come_.fetch_add(1);
    come_.notify_all();
  }
  void wait_for(int threads) const {
    for (int now = come_.load(); now < threads; now = come_.load()) come_.wait(now);
  }
  [[nodiscard]] int have_come() const { return come_.load(); }

 private:
  std::atomic<int> come_{0};
};

}  // namespace kolo::testing
