// SPDX-License-Identifier: Apache-2.0
//
// Worlds of ranks as threads, each with a CPU backend and a loop that drives it in place of an engine.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/thread_world.hpp"
#include "data/cpu/cpu_backend.hpp"
#include "tests/support/meeting.hpp"
#include "transport/shm/slot_ring.hpp"

namespace kolo::data::cpu::test {

struct WorldShape {
  int ranks = 2;
  int ranks_per_node = 0;
  std::size_t slot_bytes = 256;
  std::uint64_t slots = 3;
  std::size_t flat_bytes = 128;
  std::size_t step_bytes = 100;
  std::uint32_t seed = 1;  ///< of how reluctantly the transport completes
};

inline std::string describe(const WorldShape& shape) {
  return std::to_string(shape.ranks) + " ranks, " + std::to_string(shape.ranks_per_node) + " a node, " +
         std::to_string(shape.slots) + " slots of " + std::to_string(shape.slot_bytes) + ", flat up to " +
         std::to_string(shape.flat_bytes) + ", a step for " + std::to_string(shape.step_bytes) + ", seed " +
         std::to_string(shape.seed);
}

/// A transport whose operations complete some time after they could.
class ReluctantInterNode final : public transport::InterNode {
 public:
  ReluctantInterNode(std::shared_ptr<transport::InterNode> inner, std::uint32_t seed)
      : inner_(std::move(inner)), random_(seed) {}
  std::byte* staging(std::size_t bytes) override { return inner_->staging(bytes); }
  void give_back(std::byte* staging) noexcept override { inner_->give_back(staging); }
  Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) override {
    return inner_->send(rank, tag, data, bytes);
  }
  Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) override {
    return inner_->receive(rank, tag, data, bytes);
  }
  bool test(Operation operation) override { return random_() % 3 != 0 && inner_->test(operation); }
  const char* name() const noexcept override { return "reluctance"; }

 private:
  std::shared_ptr<transport::InterNode> inner_;
  std::mt19937 random_;
};

/// What a rank shares with its node beside the slots.
constexpr std::size_t kRegionBytes = 1 << 20;

/// What a test's body sees of its rank.
struct Rank {
  bootstrap::Bootstrap& bootstrap;
  core::Topology topology;
  std::shared_ptr<transport::NodeLink> node;
  std::shared_ptr<transport::InterNode> inter;
  CpuBackend& backend;
  transport::SharedRegion& region;
  std::size_t taken = 0;  // of the region

  /// Memory of the region; null when there is none left.
  std::byte* take(std::size_t bytes) {
    if (bytes > region.bytes() - taken) return nullptr;
    return region.own() + std::exchange(taken, taken + bytes);
  }
  int rank() const { return topology.rank; }
  int size() const { return topology.size; }
};

class Watchdog {
 public:
  void check() const {
    if (std::chrono::steady_clock::now() > end_) throw std::runtime_error("the world stands still");
  }

 private:
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + std::chrono::seconds(100);
};

/// Drives until all the jobs are finished, in order.
inline void drive(data::Backend& backend, const std::vector<data::Job*>& jobs) {
  const Watchdog watchdog;
  std::vector<data::Job*> finished;
  while (finished.size() < jobs.size()) {
    switch (backend.progress(finished)) {
    case data::Progress::idle:
      ASSERT_EQ(finished.size(), jobs.size());
      break;
    case data::Progress::waiting:
      std::this_thread::yield();
      watchdog.check();
      break;
    case data::Progress::advanced:
      break;
    }
  }
  EXPECT_EQ(finished, jobs);
  EXPECT_EQ(backend.progress(finished), data::Progress::idle);
}

inline void run(data::Backend& backend, const std::vector<data::Job*>& jobs) {
  for (data::Job* job : jobs) backend.start(*job);
  drive(backend, jobs);
}

inline void run_rank(bootstrap::ThreadWorld& world, const WorldShape& shape, int rank,
                     const std::function<void(Rank&)>& body) {
  const auto bootstrap = world.bootstrap(rank);
  const core::Topology topology = test_support::topology_on_one_machine(*bootstrap, shape.ranks_per_node);
  const int locals = topology.local_size();
  const std::size_t bytes = shm::SlotRing::column_bytes(shape.slot_bytes, shape.slots);
  auto node = bootstrap->join_node(topology, bytes * static_cast<std::size_t>(locals), "key", test_support::kPatience);
  auto intra = std::make_shared<shm::SlotRing>(base::Columns::in_a_row(node->memory(), bytes, locals),
                                               topology.local_rank, shape.slot_bytes, shape.slots);
  std::shared_ptr<transport::InterNode> inter;
  if (topology.node_count() > 1) {
    inter = std::make_shared<ReluctantInterNode>(bootstrap->inter_node(topology, test_support::kPatience),
                                                 shape.seed + static_cast<std::uint32_t>(rank));
  }
  const auto meet = [&](const std::string& mine) { return test_support::meet(*bootstrap, mine); };
  const std::shared_ptr<transport::SharedRegion> region =
      node->share(transport::Sharers::all(topology), kRegionBytes, meet, [] {});
  CpuBackendOptions options;
  options.routes = Routes(RouteTable("*:0-" + std::to_string(shape.flat_bytes) + "=flat"), topology.size);
  options.tuning.step_bytes = shape.step_bytes;
  options.tuning.least_chunk_bytes = 192;
  options.tuning.past_cache_bytes = 512;
  options.regions = std::make_shared<transport::Regions>();
  const transport::Regions::Id id{1, options.regions->new_serial(0)};
  ASSERT_TRUE(options.regions->reserve(id));
  options.regions->add(id, region, transport::Sharers::all(topology).members);
  CpuBackend backend(topology, intra, inter, options);
  Rank self{*bootstrap, topology, node, inter, backend, *region};
  body(self);
  test_support::meet(*bootstrap);  // nobody takes its memory away while others still read their slots
}

/// Runs `body` on every rank at once; an exception ends the test, and frees the others.
inline void run_world(const WorldShape& shape, const std::function<void(Rank&)>& body) {
  SCOPED_TRACE(describe(shape));
  bootstrap::ThreadWorld world(shape.ranks);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(shape.ranks));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_rank(world, shape, rank, body);
      } catch (const std::exception& error) {
        world.abort("rank " + std::to_string(rank) + " failed");
        ADD_FAILURE() << "rank " << rank << ": " << error.what() << " (" << describe(shape) << ")";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kolo::data::cpu::test
