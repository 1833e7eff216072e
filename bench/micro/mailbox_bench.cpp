// SPDX-License-Identifier: Apache-2.0
//
// The mailbox between submitting threads and the driver: a push and a pop by one thread, and many producers against one
// consumer.
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/mailbox.hpp"

namespace {

using kolo::base::Mailbox;

/// What the engine sends: a shared pointer's size.
using Item = std::shared_ptr<int>;

void PushAndPop(benchmark::State& state) {
  Mailbox<Item> mailbox(4096);
  Item item = std::make_shared<int>(1);
  for (auto _ : state) {
    if (!mailbox.try_push(std::move(item))) state.SkipWithError("full");
    item = *mailbox.try_pop();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(PushAndPop);

void Producers(benchmark::State& state) {
  Mailbox<int> mailbox(4096);
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
    while (!mailbox.try_pop()) std::this_thread::yield();
    ++taken;
  }
  stop = true;
  for (std::thread& producer : producers) producer.join();
  state.SetItemsProcessed(taken);
}
BENCHMARK(Producers)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();

}  // namespace
