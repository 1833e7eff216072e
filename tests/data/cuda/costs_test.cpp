// SPDX-License-Identifier: Apache-2.0
//
// What a collective asks of CUDA and NCCL once it has run before: calls that give work to a stream or order it, waits
// of one stream for another, and changes of thread on the way. The numbers stand in docs/gpu.md.
#include "tests/data/cuda/rank_device.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <kolo/detail/counters.hpp>
#include <kolo/looking.hpp>
#include <kolo/point_to_point.hpp>

#include "tests/data/cuda/costs.hpp"
#include "tests/data/cuda/gate.hpp"
#include "tests/data/cuda/resnet50.hpp"

namespace kolo::cuda::test {
namespace {

constexpr int kMeasured = 1;  // the rank, and its device: no thread has that one by default

class CostsOf : public CudaTest {
 protected:
  /// `start` begins what is measured; it ends when the stream has been made to wait for it. Nothing is measured before
  /// steps repeat. The tries end with one that is `good`.
  static Costs measure(const std::function<std::function<std::vector<Handle>()>(const RankStream&)>& prepare,
                       const Options& with, int most_tries, const std::function<bool(const Costs&)>& good = {}) {
    constexpr int kWarm = 8;
    std::vector<Costs> tries;
    std::atomic<bool> found{false};
    on_devices(2, with, [&](const RankStream& stream) {
      const auto start = prepare(stream);
      for (int i = 0; i < kWarm + most_tries; ++i) {
        stream.synchronize();
        barrier();
        if (found) break;
        const bool measures = i >= kWarm && rank() == kMeasured;
        if (measures) emulated::trace();
        std::vector<Handle> handles = start();
        for (Handle& handle : handles) wait_on(handle, stream);
        if (measures) {
          tries.push_back(costs_of(emulated::take_trace(), kMeasured));
          found = good && good(tries.back());
        }
        stream.synchronize();
        wait_all(handles);
        end_step();
      }
      emulated::acquire_all();
      barrier();
    });
    return cheapest(tries);
  }

