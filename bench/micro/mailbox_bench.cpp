// SPDX-License-Identifier: Apache-2.0
//
// The mailbox between submitting threads and the driver: a push and a pop by one thread, and many producers against one
// consumer.
#include <benchmark/benchmark.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/mailbox.hpp"

namespace {

using kolo::base::Mailbox;

void PushAndPop(benchmark::State& state) {
  Mailbox mailbox(4096);
  for (auto _ : state) {
    if (!mailbox.try_push(1)) state.SkipWithError("full");
    benchmark::DoNotOptimize(mailbox.try_pop());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(PushAndPop);

void Producers(benchmark::State& state) {
  Mailbox mailbox(4096);
  std::atomic<bool> stop{false};
  std::vector<std::thread> producers;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    producers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        if (!mailbox.try_push(1)) std::this_thread::yield();
      }
    });
  }
  std::int64_t taken = 0;
  for (auto _ : state) {
    while (mailbox.try_pop() == 0) std::this_thread::yield();
    ++taken;
  }
  stop = true;
  for (std::thread& producer : producers) producer.join();
  state.SetItemsProcessed(taken);
}
BENCHMARK(Producers)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();

}  // namespace
