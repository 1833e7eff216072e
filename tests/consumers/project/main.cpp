// SPDX-License-Identifier: Apache-2.0
// Four ranks as threads add up their numbers; each must see 0 + 1 + 2 + 3.
#include <atomic>
#include <iostream>

#include <kolo/kolo.hpp>

int main() {
  std::atomic<int> right{0};
  kolo::run_local(4, [&] {
    if (kolo::allreduce(kolo::rank(), kolo::ReduceOp::sum) == 6) ++right;
  });
  std::cout << "kolo " << kolo::version() << ": " << right << " of 4 ranks agree\n";
  return right == 4 ? 0 : 1;
}
