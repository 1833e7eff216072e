// SPDX-License-Identifier: Apache-2.0
//
// The planner of batches: laying out the members of one batch, as it is done once for a planned batch and every time
// for any other.
#include <benchmark/benchmark.h>

#include <vector>

#include "core/signature.hpp"
#include "data/layout.hpp"

namespace {

using kolo::DType;
using kolo::Shape;
using kolo::core::Signature;

/// Tensors of a few types in turns, so that several runs are open at once.
std::vector<Signature> make_members(std::int64_t count, std::size_t dtypes) {
  constexpr DType kTypes[] = {DType::float32, DType::bfloat16, DType::float64, DType::int32};
  std::vector<Signature> members(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i].tensors.push_back({kTypes[i % dtypes], Shape{static_cast<std::int64_t>(100 + i)}});
  }
  return members;
}

void Layout(benchmark::State& state) {
  const std::vector<Signature> members = make_members(state.range(0), static_cast<std::size_t>(state.range(1)));
  std::vector<const Signature*> pointers;
  for (const Signature& member : members) pointers.push_back(&member);
  for (auto _ : state) benchmark::DoNotOptimize(kolo::data::make_layout(pointers, 4));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Layout)->ArgNames({"tensors", "dtypes"})->Args({1, 1})->Args({161, 1})->Args({161, 4})->Args({1000, 1});

}  // namespace
