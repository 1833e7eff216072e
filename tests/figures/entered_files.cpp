// SPDX-License-Identifier: Apache-2.0
//
// One call or step of two ranks of one node, alone in the counters of gcov. scripts/internal/figures asks gcov then
// which files it entered.
//
// usage: entered_files step|short|gather
//
//   step    a training step like those before it: 8 gradients reduced by name
//   short   a blocking all-reduce of 64 bytes without a name
//   gather  a blocking gather of 1 MiB without a name
#include <barrier>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

// Of gcov, for the objects that are linked statically.
extern "C" void __gcov_reset();
extern "C" void __gcov_dump();

namespace {

constexpr int kRanks = 2;
constexpr int kGradients = 8;
/// Until a step is planned, and what the first calls allocate is there.
constexpr int kBefore = 20;

void reduce_by_name() {
  thread_local std::vector<std::vector<float>> gradients(kGradients, std::vector<float>(64 << 10, 1.0F));
  std::vector<kolo::Handle> handles;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    handles.push_back(kolo::allreduce_async("gradient " + std::to_string(i), kolo::view(gradients[i])));
  for (kolo::Handle& handle : handles) handle.wait();
  kolo::end_step();
}

void reduce_short() {
  std::vector<float> few(16, 1.0F);
  kolo::allreduce(kolo::view(few));
}

void gather() {
  thread_local std::vector<float> in(128 << 10, 1.0F), out(kRanks * in.size());
  kolo::gather_into(kolo::const_view(in), kolo::rank() == 0 ? std::optional(kolo::view(out)) : std::nullopt, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc == 2 ? argv[1] : "";
  void (*call)() = way == "step" ? reduce_by_name : way == "short" ? reduce_short : way == "gather" ? gather : nullptr;
  if (call == nullptr) return 2;
  std::barrier<> all(kRanks);
  kolo::run_local(kRanks, [&] {
    for (int i = 0; i < kBefore; ++i) call();
    all.arrive_and_wait();
    if (kolo::rank() == 0) __gcov_reset();
    all.arrive_and_wait();
    call();
    all.arrive_and_wait();
    if (kolo::rank() == 0) {
      __gcov_dump();
      std::_Exit(0);  // nothing more is counted
    }
    all.arrive_and_wait();
  });
}
