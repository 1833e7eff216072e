// SPDX-License-Identifier: Apache-2.0
//
// The reduce kernels on buffers that stay in the L2 cache, as the slots of the shared-memory backend do. The rate
// counts every byte read and written.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "data/kernels/reduction.hpp"

namespace kolo::kernels {
namespace {

constexpr std::int64_t kBytes = 128 << 10;  // an array's

void reduce_arrays(benchmark::State& state, const Reduction& reduction, std::int64_t element_bytes) {
  const auto n = static_cast<int>(state.range(0));
  std::vector<std::vector<std::uint8_t>> arrays(static_cast<std::size_t>(n) + 1, std::vector<std::uint8_t>(kBytes));
  std::vector<const void*> inputs;
  for (int r = 0; r < n; ++r) inputs.push_back(arrays[static_cast<std::size_t>(r)].data());
  for (auto _ : state) {
    reduce(reduction, inputs.data(), n, arrays.back().data(), kBytes / element_bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * (n + 1) * kBytes);
}

const Reduction kFloat32Sum{DType::float32, ReduceOp::sum, {}};
const Reduction kFloat32AverageOf3{DType::float32, ReduceOp::average, {1, 1, 3}};
const Reduction kFloat32Max{DType::float32, ReduceOp::max, {}};
const Reduction kBFloat16Sum{DType::bfloat16, ReduceOp::sum, {}};
const Reduction kFloat16Sum{DType::float16, ReduceOp::sum, {}};

BENCHMARK_CAPTURE(reduce_arrays, float32_sum, kFloat32Sum, 4)->Arg(2)->Arg(4)->Arg(8);
BENCHMARK_CAPTURE(reduce_arrays, float32_average_of_3, kFloat32AverageOf3, 4)->Arg(2)->Arg(4);
BENCHMARK_CAPTURE(reduce_arrays, float32_max, kFloat32Max, 4)->Arg(2);
BENCHMARK_CAPTURE(reduce_arrays, bfloat16_sum, kBFloat16Sum, 2)->Arg(2)->Arg(4);
BENCHMARK_CAPTURE(reduce_arrays, float16_sum, kFloat16Sum, 2)->Arg(2)->Arg(4);

// The smallest all-reduce there is: what dispatch and the partial unit cost.
void reduce_one_element(benchmark::State& state) {
  float values[] = {1, 2};
  const void* inputs[] = {&values[0], &values[1]};
  float sum = 0;
  for (auto _ : state) {
    reduce(kFloat32Sum, inputs, 2, &sum, 1);
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(reduce_one_element);

}  // namespace
}  // namespace kolo::kernels
