// SPDX-License-Identifier: Apache-2.0
//
// How long one small tensor takes from submission to completion when the engine was idle: before each, the main thread
// computes for so long that the background thread has gone to sleep. Either the submitter waits, and so drives the
// engine itself; or it goes on with work of its own (here: it looks at nothing but a flag that a callback sets), and
// every hop is in the time: the wake-up of the background thread, the way to the peers, and back.
#include <atomic>
#include <chrono>
#include <memory>

#include <kolo/kolo.hpp>

#include "data.hpp"
#include "modes.hpp"

namespace kolo_bench {
namespace {

void compute_for_a_while() {
  constexpr std::chrono::microseconds kLongerThanAnybodySpins{1000};
  const auto end = std::chrono::steady_clock::now() + kLongerThanAnybodySpins;
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace

void run_latency(Bench& bench, Report& report) {
  constexpr kolo::ReduceOp kOp = kolo::ReduceOp::sum;
  const int rank = bench.job.rank();
  const int ranks = bench.job.size();
  auto buffer = std::make_shared<Buffer>(kolo::DType::float32, 1);
  const auto fill = [=] { fill_input(*buffer, kOp, rank, ranks); };
  const auto check = [=] { return count_wrong_reduction(*buffer, kOp, ranks); };
  Contestant waited{"kolo", fill, [buffer] { kolo::allreduce_async("waited", buffer->view()).wait(); }, check,
                    compute_for_a_while};
  Contestant called_back{"kolo-callback", fill,
                         [buffer] {
                           auto done = std::make_shared<std::atomic<bool>>(false);
                           kolo::Handle handle = kolo::allreduce_async("called back", buffer->view());
                           handle.on_done([done](const kolo::Status&) { done->store(true); });
                           while (!done->load()) {
                           }
                           handle.wait();
                         },
                         check, compute_for_a_while};
  for (Contestant* contestant : {&waited, &called_back}) {
    Row row;
    row.collective = contestant == &waited ? "latency" : "latency-callback";
    row.bytes = static_cast<std::int64_t>(sizeof(float));
    row.count = 1;
    row.dtype = "float32";
    row.op = std::string(to_string(kOp));
    bench.progress.begin(row.collective);
    report.add(row, measure(bench, {*contestant}));
  }
}

}  // namespace kolo_bench
