// SPDX-License-Identifier: Apache-2.0
//
// One steady step of two ranks of one node, alone in the counters of gcov: gradients reduced by name, as a training
// loop does it. scripts/figures asks gcov then which files it entered.
#include <barrier>
#include <cstdlib>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

// Of gcov, for the objects that are linked statically.
extern "C" void __gcov_reset();
extern "C" void __gcov_dump();

namespace {

constexpr int kRanks = 2;
constexpr int kGradients = 8;
/// Until the step is planned, and what the first ones allocate is there.
constexpr int kStepsBefore = 20;

void step(std::vector<std::vector<float>>& gradients) {
  std::vector<kolo::Handle> handles;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    handles.push_back(kolo::allreduce_async("gradient " + std::to_string(i), kolo::view(gradients[i])));
  for (kolo::Handle& handle : handles) handle.wait();
  kolo::end_step();
}

}  // namespace

int main() {
  std::barrier<> all(kRanks);
  kolo::run_local(kRanks, [&] {
    std::vector<std::vector<float>> gradients(kGradients, std::vector<float>(64 << 10, 1.0F));
    for (int i = 0; i < kStepsBefore; ++i) step(gradients);
    all.arrive_and_wait();
    if (kolo::rank() == 0) __gcov_reset();
    all.arrive_and_wait();
    step(gradients);
    all.arrive_and_wait();
    if (kolo::rank() == 0) {
      __gcov_dump();
      std::_Exit(0);  // nothing more is counted
    }
    all.arrive_and_wait();
  });
}
