// SPDX-License-Identifier: Apache-2.0
//
// No rank makes a context on a device that is not its own: neither Kolo's threads nor calls of the program's threads
// that have none.
#include "tests/data/cuda/rank_device.hpp"

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include <kolo/gradient_arena.hpp>
#include <kolo/looking.hpp>
#include <kolo/point_to_point.hpp>

namespace kolo::cuda::test {
namespace {

using Devices = std::vector<int>;

class Contexts : public CudaTest {};

/// Every kind of traffic, on this device.
void use_everything(int device) {
  ok(cudaSetDevice(device));
  const RankStream stream;
  DeviceTensor small(DType::float32, 1000, stream, always(1));
  DeviceTensor large(DType::float32, 100000, stream, always(1));
  const Group all = Group::of(size() == 1 ? std::vector<int>{0} : std::vector<int>{1, 0});
  for (int round = 0; round < 3; ++round) {
    GradientArena arena(1 << 16, Device{DeviceKind::cuda, device});
    const TensorView inside = arena.allocate(DType::float32, Shape{1000}, Stream{stream});
    ok(cudaMemsetAsync(inside.data(), 0, static_cast<std::size_t>(inside.bytes()), stream));
    allreduce("inside", inside);
    allreduce("large", large.view(), AllreduceOptions{}.with_op(ReduceOp::average));
    allreduce({all, "small"}, small.view());
    Handle handle = allreduce_async("small", small.view());
    handle.on_done([](const Status&) {});
    wait_on(handle, stream);
    handle.wait();
    Handle sent = send_async(small.view(), size() - 1 - rank());
    recv(large.view(), size() - 1 - rank());
    sent.wait();
    end_step();
  }
  stream.synchronize();
  emulated::acquire_all();
}

TEST_F(Contexts, AreOnTheRanksOwnDevicesAlone) {
  for (const char* backend : {"nccl", "staged"}) {
    emulated::reset(machine());
    run_local(
        2, [] { use_everything(2 + rank()); }, options().with_setting("KOLO_GPU_BACKEND", backend));
    EXPECT_EQ(emulated::contexts(), Devices({2, 3})) << backend;
    expect_no_reports();
  }
}

TEST_F(Contexts, AreOnTheRanksOwnDevicesAloneAlsoAfterAFault) {
  EXPECT_THROW(run_local(
                   2,
                   [] {
                     use_everything(2 + rank());
                     const RankStream stream;
                     DeviceTensor x(DType::float32, 1000, stream, always(1));
                     Handle handle = allreduce_async("x", x.view());
                     if (rank() == 1) throw Error(ErrorCode::user_exception, "this rank ends");
                     allreduce("nobody else's", x.view());
                   },
                   options().with_setting("KOLO_LATCH_TIMEOUT_S", "1")),
               Error);
  EXPECT_EQ(emulated::contexts(), Devices({2, 3}));
  emulated::drain();
  emulated::take_reports();
}

/// On threads that have been nowhere: what is asked of Kolo, the end of the context among it.
TEST_F(Contexts, OfACallingThreadAreItsOwn) {
  ok(cudaSetDevice(3));
  const RankStream stream;
  const DeviceTensor x(DType::float32, 1000, stream, always(1));
  const auto elsewhere = [](const std::function<void()>& body) {
    std::thread([&] {
      body();
      EXPECT_EQ(emulated::current_context(), nullptr) << "the thread has got one";
    }).join();
  };
  std::optional<Context> context;
  std::optional<Handle> handle;
  elsewhere([&] { context.emplace(Context::alone(options())); });
  elsewhere([&] { start_timeline(*context, ::testing::TempDir() + "contexts.json"); });
  elsewhere([&] {
    const TensorView view = kolo::cuda::view(reinterpret_cast<float*>(x.data()), std::size_t{1000}, stream);
    EXPECT_EQ(view.device().index, 3);
    handle.emplace(allreduce_async({*context, "x"}, view));
  });
  elsewhere([&] { wait_on(*handle, stream); });
  elsewhere([&] { handle->wait(); });
  elsewhere([&] { wait_on(*handle, stream); });  // which is done
  elsewhere([&] { context.reset(); });
  elsewhere([&] { handle.reset(); });
  EXPECT_EQ(emulated::contexts(), Devices({3}));
  emulated::acquire_all();
}

}  // namespace
}  // namespace kolo::cuda::test
