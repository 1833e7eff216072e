// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are out of data join while tensors of devices are in flight, are planned, or belong to an optimizer; and
// what cannot be done then.
#include <optional>
#include <string>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/distributed_optimizer.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>
#include <kolo/join.hpp>

#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

class JoinLife : public CudaWorlds {
 protected:
  static Options options() { return CudaWorlds::options().with_setting("KOLO_GPU_DIRECT_BYTES", "4K"); }
};

Bytes equal_floats(std::int64_t elements, int value) { return elements_of(DType::float32, elements, 1, always(value)); }

/// Where there are more than two ranks, rank 1 joins with nothing in flight, so that a batch has a rank which has
/// joined and gives something, and another that gives nothing.
TEST_P(JoinLife, LeavesWhatIsInFlight) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    GradientArena arena(1 << 16, own_device());
    const TensorView inside = arena.allocate(DType::float32, Shape{100}, Stream{stream});
    DeviceTensor x(DType::float32, 3000, stream), alone(DType::float32, 10, stream);
    const int gone = size() > 2 ? 2 : 1;
    int sum = 0;
    for (int r = 0; r < size(); ++r) sum += r == 1 && gone == 2 ? 0 : r + 1;
    if (gone == 2 && rank() == 1) {
      EXPECT_GT(join(), 1);
      return;
    }
    x.write(equal_floats(3000, rank() + 1));
    alone.write(equal_floats(10, 7));
    write(inside, equal_floats(100, rank() + 1));
    std::optional<Future<int>> joined;
    Handle by_rank_0;
    if (rank() > 0) {
      EXPECT_EQ(allreduce(1, ReduceOp::sum), size() - gone) << "they have joined";
    }
    const NamedView both[] = {{"x", x.view()}, {"inside", inside}};
    Handle of_all = grouped_allreduce_async("both", both, ReduceOp::sum);
    if (rank() == 0) {
      by_rank_0 = allreduce_async("alone", alone.view(), ReduceOp::sum);
      joined = join_async();
    }
    follow(of_all, stream);
    EXPECT_EQ(x.read(), equal_floats(3000, sum));
    EXPECT_EQ(read(inside), equal_floats(100, sum));
    of_all.wait();
    EXPECT_GT(joined ? joined->get() : join(), 0);
    if (rank() > 0) return;
    follow(by_rank_0, stream);
    EXPECT_EQ(alone.read(), equal_floats(10, 7));
    by_rank_0.wait();
  });
}

/// What a plan reduces where it lies goes through buffers while ranks are absent, and is planned anew when all are
/// back.
TEST_P(JoinLife, CutsPlansAndAllowsNewOnes) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    GradientArena arena(1 << 16, own_device());
    const TensorView inside = arena.allocate(DType::float32, Shape{100}, Stream{stream});
    DeviceTensor small(DType::float32, 50, stream), large(DType::float32, 3000, stream);
    const auto steps = [&](int count, int left) {
      for (int step = 0; step < count; ++step) {
        small.write(equal_floats(50, 1));
        large.write(equal_floats(3000, 1));
        write(inside, equal_floats(100, 1));
        std::vector<Handle> open;
        open.push_back(allreduce_async("small", small.view(), ReduceOp::sum));
        open.push_back(allreduce_async("large", large.view(), ReduceOp::sum));
        open.push_back(allreduce_async("inside", inside, ReduceOp::sum));
        for (Handle& handle : open) follow(handle, stream);
        EXPECT_EQ(small.read(), equal_floats(50, left));
        EXPECT_EQ(large.read(), equal_floats(3000, left));
        EXPECT_EQ(read(inside), equal_floats(100, left));
        wait_all(open);
        end_step();
      }
    };
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::uint64_t before = kolo::detail::counters().planned_batches;
      steps(5, size());
      EXPECT_GT(kolo::detail::counters().planned_batches, before);
      for (int left = size() - 1; left >= size() - rank(); --left) steps(2, left);
      EXPECT_EQ(join(), size() - 1);
      before = kolo::detail::counters().planned_batches;
      steps(5, size());
      EXPECT_GT(kolo::detail::counters().planned_batches, before);
    }
    emulated::acquire_all();
  });
}