  /// `before`: what each rank does first.
  static Costs lone(
      std::int64_t bytes, const std::function<void()>& before = [] {}, ReduceOp op = ReduceOp::sum) {
    std::vector<std::unique_ptr<DeviceTensor>> tensors(2);
    const auto prepare = [&](const RankStream& stream) {
      before();
      auto& tensor = tensors[static_cast<std::size_t>(rank())];
      tensor = std::make_unique<DeviceTensor>(DType::float32, bytes / 4, stream);
      ok(cudaMemsetAsync(tensor->data(), 0, tensor->bytes(), stream));
      return [&tensor, op] {
        std::vector<Handle> handles;
        handles.push_back(allreduce_async("x", tensor->view(), AllreduceOptions{}.with_op(op)));
        return handles;
      };
    };
    // On a busy machine a thread that waits may lose its CPU, and the engine's own goes on.
    return measure(prepare, Options{}.with_setting("KOLO_TIMEOUT_S", "300").with_setting("KOLO_SPIN_US", "1000000"),
                   200, [](const Costs& costs) { return costs.thread_changes == 0; });
  }
};

TEST_F(CostsOf, ALoneAllReduce) {
  for (const std::int64_t bytes : {std::int64_t{8}, std::int64_t{4} << 20, std::int64_t{64} << 20}) {
    const Costs costs = lone(bytes);
    print("all-reduce of " + std::to_string(bytes) + " bytes", costs);
    // One event behind the caller's stream and one behind NCCL's, and a wait for each; no second wait where the device
    // is done before `wait_on`.
    EXPECT_LE(costs.cuda, 4U);
    EXPECT_LE(costs.stream_waits, 2U);
    EXPECT_EQ(costs.nccl, 1U);
    EXPECT_EQ(costs.thread_changes, 0U);
    EXPECT_EQ(costs.bells, 0U);
  }
}

/// Divided where it lies, on the same stream, whatever its size.
TEST_F(CostsOf, ALoneAverage) {
  for (const std::int64_t bytes : {std::int64_t{8}, std::int64_t{4} << 20, std::int64_t{64} << 20}) {
    const Costs costs = lone(
        bytes, [] {}, ReduceOp::average);
    print("average of " + std::to_string(bytes) + " bytes", costs);
    EXPECT_LE(costs.cuda, 5U);  // a sum's, and the kernel that divides
    EXPECT_LE(costs.stream_waits, 2U);
    EXPECT_EQ(costs.nccl, 1U);
    EXPECT_EQ(costs.thread_changes, 0U);
    EXPECT_EQ(costs.bells, 0U);
  }
}

/// Two events around NCCL's kernel while there is one; then nothing of it is left.
TEST_F(CostsOf, ATimeline) {
  const std::string path = ::testing::TempDir() + "costs.json";
  for (const bool runs : {true, false}) {
    const Costs costs = lone(8, [&] {
      start_timeline(path);
      if (!runs) stop_timeline();
    });
    print(runs ? "all-reduce in a timeline" : "all-reduce after a timeline", costs);
    EXPECT_EQ(costs.cuda + 2U - costs.stream_waits, runs ? 6U : 4U);  // no second wait, as above
    EXPECT_LE(costs.stream_waits, 2U);
    EXPECT_EQ(costs.nccl, 1U);
    EXPECT_EQ(costs.thread_changes, 0U);
    EXPECT_EQ(costs.bells, 0U);
    EXPECT_EQ(emulated::calls("cudaEventElapsedTime") > 0, runs);
    expect_no_reports();
    emulated::reset(machine());
  }
  std::filesystem::remove(path);
}

/// The first has been given to the device, which is held up: the host only waits for its end. So the second goes by the
/// thread that submits it, which is the last of its ranks to do so.
TEST_F(CostsOf, AnAllReduceBesideOneThatRuns) {
  constexpr int kTries = 100;
  std::atomic<int> submitted{0};
  std::atomic<bool> found{false};
  on_devices(2, Options{}.with_setting("KOLO_TIMEOUT_S", "300"), [&](const RankStream& stream) {
    const RankStream another;
    const DeviceTensor first(DType::float32, 1000, stream, always(1));
    const DeviceTensor second(DType::float32, 1000, another, always(1));
    for (int i = 1; i <= kTries && !found; ++i) {
      Gate gate;
      gate.hold(stream);
      Handle running = allreduce_async("first", first.view());
      wait_on(running, stream);
      barrier();
      while (rank() == kMeasured && submitted < i) std::this_thread::yield();
      if (rank() == kMeasured) emulated::trace();
      Handle beside = allreduce_async("second", second.view());
      if (rank() == kMeasured) {
        for (const emulated::TracedCall& call : emulated::take_trace()) {
          if (call.api == "ncclAllReduce" && call.thread == std::this_thread::get_id()) found = true;
        }
      }
      submitted = i;
      EXPECT_FALSE(running.done());
      barrier();
      gate.open();
      running.wait();
      beside.wait();
      barrier();
    }
    emulated::acquire_all();
  });
  EXPECT_TRUE(found);
}

/// With a deadline, too, a thread that waits drives. Its peer comes when it waits already.
TEST_F(CostsOf, AWaitWithADeadline) {
  constexpr int kTries = 100;
  std::atomic<int> submitted{0};
  std::atomic<bool> found{false};
  const Options with = Options{}.with_setting("KOLO_TIMEOUT_S", "300").with_setting("KOLO_SPIN_US", "1000000");
  on_devices(2, with, [&](const RankStream& stream) {
    const DeviceTensor x(DType::float32, 1000, stream, always(1));
    for (int i = 1; i <= kTries && !found; ++i) {
      stream.synchronize();
      barrier();
      if (rank() == kMeasured) {
        emulated::trace();
        Handle handle = allreduce_async("x", x.view());
        EXPECT_FALSE(wait_given(handle, std::chrono::nanoseconds(1)));
        submitted = i;
        EXPECT_TRUE(wait_given(handle, std::chrono::minutes(1)));
        wait_on(handle, stream);
        const Costs costs = costs_of(emulated::take_trace(), kMeasured);
        found = costs.thread_changes == 0 && costs.cuda <= 4;
        handle.wait();
      } else {
        while (submitted < i) std::this_thread::yield();
        allreduce("x", x.view());
      }
      barrier();
    }
    emulated::acquire_all();
  });
  EXPECT_TRUE(found);
}

/// As a mixture of experts makes them: the numbers differ in each step, so that no step repeats another.
TEST_F(CostsOf, AnAllToAllOfEightRanks) {
  constexpr int kRanks = 8;
  constexpr int kSteps = 6;
  emulated::Config config = machine();
  config.devices = kRanks;
  emulated::reset(config);
  Costs costs;
  on_devices(kRanks, options().with_setting("KOLO_TIMEOUT_S", "300"), [&](const RankStream& stream) {
    const DeviceTensor in(DType::float32, 1000, stream, always(1));
    const DeviceTensor out(DType::float32, 1000, stream, always(0));
    for (int step = 0; step < kSteps; ++step) {
      stream.synchronize();
      emulated::acquire_all();
      std::vector<std::int64_t> splits, received;
      std::int64_t rows_in = 0, rows_out = 0;
      for (int other = 0; other < kRanks; ++other) {
        splits.push_back(1 + (rank() + 3 * other + step) % 5);
        received.push_back(1 + (other + 3 * rank() + step) % 5);
        rows_in += splits.back();
        rows_out += received.back();
      }
      barrier();
      if (step == kSteps - 1 && rank() == kMeasured) emulated::trace();
      const auto rows_of = [](const DeviceTensor& tensor, std::int64_t rows) {
        return TensorView(tensor.data(), DType::float32, Shape{rows}, device_of(tensor.data()),
                          Stream{tensor.stream()});
      };
      Handle handle = alltoall_known_into_async(rows_of(in, rows_in), rows_of(out, rows_out), splits, received);
      wait_on(handle, stream);
      if (step == kSteps - 1 && rank() == kMeasured) costs = costs_of(emulated::take_trace(), kMeasured);
      handle.wait();
    }
    EXPECT_EQ(kolo::detail::counters().device_exchanges, 0U);
    stream.synchronize();
    emulated::acquire_all();
    barrier();
  });
  print("all-to-all of 8 ranks", costs);
  EXPECT_LE(costs.cuda, 4U);
  EXPECT_EQ(costs.nccl, 2U * kRanks + 2U);  // a send and a receive for each rank, and the group
}

/// A send and its receive, each on its rank, from device to device: as much as of a lone all-reduce, however long it
/// is.
TEST_F(CostsOf, AMessage) {
  for (const std::int64_t bytes : {std::int64_t{8}, std::int64_t{4} << 20, std::int64_t{64} << 20}) {
    for (const bool measures_send : {true, false}) {
      std::vector<std::unique_ptr<DeviceTensor>> tensors(2);
      const auto prepare = [&](const RankStream& stream) {
        auto& tensor = tensors[static_cast<std::size_t>(rank())];
        tensor = std::make_unique<DeviceTensor>(DType::uint8, bytes, stream);
        ok(cudaMemsetAsync(tensor->data(), 0, tensor->bytes(), stream));
        return [&tensor, measures_send] {
          std::vector<Handle> handles;
          const bool sends = (rank() == kMeasured) == measures_send;
          handles.push_back(sends ? send_async(tensor->view(), 1 - rank())
                                  : Handle(recv_async(tensor->view(), 1 - rank())));
          return handles;
        };
      };
      const Options with = Options{}.with_setting("KOLO_TIMEOUT_S", "300").with_setting("KOLO_SPIN_US", "1000000");
      const Costs costs = measure(prepare, with, 200, [](const Costs& one) {
        return one.nccl == 1 && one.copies == 0 && one.thread_changes == 0;
      });
      print(((measures_send ? "send of " : "receive of ") + std::to_string(bytes) + " bytes").c_str(), costs);
      EXPECT_LE(costs.cuda, 4U);
      EXPECT_LE(costs.stream_waits, 2U);
      EXPECT_EQ(costs.nccl, 1U);
      EXPECT_EQ(costs.copies, 0U);
      EXPECT_EQ(costs.thread_changes, 0U);
      EXPECT_EQ(costs.bells, 0U);
    }
  }
}

/// An all-to-all without splits is one call of NCCL's, where that has one.
TEST_F(CostsOf, AnEvenAllToAllIsOneCallWhereNcclHasIt) {
  for (const bool old : {false, true}) {
    emulated::Config config = machine();
    config.old_nccl = old;
    emulated::reset(config);
    on_devices(3, options(), [](const RankStream& stream) {
      DeviceTensor in(DType::int64, 6, stream, [](std::int64_t i) { return 10 * rank() + i; });
      DeviceTensor out(DType::int64, 6, stream);
      const auto wanted =
          elements_of(DType::int64, 6, [](std::int64_t i) { return 10 * (i / 2) + 2 * rank() + i % 2; });
      EXPECT_EQ(result_of(alltoall_into_async("even", in.view(), out.view()), out), wanted);
      emulated::acquire_all();
      barrier();
    });
    EXPECT_EQ(emulated::calls("ncclAlltoAll"), old ? 0U : 3U);
    EXPECT_EQ(emulated::calls("ncclSend"), old ? 9U : 0U);
    expect_no_reports();
  }
}

/// By name, prepared, and as one call.
TEST_F(CostsOf, AStepOfResNet50) {
  for (const std::string way : {"by name", "prepared", "grouped"}) {
    struct Gradients {
      std::vector<DeviceTensor> memory;
      std::vector<NamedView> views;
      std::vector<Prepared> prepared;
    };
    Gradients gradients[2];
    const auto prepare = [&](const RankStream& stream) {
      Gradients& own = gradients[rank()];
      for (const std::int64_t size : resnet50()) {
        own.memory.emplace_back(DType::float32, std::max<std::int64_t>(size / 16, 1), stream);
        ok(cudaMemsetAsync(own.memory.back().data(), 0, own.memory.back().bytes(), stream));
        own.views.push_back({"g" + std::to_string(own.views.size()), own.memory.back().view()});
        if (way == "prepared")
          own.prepared.push_back(kolo::prepare(own.views.back().name, Call::allreduce(own.views.back().view)));
      }
      return [&own, &way] {
        std::vector<Handle> handles;
        if (way == "grouped") {
          handles.push_back(grouped_allreduce_async("step", own.views));
        } else if (way == "prepared") {
          for (Prepared& one : own.prepared) handles.push_back(one.start());
        } else {
          for (const NamedView& one : own.views) handles.push_back(allreduce_async(one.name, one.view));
        }
        return handles;
      };
    };
    const Options with = Options{}
                             .with_setting("KOLO_TIMEOUT_S", "300")
                             .with_setting("KOLO_FUSION_THRESHOLD", "1M")
                             .with_setting("KOLO_GPU_DIRECT_BYTES", "512K");
    const Costs costs = measure(prepare, with, 12);
    print("ResNet-50, " + way, costs);
    EXPECT_EQ(costs.copies, 0U) << "tables are made anew in a step that repeats";
    EXPECT_EQ(costs.bells, 0U);
    // All gradients are of one stream: a batch waits for it once, and it waits for a batch once.
    EXPECT_LE(costs.cuda, way == "grouped" ? 40U : 250U);
    EXPECT_LE(costs.stream_waits, way == "grouped" ? 20U : 60U);
    for (Gradients& own : gradients) own.memory.clear();
  }
}

}  // namespace
}  // namespace kolo::cuda::test
