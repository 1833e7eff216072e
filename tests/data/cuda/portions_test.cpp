// SPDX-License-Identifier: Apache-2.0
//
// Into which portions a batch is cut, without a device: on every rank into the same, whatever the rank packs and
// unpacks.
#include "data/cuda/portions.hpp"

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

/// All that ranks have in common of a batch's portions.
std::string cut(const PortionLimits& limits, const core::CollectiveTraits& traits) {
  constexpr int kTensors = 9;
  PortionPlanner planner(limits);
  const data::Run run = run_of(traits, limits.is_absent);
  Uneven uneven;
  for (int rank = 0; rank < kRanks; ++rank) {
    const bool gives = !limits.some_are_absent || rank != kAbsent;
    uneven.bytes.insert(uneven.bytes.end(), kRanks, gives ? kElements / kRanks * std::int64_t{sizeof(float)} : 0);
  }
  if (!limits.is_absent) uneven.output = outputs.data();
  for (int i = 0; i < kTensors; ++i) planner.add(run, traits.rows_differ ? &uneven : nullptr);
  std::string text;
  for (const Portion& portion : planner.take()) {
    text += "a portion of " + std::to_string(portion.chunks) + " chunks, " + std::to_string(portion.buffer_bytes) +
            " bytes:";
    for (const Call& call : portion.calls) {
      text += " " + std::to_string(static_cast<int>(call.kind)) + " of " + std::to_string(call.count) + " at " +
              std::to_string(call.offset) + " with " + std::to_string(call.peer);
    }
    text += "\n";
  }
  return text;
}

TEST(Portions, AreTheSameOnEveryRank) {
  for (const core::CollectiveTraits& traits : core::kCollectives) {
    for (const bool some_are_absent : {false, true}) {
      if (traits.shapes == core::Shapes::none || traits.cpu_only || (some_are_absent && traits.needs_all)) continue;
      for (const bool carrier_scales : {false, true}) {
        PortionLimits limits;
        limits.size = kRanks;
        limits.buffer_bytes = std::uint64_t{1} << 20;
        limits.carrier_scales = carrier_scales;
        limits.some_are_absent = some_are_absent;
        limits.chunks = 4;  // these end the portions
        const std::string first = cut(limits, traits);
        EXPECT_NE(first.find("\na portion of 4 chunks"), std::string::npos) << first;
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
