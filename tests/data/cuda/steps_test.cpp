// SPDX-License-Identifier: Apache-2.0
//
// Into which steps a batch is cut, without a device: on every rank into the same, whatever the rank packs and unpacks.
#include "data/cuda/steps.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/collectives.hpp"

namespace kolo::cuda::test {
namespace {

constexpr int kRanks = 3;
constexpr int kRoot = 1;
constexpr int kAbsent = 2;
constexpr std::int64_t kElements = 300;  // of a tensor: one chunk, and one from each rank to each

/// Nobody touches these.
std::array<std::byte, kElements * sizeof(float)> inputs, outputs;

data::Run run_of(const core::CollectiveTraits& traits, bool is_absent) {
  data::Run run;
  run.kind = traits.kind;
  run.divisor = traits.reduces ? kRanks - 1 : 1;
  run.root = kRoot;
  run.elements = run.rows = kElements;
  data::Piece piece{inputs.data(), outputs.data(), kElements};
  if (is_absent) piece.input = piece.output = nullptr;
  run.pieces = {piece};
  return run;
}

/// All that ranks have in common of a batch's steps.
std::string cut(const StepLimits& limits, const core::CollectiveTraits& traits) {
  constexpr int kTensors = 9;
  StepPlanner planner(limits);
  const data::Run run = run_of(traits, limits.is_absent);
  Uneven uneven;
  for (int rank = 0; rank < kRanks; ++rank) {
    const bool gives = !limits.some_are_absent || rank != kAbsent;
    uneven.bytes.insert(uneven.bytes.end(), kRanks, gives ? kElements / kRanks * std::int64_t{sizeof(float)} : 0);
  }
  if (!limits.is_absent) uneven.output = outputs.data();
  for (int i = 0; i < kTensors; ++i) planner.add(run, traits.rows_differ ? &uneven : nullptr);
  std::string text;
  for (const Step& step : planner.take()) {
    text += "a step of " + std::to_string(step.chunks) + " chunks, " + std::to_string(step.buffer_bytes) + " bytes:";
    for (const Call& call : step.calls) {
      text += " " + std::to_string(static_cast<int>(call.kind)) + " of " + std::to_string(call.count) + " at " +
              std::to_string(call.offset) + " with " + std::to_string(call.peer);
    }
    text += "\n";
  }
  return text;
}

TEST(Steps, AreTheSameOnEveryRank) {
  for (const core::CollectiveTraits& traits : core::kCollectives) {
    for (const bool some_are_absent : {false, true}) {
      if (traits.shapes == core::Shapes::none || traits.cpu_only || (some_are_absent && traits.needs_all)) continue;
      for (const bool carrier_scales : {false, true}) {
        StepLimits limits;
        limits.size = kRanks;
        limits.buffer_bytes = std::uint64_t{1} << 20;
        limits.carrier_scales = carrier_scales;
        limits.some_are_absent = some_are_absent;
        limits.chunks = 4;  // these end the steps
        const std::string first = cut(limits, traits);
        EXPECT_NE(first.find("\na step of 4 chunks"), std::string::npos) << first;
        for (limits.rank = 1; limits.rank < kRanks; ++limits.rank) {
          limits.is_absent = some_are_absent && limits.rank == kAbsent;
          EXPECT_EQ(cut(limits, traits), first) << traits.name << " on rank " << limits.rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kolo::cuda::test
