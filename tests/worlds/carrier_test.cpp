// SPDX-License-Identifier: Apache-2.0
//
// KOLO_TRANSPORT: worlds of threads whose virtual nodes UCX connects do what those do that queues connect.
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/config.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/kolo.hpp>

#include "api/node_carrier.hpp"
#include "bootstrap/thread_world.hpp"
#include "errors.hpp"
#include "tests/support/cases.hpp"
#include "tests/support/messages.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::testing::has;
using kolo::testing::Nodes;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

kolo::Options options_of(const std::string& transport, int per_node) {
  return kolo::Options{}
      .with_setting("KOLO_TRANSPORT", transport)
      .with_setting("KOLO_RANKS_PER_NODE", std::to_string(per_node))
      .with_setting("KOLO_STALL_WARNING_S", "5")  // a ring that is lost ends no later than this, and is seen
      .with_setting("KOLO_TIMEOUT_S", "100");
}

std::string carrier_of(const kolo::Group& group) {
  const std::string text = kolo::describe(group);
  const std::string title = "between nodes: ";
  const std::size_t begin = text.find(title);
  if (begin == std::string::npos) return {};
  return text.substr(begin + title.size(), text.find('\n', begin) - begin - title.size());
}

TEST(Carrier, IsToldWithTheReason) {
  run_in(2, options_of("auto", 1), [] {
    EXPECT_EQ(carrier_of(kolo::world()), "queues between threads (KOLO_TRANSPORT=auto: what comes with the start)");
  });
  run_in(2, options_of("mpi", 1),
         [] { EXPECT_EQ(carrier_of(kolo::world()), "queues between threads (KOLO_TRANSPORT=mpi)"); });
  run_in(2, options_of("ucx", 0), [] { EXPECT_EQ(carrier_of(kolo::world()), "") << "one node"; });
}

#if KOLO_WITH_UCX

TEST(Carrier, IsUcxWhereThatIsAskedFor) {
  run_in(3, options_of("ucx", 1), [] {
    const std::string carrier = carrier_of(kolo::world());
    EXPECT_EQ(carrier.rfind("UCX 1.", 0), 0u) << carrier;
    EXPECT_NE(carrier.find(" (KOLO_TRANSPORT=ucx)"), std::string::npos) << carrier;
  });
}

