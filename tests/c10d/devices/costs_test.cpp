// SPDX-License-Identifier: Apache-2.0
//
// Counts the calls of CUDA and NCCL that a training program over the backend makes once its steps repeat, by Kolo and
// by PyTorch (tests/data/cuda/costs.hpp). The numbers stand in docs/gpu.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>

#include "c10d/arena_hook.hpp"
#include "tests/c10d/devices/emulated_torch.hpp"
#include "tests/c10d/devices/ranks.hpp"
#include "tests/data/cuda/costs.hpp"
#include "tests/data/cuda/resnet50.hpp"

namespace kolo::c10d::test {
namespace {

using cuda::test::Costs;
using cuda::test::costs_of;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/// Each rank has a device of its number.
class CostsOfTorch : public TestOnDevices {
 protected:
  using Step = std::function<void()>;

  /// Of both ranks, from the beginning of a step until the device has done it. `prepare` gives each rank its step. Of
  /// some tries the one with the most calls counts (a stream need not wait for what the device happens to have done),
  /// and among these the one with the fewest changes of thread.
  static std::vector<Costs> measure(const std::function<Step(const GroupPtr&, int)>& prepare) {
    constexpr int kWarm = 8;
    constexpr int kTries = 12;
    std::vector<std::vector<Costs>> tries(kRanks);
    const auto with = Options{}
                          .with_setting("KOLO_TIMEOUT_S", "300")
                          .with_setting("KOLO_SPIN_US", "1000000")
                          .with_setting("KOLO_FUSION_THRESHOLD", "1M");  // or the emulator poisons memory all the time
    on_ranks(with, [&](const GroupPtr& group, int rank) {
      const Step step = prepare(group, rank);
      ASSERT_EQ(cudaStreamSynchronize(current()), cudaSuccess);  // tensors have been written, for streams of the step
      for (int i = 0; i < kWarm + kTries; ++i) {
        const bool measures = i >= kWarm && rank == 0;
        if (measures) emulated::trace();
        group->barrier({})->wait();
        step();
        group->barrier({})->wait();
        if (!measures) continue;
        const std::vector<emulated::TracedCall> calls = emulated::take_trace();
        for (int device = 0; device < kRanks; ++device) {
          tries[static_cast<std::size_t>(device)].push_back(costs_of(calls, device));
        }
      }
      group->barrier({})->wait();  // what the end of a step's tensors asks of CUDA is not counted
    });
    std::vector<Costs> costs;
    for (const auto& of_rank : tries) {
      costs.push_back(*std::min_element(of_rank.begin(), of_rank.end(), [](const Costs& a, const Costs& b) {
        return std::pair(b.cuda + b.nccl, a.thread_changes) < std::pair(a.cuda + a.nccl, b.thread_changes);
      }));
    }
    return costs;
  }
};

at::Tensor on_device(std::int64_t elements) { return test::on_device(at::zeros({elements})); }

/// As many calls as in C++: nothing is added.
TEST_F(CostsOfTorch, AnAllReduce) {
  const std::vector<Costs> costs = measure([](const GroupPtr& group, int) {
    return [group, tensors = Tensors{on_device(1000)}]() mutable { group->allreduce(tensors, {})->wait(); };
  });
  print("all_reduce", costs[1]);
  EXPECT_LE(costs[1].cuda, 4U);
  EXPECT_LE(costs[1].stream_waits, 2U);
  EXPECT_EQ(costs[1].nccl, 1U);
}

/// DDP's buckets for ResNet-50 in the order in which backward fills them: one of 1 MiB and others of 25 MiB, each
/// closed by the gradient that makes it full. In elements; a sixteenth of the bytes.
std::vector<std::int64_t> buckets_of_resnet50() {
  constexpr std::int64_t kFirst = 1 << 20;
  constexpr std::int64_t kOthers = 25 << 20;
  constexpr std::int64_t kShrunk = 16;
  std::vector<std::int64_t> buckets{0};
  for (const std::int64_t elements : cuda::test::resnet50()) {
    const std::int64_t full =
        (buckets.size() == 1 ? kFirst : kOthers) / kShrunk / static_cast<std::int64_t>(sizeof(float));
    if (buckets.back() >= full) buckets.push_back(0);
    buckets.back() += std::max<std::int64_t>(elements / kShrunk, 1);
  }
  return buckets;
}

/// A step: as DDP's reducer does, each bucket is given to `reduce` when it is full, and waited for after the last.
class Buckets {
 public:
  Buckets() {
    for (const std::int64_t elements : buckets_of_resnet50()) {
      buckets_.emplace_back(buckets_.size(), buckets_of_resnet50().size(), test::on_device(at::zeros({elements})),
                            std::vector<std::size_t>{0}, std::vector<std::size_t>{static_cast<std::size_t>(elements)},
                            std::vector<c10::IntArrayRef>{}, std::vector<at::Tensor>{}, std::nullopt);
    }
  }
  void step(const std::function<FuturePtr(::c10d::GradBucket&)>& reduce) {
    std::vector<FuturePtr> futures;
    for (::c10d::GradBucket& bucket : buckets_) futures.push_back(reduce(bucket));
    for (const FuturePtr& future : futures) future->wait();
  }

