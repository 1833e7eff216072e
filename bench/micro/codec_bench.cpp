// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding of the messages that steps consist of: a count, a planned batch, a declaration, a plan.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "control/codec.hpp"

namespace kolo::control {
namespace {

UpMessage counted() { return Counted{500, {3, 100000}}; }

UpMessage declared() {
  core::Signature signature;
  signature.tensors.push_back({DType::float32, Shape{512, 512, 3, 3}});
  return Declared{0, "module.layer4.2.conv2.weight", 1, core::kNoTensor, 0, {{signature, {0, 1, 2, 3, 4, 5, 6, 7}}}};
}

LogEntry planned() { return PlannedBatch{1, 3}; }

LogEntry plan() {
  PlanDefined plan{1, 0, {{}}};
  for (core::TensorId id = 3; id < 164; ++id) plan.batches[0].push_back(id);
  return plan;
}

template <class Message>
void Encode(benchmark::State& state, const Message& message) {
  Bytes bytes;
  for (auto _ : state) {
    bytes.clear();
    encode(message, bytes);
    benchmark::DoNotOptimize(bytes.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
  state.counters["bytes"] = static_cast<double>(bytes.size());
}

template <class Message, class Decode>
void Decoding(benchmark::State& state, const Message& message, Decode decode) {
  Bytes bytes;
  encode(message, bytes);
  for (auto _ : state) {
    auto back = decode(bytes);
    benchmark::DoNotOptimize(&back);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

BENCHMARK_CAPTURE(Encode, Counted, counted());
BENCHMARK_CAPTURE(Encode, Declared, declared());
BENCHMARK_CAPTURE(Encode, PlannedBatch, planned());
BENCHMARK_CAPTURE(Encode, PlanDefined161, plan());
BENCHMARK_CAPTURE(Decoding, Counted, counted(), decode_up);
BENCHMARK_CAPTURE(Decoding, Declared, declared(), decode_up);
BENCHMARK_CAPTURE(Decoding, PlannedBatch, planned(), decode_log);
BENCHMARK_CAPTURE(Decoding, PlanDefined161, plan(), decode_log);

}  // namespace
}  // namespace kolo::control