/// A start that meets as threads do, and has no transport.
class Bare final : public kolo::bootstrap::Bootstrap {
 public:
  explicit Bare(std::unique_ptr<Bootstrap> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  std::vector<std::string> exchange(std::string_view label, const std::string& mine, kolo::base::Duration patience,
                                    kolo::base::Time begun) override {
    return inner_->exchange(label, mine, patience, begun);
  }
  std::shared_ptr<kolo::transport::NodeLink> join_node(const kolo::core::Topology& topology, std::size_t bytes,
                                                       const std::string& job_key,
                                                       kolo::base::Duration patience) override {
    return inner_->join_node(topology, bytes, job_key, patience);
  }
  std::shared_ptr<kolo::transport::InterNode> inter_node(const kolo::core::Topology&, kolo::base::Duration) override {
    throw kolo::Error(ErrorCode::unsupported, "this start has no transport");
  }
  [[nodiscard]] std::string describe() const override { return "nothing but an exchange"; }

 private:
  const std::unique_ptr<Bootstrap> inner_;
};

TEST(Carrier, IsUcxWhereTheStartBringsNone) {
  kolo::bootstrap::ThreadWorld world(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&world, rank] {
      Bare bootstrap(world.bootstrap(rank));
      const kolo::core::Topology topology = kolo::core::make_topology(rank, {0, 0}, 1);
      const auto choose = [&](kolo::base::Transport transport, bool spans_machines = false) {
        kolo::base::Settings settings;
        settings.transport = transport;
        return kolo::api::choose_carrier(bootstrap, settings, topology, spans_machines, {}, std::chrono::seconds(60));
      };
      const kolo::api::Carrier carrier = choose(kolo::base::Transport::automatic);
      EXPECT_STREQ(carrier.transport->name(), "UCX");
      EXPECT_TRUE(
          has(carrier.description, {"UCX 1.", " (KOLO_TRANSPORT=auto: what comes with the start cannot carry data)"}));
      const kolo::api::Carrier between_machines = choose(kolo::base::Transport::automatic, true);
      EXPECT_STREQ(between_machines.transport->name(), "UCX");
      EXPECT_TRUE(
          has(between_machines.description,
              {"UCX 1.", " (KOLO_TRANSPORT=auto: between machines it is faster than MPI with small tensors, and "
                         "waits with less CPU time)"}));
      EXPECT_EQ(sentence_of(ErrorCode::unsupported, [&] { choose(kolo::base::Transport::mpi); }),
                "rank 0: this start has no transport");
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

class OverUcx : public testing::TestWithParam<std::pair<int, Nodes>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, OverUcx,
                         testing::Values(std::pair{2, Nodes::even}, std::pair{3, Nodes::uneven},
                                         std::pair{4, Nodes::even}, std::pair{8, Nodes::uneven}),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "Ranks" +
                                  (info.param.second == Nodes::even ? "EvenNodes" : "UnevenNodes");
                         });

TEST_P(OverUcx, EveryByteOfEveryCollective) {
  static const kolo::testing::Cases cases = kolo::testing::cases_of({}, 2U);
  const auto [ranks, nodes] = GetParam();
  const std::vector<kolo::testing::Row> rows = rows_of(cases, ranks, nodes);
  ASSERT_FALSE(rows.empty());
  run_in(ranks,
         options_of("ucx", kolo::testing::ranks_per_node(ranks, nodes))
             .with_setting("KOLO_SLOT_BYTES", "256")
             .with_setting("KOLO_SLOTS", "2"),
         [&] {
           kolo::testing::run_cases(kolo::world(), rows, [](const std::string& what) {
             ADD_FAILURE() << what << " on rank " << kolo::rank();
           });
         });
}

TEST_P(OverUcx, StepsMessagesAndGroupsSideBySide) {
  const auto [ranks, nodes] = GetParam();
  run_in(ranks, options_of("ucx", kolo::testing::ranks_per_node(ranks, nodes)), [] {
    std::vector<kolo::Group> groups{kolo::world(), kolo::world().split(kolo::rank() % 2, -kolo::rank())};
    std::vector<float> large(std::size_t{1} << 20);
    for (int step = 0; step < 2; ++step) {
      for (const kolo::Group& group : groups) {
        EXPECT_EQ(kolo::testing::exchange_messages(group, static_cast<std::uint64_t>(step), 12, 200000), "");
        for (std::size_t i = 0; i < large.size(); ++i)
          large[i] = static_cast<float>((static_cast<int>(i) + step + kolo::rank(group)) % 8);
        kolo::allreduce({group, "large"}, kolo::view(large), kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::sum));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < large.size(); ++i) {
          float sum = 0;
          for (int rank = 0; rank < kolo::size(group); ++rank)
            sum += static_cast<float>((static_cast<int>(i) + step + rank) % 8);
          wrong += large[i] == sum ? 0 : 1;
        }
        EXPECT_EQ(wrong, 0u) << "in step " << step;
      }
    }
    EXPECT_EQ(kolo::detail::counters().pushes, 0u);
    EXPECT_EQ(kolo::metrics().stalls, 0u);
  });
}

/// What a rank says when it leaves comes before the end of its connection.
TEST(OverUcxFaults, ARankThatLeavesByAnExceptionIsNamedWithItsReason) {
  std::mutex mutex;
  std::vector<std::string> told;
  const auto body = [&] {
    std::vector<float> x(100000, 1);
    kolo::allreduce("first", kolo::view(x));
    if (kolo::rank() == 2) throw std::runtime_error("no more data");
    const std::string sentence =
        sentence_of(ErrorCode::user_exception, [&] { kolo::allreduce("second", kolo::view(x)); });
    const std::lock_guard<std::mutex> lock(mutex);
    told.push_back(sentence);
  };
  EXPECT_THROW(run_in(3, options_of("ucx", 1), body), std::runtime_error);
  ASSERT_EQ(told.size(), 2u);
  for (const std::string& sentence : told) EXPECT_TRUE(has(sentence, {"rank 2 left the job", "no more data"}));
}

#else

TEST(Carrier, RefusesWhatThisBuildLacks) {
  const std::string sentence = sentence_of(ErrorCode::unsupported, [] { run_in(2, options_of("ucx", 1), [] {}); });
  EXPECT_EQ(sentence,
            "rank 0: KOLO_TRANSPORT=ucx, but this build of Kolo has no UCX part: build it where UCX's headers are "
            "(Debian: libucx-dev), or let MPI carry the data (mpirun, MPI_THREAD_MULTIPLE and KOLO_TRANSPORT=mpi)");
}

#endif

}  // namespace
