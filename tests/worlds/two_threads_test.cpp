// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads behind a gate, as processes with an MPI below MPI_THREAD_MULTIPLE are: each with two contexts and
// two threads of its own. tests/mpi/two_threads.cpp does the same with MPI.
#include "tests/worlds/two_threads.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/bootstrap_holder.hpp"
#include "bootstrap/thread_world.hpp"
#include "transport/polled_inter_node.hpp"

namespace kolo {
namespace {

/// A rank's way into a world whose transport not every thread may call.
class GatedBootstrap final : public bootstrap::Bootstrap {
 public:
  GatedBootstrap(std::unique_ptr<bootstrap::Bootstrap> inner, transport::CallRule rule)
      : inner_(std::move(inner)), rule_(std::move(rule)) {}
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::vector<std::string> exchange(std::string_view label, const std::string& mine, base::Duration patience,
                                    base::Time begun) override {
    return inner_->exchange(label, mine, patience, begun);
  }
  std::shared_ptr<transport::NodeLink> join_node(const core::Topology& topology, std::size_t bytes,
                                                 const std::string& job_key, base::Duration patience) override {
    return inner_->join_node(topology, bytes, job_key, patience);
  }
  std::shared_ptr<transport::InterNode> inter_node(const core::Topology& topology, base::Duration patience) override {
    return std::make_shared<transport::PolledInterNode>(inner_->inter_node(topology, patience), rule_);
  }
  std::string describe() const override { return inner_->describe(); }

 private:
  const std::unique_ptr<bootstrap::Bootstrap> inner_;
  const transport::CallRule rule_;
};

class TwoThreads : public ::testing::TestWithParam<bool> {};

TEST_P(TwoThreads, MoveBothContextsWithoutAWrongElement) {
  const bool any_thread = GetParam();
  constexpr int kRanks = 3;
  bootstrap::ThreadWorld first_world(kRanks);
  bootstrap::ThreadWorld second_world(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      transport::CallRule rule;
      rule.gate = std::make_shared<transport::CallerGate>();  // a rank here is a process there
      rule.any_thread = any_thread;
      rule.only = std::this_thread::get_id();
      rule.refusal = "this thread may not wait";
      const auto join = [&](bootstrap::ThreadWorld& world) {
        return Bootstrap(
            std::make_unique<detail::BootstrapHolder>(std::make_unique<GatedBootstrap>(world.bootstrap(rank), rule)));
      };
      const Options options = Options{}.with_setting("KOLO_RANKS_PER_NODE", "2").with_setting("KOLO_TIMEOUT_S", "60");
      Context first(join(first_world), options);
      Context second(join(second_world), options);
      const auto check_refusal = [&](testing::Findings& findings) {
        if (any_thread) return;
        std::vector<float> x(10, 1.0F);
        try {
          allreduce(first, "refused", view(x));
          findings.first_wrong = "a wait is not refused";
        } catch (const Error& error) {
          EXPECT_STREQ(error.what(), "kolo: this thread may not wait");
        }
      };
      const testing::Findings findings = testing::run_two_threads(first, second, {any_thread, 40, 5}, check_refusal);
      EXPECT_EQ(findings.first_wrong, "");
      EXPECT_EQ(findings.wrong, 0);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

INSTANTIATE_TEST_SUITE_P(Levels, TwoThreads, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "AnyThread" : "OneThread"; });

}  // namespace
}  // namespace kolo
