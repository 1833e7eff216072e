// SPDX-License-Identifier: Apache-2.0
//
// Ranks of these tests: threads, each with an emulated device and a process group of its own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <c10/core/StreamGuard.h>

#include <kolo/context.hpp>

#include "api/access.hpp"
#include "bootstrap/thread_world.hpp"
#include "c10d/process_group.hpp"
#include "tests/c10d/devices/emulated_torch.hpp"
#include "tests/emulated_cuda/emulator.hpp"

namespace kolo::c10d::test {

using GroupPtr = c10::intrusive_ptr<ProcessGroupKolo>;
using Tensors = std::vector<at::Tensor>;

/// A machine with two devices, which must have nothing to report.
class TestOnDevices : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    emulated::Config config;
    config.devices = kRanks;
    emulated::reset(config);
    reset_torch();
  }
  void TearDown() override {
    emulated::drain();
    for (const emulated::Report& report : emulated::take_reports()) {
      ADD_FAILURE() << to_string(report.kind) << ": " << report.text;
    }
    emulated::reset();
    reset_torch();
  }

  /// On each rank, with a current stream of its own.
  static void on_ranks(const Options& options, const std::function<void(const GroupPtr&, int)>& body) {
    bootstrap::ThreadWorld world(kRanks);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
          const c10::StreamGuard own(new_stream(rank));
          Context context(Bootstrap(std::make_unique<detail::BootstrapHolder>(world.bootstrap(rank))), options);
          const auto group =
              c10::make_intrusive<ProcessGroupKolo>(World::of(std::move(context)), std::chrono::milliseconds(60'000));
          body(group, rank);
          group->shutdown();
          ASSERT_EQ(cudaStreamSynchronize(current()), cudaSuccess);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
};

}  // namespace kolo::c10d::test
