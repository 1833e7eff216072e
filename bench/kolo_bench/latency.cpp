// SPDX-License-Identifier: Apache-2.0
//
// How long one small tensor takes from submission to completion when nobody drives the engine: the submitter goes on
// with work of its own (here: it looks at nothing but a flag that a callback sets), so every hop is in the time - the
// wake-up of the background thread, the way to the peers, and back.
#include <atomic>
#include <memory>

#include <kolo/kolo.hpp>

#include "data.hpp"
#include "modes.hpp"

namespace kolo_bench {

void run_latency(Job& job, const Flags& flags, Report& report) {
  constexpr kolo::ReduceOp kOp = kolo::ReduceOp::sum;
  auto buffer = std::make_shared<Buffer>(kolo::DType::float32, 1);
  const auto fill = [buffer, &job] { fill_input(*buffer, kOp, job.rank(), job.size()); };
  const auto check = [buffer, &job] { return count_wrong_reduction(*buffer, kOp, job.size()); };
  Contestant waited{"kolo", fill, [buffer] { kolo::allreduce_async("waited", buffer->view()).wait(); }, check};
  Contestant called_back{"kolo-callback", fill,
                         [buffer] {
                           auto done = std::make_shared<std::atomic<bool>>(false);
                           kolo::Handle handle = kolo::allreduce_async("called back", buffer->view());
                           handle.on_done([done](const kolo::Status&) { done->store(true); });
                           while (!done->load()) {
                           }
                           handle.wait();
                         },
                         check};
  for (Contestant* contestant : {&waited, &called_back}) {
    Row row;
    row.collective = contestant == &waited ? "latency" : "latency-callback";
    row.bytes = static_cast<std::int64_t>(sizeof(float));
    row.count = 1;
    row.dtype = "float32";
    row.op = std::string(to_string(kOp));
    report.add(row, measure(job, flags, {*contestant}));
  }
}

}  // namespace kolo_bench
