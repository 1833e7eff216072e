// SPDX-License-Identifier: Apache-2.0
//
// The plans of all-to-all and reduce-scatter: what is cut into chunks, put together again, is the whole, and fits.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "data/cpu/alltoall.hpp"
#include "data/cpu/reduce_scatter.hpp"

namespace kolo::data::cpu {
namespace {

using Sizes = std::vector<std::int64_t>;

/// A world of all-to-all plans, one a rank, over memory that is only pointed at.
struct AlltoallWorld {
  std::vector<Sizes> bytes;  // by sender and receiver
  std::vector<AlltoallPlan> plans;
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::vector<std::byte>> outputs;

  AlltoallWorld(std::vector<Sizes> between, std::size_t slot_bytes) : bytes(std::move(between)), plans(bytes.size()) {
    const std::size_t size = bytes.size();
    Sizes largest(size, 0);
    for (std::size_t from = 0; from < size; ++from)
      for (std::size_t to = 0; to < size; ++to) {
        std::int64_t& most = largest[(to + size - from) % size];
        most = std::max(most, bytes[from][to]);
      }
    for (std::size_t rank = 0; rank < size; ++rank) {
      Sizes received;
      for (const Sizes& row : bytes) received.push_back(row[rank]);
      inputs.emplace_back(static_cast<std::size_t>(std::accumulate(bytes[rank].begin(), bytes[rank].end(), 0L)));
      outputs.emplace_back(static_cast<std::size_t>(std::accumulate(received.begin(), received.end(), 0L)));
      plans[rank].make(static_cast<int>(rank), inputs[rank].data(), outputs[rank].data(), bytes[rank], received,
                       largest, slot_bytes, 1 << 20);
    }
  }
};

void expect_whole(const AlltoallWorld& world, std::size_t slot_bytes) {
  const std::size_t size = world.plans.size();
  std::vector<Sizes> sent(size, Sizes(size, 0)), received = sent;
  for (std::size_t rank = 0; rank < size; ++rank) {
    EXPECT_EQ(world.plans[rank].chunks(), world.plans[0].chunks());
    for (std::int64_t chunk = 0; chunk < world.plans[rank].chunks(); ++chunk) {
      std::vector<bool> taken(slot_bytes, false);
      world.plans[rank].for_each_sent(chunk, [&](const AlltoallPlan::Block& block) {
        const auto to = static_cast<std::size_t>(block.peer);
        const auto begin = std::accumulate(world.bytes[rank].begin(), world.bytes[rank].begin() + block.peer, 0L);
        EXPECT_EQ(block.input - world.inputs[rank].data(), begin + sent[rank][to]);
        sent[rank][to] += static_cast<std::int64_t>(block.bytes);
        ASSERT_LE(block.offset + block.bytes, slot_bytes);
        for (std::size_t i = 0; i < block.bytes; ++i) {
          EXPECT_FALSE(taken[block.offset + i]);
          taken[block.offset + i] = true;
        }
        // The receiver looks for the same bytes in the same place.
        bool found = false;
        world.plans[to].for_each_received(chunk, [&](const AlltoallPlan::Block& theirs) {
          if (theirs.peer != static_cast<int>(rank)) return;
          found = true;
          EXPECT_EQ(theirs.offset, block.offset);
          EXPECT_EQ(theirs.bytes, block.bytes);
        });
        EXPECT_TRUE(found);
      });
      world.plans[rank].for_each_received(chunk, [&](const AlltoallPlan::Block& block) {
        received[rank][static_cast<std::size_t>(block.peer)] += static_cast<std::int64_t>(block.bytes);
      });
    }
  }
  for (std::size_t from = 0; from < size; ++from)
    for (std::size_t to = 0; to < size; ++to) {
      EXPECT_EQ(received[to][from], world.bytes[from][to]);
      EXPECT_EQ(sent[from][to], from == to ? 0 : world.bytes[from][to]);
    }
}

TEST(AlltoallPlan, BringsEverythingOnceThroughSlots) {
  std::mt19937 random(5);
  for (const std::size_t size : {1, 2, 3, 5, 8}) {
    for (const std::int64_t most : {0, 1, 60, 64, 300, 2000}) {
      for (const std::size_t slot_bytes : {64, 256, 1024}) {
        std::vector<Sizes> bytes(size, Sizes(size));
        for (Sizes& row : bytes)
          for (std::int64_t& one : row) one = random() % 4 == 0 ? 0 : static_cast<std::int64_t>(random()) % (most + 1);
        expect_whole(AlltoallWorld(bytes, slot_bytes), slot_bytes);
      }
    }
  }
}

TEST(AlltoallPlan, IsOneChunkWhereItFits) {
  const AlltoallWorld small(std::vector<Sizes>(4, Sizes(4, 64)), 256);
  EXPECT_EQ(small.plans[0].chunks(), 1);
  const AlltoallWorld large(std::vector<Sizes>(4, Sizes(4, 65)), 256);
  EXPECT_EQ(large.plans[0].chunks(), 2);
  const AlltoallWorld nothing(std::vector<Sizes>(4, Sizes(4, 0)), 256);
  EXPECT_EQ(nothing.plans[0].chunks(), 0);
}

TEST(ScatterPlan, CoversEveryOwnersRowsOnce) {
  for (const int size : {1, 2, 3, 7, 40}) {
    for (const std::int64_t rows : {0, 1, 5, 64, 999}) {
      for (const std::size_t slot_bytes : {64, 256, 4096}) {
        std::vector<double> input(static_cast<std::size_t>(rows) * 3), output(input.size());
        data::Run run;
        run.kind = core::CollectiveKind::reduce_scatter;
        run.dtype = DType::float64;
        run.rows = rows;
        run.elements = rows * 3;
        run.pieces.push_back(
            {reinterpret_cast<std::byte*>(input.data()), reinterpret_cast<std::byte*>(output.data()), run.elements});
        const ScatterPlan plan(run, 0, size, slot_bytes, 1 << 20);
        std::int64_t next = 0;
        for (int owner = 0; owner < size; ++owner) {
          std::int64_t found = 0;
          for (std::int64_t chunk = 0; chunk < plan.chunks(); ++chunk) {
            if (!plan.holds(chunk, owner)) continue;
            const ScatterPlan::Block block = plan.block(chunk, owner);
            if (block.elements == 0) continue;
            EXPECT_EQ(block.input, reinterpret_cast<std::byte*>(input.data() + next + found));
            EXPECT_EQ(block.output, reinterpret_cast<std::byte*>(output.data() + found));
            EXPECT_EQ(block.offset % 64, 0U);
            EXPECT_LE(block.offset + static_cast<std::size_t>(block.elements) * sizeof(double), slot_bytes);
            EXPECT_LE(block.elements, plan.block_elements());
            found += block.elements;
          }
          EXPECT_EQ(found, data::RowsOf(rows, owner, size).count * 3);
          next += found;
        }
        EXPECT_EQ(next, run.elements);
      }
    }
  }
}

TEST(RowsOf, GivesTheFirstRanksOneMore) {
  EXPECT_EQ(data::RowsOf(7, 0, 3).begin, 0);
  EXPECT_EQ(data::RowsOf(7, 0, 3).count, 3);
  EXPECT_EQ(data::RowsOf(7, 1, 3).begin, 3);
  EXPECT_EQ(data::RowsOf(7, 1, 3).count, 2);
  EXPECT_EQ(data::RowsOf(7, 2, 3).begin, 5);
  EXPECT_EQ(data::RowsOf(1, 2, 3).count, 0);
}

}  // namespace
}  // namespace kolo::data::cpu