/// More tensors than a step takes: an absent rank ends its steps where the others do, though it packs nothing.
TEST_P(JoinLife, ManyTensorsInOneBatch) {
  run_local(
      ranks(),
      [] {
        bind();
        if (rank() == size() - 1) {
          EXPECT_LT(join(), size() - 1);
          return;
        }
        constexpr std::int64_t kTensors = 5000;
        const RankStream stream;
        DeviceTensor all(DType::float32, kTensors, stream);
        std::vector<Call> calls;
        for (std::int64_t i = 0; i < kTensors; ++i) {
          std::byte* const element = all.data() + static_cast<std::size_t>(i) * sizeof(float);
          calls.push_back(
              Call::broadcast(TensorView(element, DType::float32, Shape{1}, device_of(element), Stream{stream}), 0));
        }
        all.write(equal_floats(kTensors, rank() + 5));
        EXPECT_EQ(result_of(grouped_async("many", calls), all), equal_floats(kTensors, 5));
        EXPECT_LT(join(), size() - 1);
      },
      options());
}

struct StepCounter {
  int steps = 0;
  void step() { ++steps; }
  void zero_grad() {}
};

/// One line behind the loop, as on CPUs. Each step's gradient is the mean over those who have a batch for it.
TEST_P(JoinLife, AnOptimizerGoesOnWithUnevenNumbersOfBatches) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    DeviceTensor values[] = {{DType::float32, 10, stream}, {DType::float32, 3000, stream}};
    DeviceTensor gradients[] = {{DType::float32, 10, stream}, {DType::float32, 3000, stream}};
    const Parameter parameters[] = {{"a", values[0].view(), gradients[0].view()},
                                    {"b", values[1].view(), gradients[1].view()}};
    for (const DeviceTensor& value : values) value.write(equal_floats(value.view().elements(), 1));
    StepCounter counter;
    DistributedOptimizer optimizer(counter, parameters);
    const auto batches = [](int of) { return 2 * of + 1; };
    for (int step = 0; step < batches(rank()); ++step) {
      int left = 0;
      int sum = 0;
      for (int r = 0; r < size(); ++r) {
        if (step >= batches(r)) continue;
        ++left;
        sum += 12 * (r + step);
      }
      for (const DeviceTensor& gradient : gradients) {
        gradient.write(equal_floats(gradient.view().elements(), 12 * (rank() + step)));
      }
      optimizer.gradient_ready(1);
      EXPECT_TRUE(optimizer.step());
      emulated::acquire_all();
      for (const DeviceTensor& gradient : gradients) {
        EXPECT_EQ(gradient.read(), equal_floats(gradient.view().elements(), sum / left)) << "step " << step;
      }
    }
    EXPECT_EQ(counter.steps, batches(rank()));
    EXPECT_EQ(join(), size() - 1);
  });
}

TEST_P(JoinLife, WhatNeedsAnAbsentRankSaysSo) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    const int last = size() - 1;
    if (rank() == last) {
      EXPECT_LT(join(), last);
      return;
    }
    DeviceTensor x(DType::float32, 8, stream), y(DType::float32, 8, stream);
    x.write(equal_floats(8, 1));
    const auto refused = [](const auto& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    const std::string why = "cannot run, because rank " + std::to_string(last) + " has joined, and ";
    EXPECT_EQ(refused([&] { alltoall_into_async("all", x.view(), y.view()).wait(); }),
              "tensor \"all\": the alltoall " + why +
                  "every rank would have to send and to receive; call it before any rank joins, or after the join.");
    const auto scaled = AllreduceOptions(ReduceOp::product).with_prescale(0.5);
    EXPECT_EQ(refused([&] { allreduce_async("product", x.view(), scaled).wait(); }),
              "tensor \"product\": the allreduce " + why +
                  "nothing can stand for a rank in a product with prescale; scale the inputs before the call.");
    EXPECT_EQ(refused([&] { GradientArena arena(1 << 12, own_device()); }),
              "GradientArena(gradients): a rank has joined, and an arena is made by all of them; make it before");
    EXPECT_EQ(result_of(allreduce_async("x", x.view(), ReduceOp::sum), x), equal_floats(8, last)) << "the job goes on";
    EXPECT_LT(join(), last);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, JoinLife, ::testing::ValuesIn(worlds_of({2, 4}, false)), name_of_world);

}  // namespace
}  // namespace kolo::cuda::test
