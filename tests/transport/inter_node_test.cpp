// SPDX-License-Identifier: Apache-2.0
//
// The same checks for every transport between ranks of one machine (tests/support/inter_node.hpp); tests/mpi runs them
// over MPI.
#include "tests/support/inter_node.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/thread_world.hpp"
#include "core/topology.hpp"
#include "tests/support/processes.hpp"
#ifdef KOLO_HAS_UCX
#include "tests/support/ucx.hpp"
#endif

namespace kolo::testing {
namespace {

using std::chrono::seconds;

struct Transport {
  std::string name;
  std::function<std::shared_ptr<transport::InterNode>(bootstrap::Bootstrap&)> make;
};

std::shared_ptr<transport::InterNode> queues_between(bootstrap::Bootstrap& bootstrap) {
  const std::vector<int> machines(static_cast<std::size_t>(bootstrap.size()), 0);
  return bootstrap.inter_node(core::make_topology(bootstrap.rank(), machines, 1), seconds(60));
}

std::vector<Transport> transports() {
  std::vector<Transport> all{{"Queues", queues_between}};
#ifdef KOLO_HAS_UCX
  all.push_back({"Ucx", [](bootstrap::Bootstrap& bootstrap) { return ucx_between(bootstrap); }});
#endif
  return all;
}

class InterNodes : public ::testing::TestWithParam<Transport> {
 protected:
  /// Ranks as threads of a process of their own.
  static void run(int size, const std::function<inter_node::Complaints(transport::InterNode&, int rank)>& check) {
    const std::vector<int> statuses = run_processes(1, [&](bootstrap::Bootstrap& /*process*/) {
      bootstrap::ThreadWorld world(size);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
          const auto bootstrap = world.bootstrap(rank);
          const std::shared_ptr<transport::InterNode> transport = GetParam().make(*bootstrap);
          EXPECT_EQ(check(*transport, rank), inter_node::Complaints{}) << "rank " << rank;
          bootstrap->exchange("end", "", seconds(60));
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
    EXPECT_EQ(statuses, std::vector<int>{0});
  }
};
INSTANTIATE_TEST_SUITE_P(All, InterNodes, ::testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param.name; });

TEST_P(InterNodes, CarryMessagesOfAllSizesBetweenAllPairs) {
  for (const int size : {2, 3, 8}) {
    run(size, [size](transport::InterNode& transport, int rank) {
      return inter_node::exchange_all(transport, rank, size, 200000, size == 8 ? 4 : 20);
    });
  }
}

TEST_P(InterNodes, CarryLongMessages) {
  run(2, [](transport::InterNode& transport, int rank) {
    return inter_node::exchange_all(transport, rank, 2, std::size_t{8} << 20, 2);
  });
}

TEST_P(InterNodes, HearMessagesFromAnybody) {
  for (const int size : {2, 5}) {
    run(size,
        [size](transport::InterNode& transport, int rank) { return inter_node::listen_to_all(transport, rank, size); });
  }
}

}  // namespace
}  // namespace kolo::testing