 private:
  std::vector<::c10d::GradBucket> buckets_;
};

/// A bucket takes four calls that an all-reduce alone does not: two streams of PyTorch's pool come in between, on which
/// its future completes.
TEST_F(CostsOfTorch, AStepOfDistributedDataParallel) {
  const std::vector<Costs> costs = measure([](const GroupPtr& group, int) {
    return [group, buckets = std::make_shared<Buckets>()] {
      buckets->step([&](::c10d::GradBucket& bucket) {
        Tensors tensors{bucket.getBuffer()};
        return group->allreduce(tensors, {})->getFuture();
      });
    };
  });
  const std::size_t buckets = buckets_of_resnet50().size();
  print("DDP, ResNet-50 in " + std::to_string(buckets) + " buckets", costs[1]);
  EXPECT_EQ(costs[1].nccl, buckets);
  EXPECT_LE(costs[1].cuda, 8 * buckets);
  EXPECT_LE(costs[1].stream_waits, 4 * buckets);
}

/// Averages, where the buckets lie.
TEST_F(CostsOfTorch, AStepWithTheArenasHook) {
  const std::vector<Costs> costs = measure([](const GroupPtr& group, int rank) {
    const auto hook = std::make_shared<ArenaHook>(group, std::size_t{8} << 20,
                                                  at::Device(at::kCUDA, static_cast<at::DeviceIndex>(rank)));
    return [hook, buckets = std::make_shared<Buckets>()] {
      buckets->step([&](::c10d::GradBucket& bucket) { return hook->runHook(bucket); });
    };
  });
  const std::size_t buckets = buckets_of_resnet50().size();
  print("DDP with reduce_in_arena", costs[1]);
  EXPECT_EQ(costs[1].copies, 0U) << "a bucket is copied in a step that repeats";
  EXPECT_LE(costs[1].nccl, buckets);
  EXPECT_LE(costs[1].cuda, 9 * buckets);  // one more: the kernel that divides
}

/// Of each block the parameters are gathered and the gradients averaged, on streams of FSDP2's own.
TEST_F(CostsOfTorch, AStepOfFullyShardedDataParallel) {
  static constexpr std::size_t kBlocks = 4;
  static constexpr std::int64_t kShard = 10'000;
  const std::vector<Costs> costs = measure([](const GroupPtr& group, int rank) {
    struct Block {
      at::Tensor parameters = on_device(kRanks * kShard);
      at::Tensor own_parameters = on_device(kShard);
      at::Tensor gradients = on_device(kRanks * kShard);
      at::Tensor own_gradients = on_device(kShard);
    };
    return [group, gathers = new_stream(rank), reduces = new_stream(rank),
            blocks = std::make_shared<std::vector<Block>>(kBlocks)] {
      for (Block& block : *blocks) {
        const c10::StreamGuard there(gathers);
        group->_allgather_base(block.parameters, block.own_parameters, {})->wait();
      }
      ::c10d::ReduceScatterOptions average;
      average.reduceOp = ::c10d::ReduceOp::AVG;
      for (Block& block : *blocks) {
        const c10::StreamGuard there(reduces);
        group->_reduce_scatter_base(block.own_gradients, block.gradients, average)->wait();
      }
    };
  });
  print("FSDP2, " + std::to_string(kBlocks) + " blocks", costs[1]);
  EXPECT_EQ(costs[1].nccl, 2 * kBlocks);
  EXPECT_LE(costs[1].cuda, 9 * kBlocks);  // 4 of an all-gather; 5 of an average, whose kernel divides
  EXPECT_LE(costs[1].stream_waits, 4 * kBlocks);
}

/// From rank 0 to rank 1. By way of the host, as until the devices have found each other, it takes no more than this.
TEST_F(CostsOfTorch, AMessage) {
  for (const std::int64_t bytes : {std::int64_t{4} << 10, std::int64_t{4} << 20}) {
    const std::vector<Costs> costs = measure([bytes](const GroupPtr& group, int rank) {
      return [group, rank, tensors = Tensors{on_device(bytes / 4)}]() mutable {
        (rank == 0 ? group->send(tensors, 1, 0) : group->recv(tensors, 0, 0))->wait();
      };
    });
    print("a send of " + std::to_string(bytes) + " bytes", costs[0]);
    print("its receive", costs[1]);
    for (const Costs& of_rank : costs) {
      EXPECT_LE(of_rank.cuda, bytes < 1 << 20 ? 12U : 42U);
      EXPECT_LE(of_rank.stream_waits, bytes < 1 << 20 ? 5U : 13U);
    }
  }
}

}  // namespace
}  // namespace kolo::c10d::test
