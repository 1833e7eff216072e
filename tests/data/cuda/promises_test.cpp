// SPDX-License-Identifier: Apache-2.0
//
// What the header promises beside results: streams of every kind, capture, devices, faults.
#include "tests/data/cuda/gate.hpp"
#include "tests/data/cuda/rank_device.hpp"

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include <kolo/detail/counters.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>

namespace kolo::cuda::test {
namespace {

using emulated::Failure;

constexpr const char* kLeft = "rank 0 has shut down and will not submit tensor \"what rank 0 never submits\".";

class Promises : public CudaTest {};

TEST_F(Promises, WithoutADriverGpuTensorsAreRefusedAndOthersWork) {
  emulated::Config config;
  config.driver = false;
  emulated::reset(config);
  Context context;
  std::vector<float> x{1, 2};
  allreduce(context, kolo::view(x));
  const TensorView away(x.data(), DType::float32, Shape{2}, {DeviceKind::cuda, 0});
  EXPECT_TRUE(refused(ErrorCode::unsupported, "there is no CUDA device: no NVIDIA driver is installed", [&] {
    allreduce({context, "x"}, away);
  }));
  EXPECT_TRUE(refused(ErrorCode::unsupported, "no CUDA device", [&] { bind(context); }));
}

TEST_F(Promises, BindFollowsTheLocalRankAndLeavesOthersAlone) {
  run_local(3, [] {
    EXPECT_EQ(bind(), rank());
    int current = -1;
    ok(cudaGetDevice(&current));
    EXPECT_EQ(current, rank());
    EXPECT_EQ(bind(), rank());
  });
}

TEST_F(Promises, TheCallersCurrentDeviceStays) {
  on_devices(2, Options{}, [](const RankStream& stream) {
    DeviceTensor x(DType::float32, 10, stream, [](std::int64_t i) { return i; });
    ok(cudaSetDevice(3));
    Handle handle = allreduce_async("x", x.view());
    follow(handle, stream);
    handle.wait();
    int current = -1;
    ok(cudaGetDevice(&current));
    EXPECT_EQ(current, 3);
    ok(cudaSetDevice(rank()));
    emulated::acquire_all();
    EXPECT_EQ(x.read(), elements_of(DType::float32, 10, [](std::int64_t i) { return 2 * i; }));
  });
}

/// Those for packing, messages and bells are made by who first packs, sends, or sleeps.
TEST_F(Promises, ALoneCollectiveMakesNcclsStreamsAlone) {
  on_devices(2, options(), [](const RankStream& stream) {
    const DeviceTensor x(DType::float32, 10, stream, always(1));
    Handle handle = allreduce_async("x", x.view());
    follow(handle, stream);
    barrier();
    EXPECT_EQ(emulated::calls("cudaStreamCreateWithPriority"), 4U);
    while (!handle.done()) std::this_thread::yield();
    emulated::acquire_all();
  });
}

/// Of which this thread has heard by Kolo alone.
TEST_F(Promises, AStreamThatFollowsWhatIsDoneComesBehindIt) {
  on_devices(2, options(), [](const RankStream& stream) {
    const RankStream another;
    DeviceTensor x(DType::float32, 1000, stream, [](std::int64_t i) { return i; });
    Handle handle = allreduce_async("x", x.view());
    while (!handle.done()) std::this_thread::yield();
    wait_on(handle, another);
    EXPECT_EQ(read({x.data(), DType::float32, Shape{1000}, own_device(), Stream{another}}),
              elements_of(DType::float32, 1000, [](std::int64_t i) { return 2 * i; }));
  });
}

/// Once for each kind of end: given to the device and not done, done, and failed.
TEST_F(Promises, OnGivenCallsWhenAllWorkIsWithTheDevice) {
  Gate gate;
  on_devices(2, options(), [&](const RankStream& stream) {
    DeviceTensor x(DType::float32, 1000, stream, [](std::int64_t i) { return i; });
    if (rank() == 0) gate.hold(stream);
    std::atomic<int> given{0};
    Handle handle = allreduce_async("x", x.view());
    on_given(handle, [&] { ++given; });
    while (given == 0) std::this_thread::yield();
    EXPECT_TRUE(rank() == 1 || !handle.done());
    on_given(handle, [&] { ++given; });  // at once
    EXPECT_EQ(given, 2);
    std::vector<float> host{1};
    allreduce("both have seen it", kolo::view(host));
    gate.open();
    handle.wait();
    on_given(handle, [&] { ++given; });
    EXPECT_EQ(given, 3);
    emulated::acquire_all();
    Handle on_host = allreduce_async("host", kolo::view(host));
    EXPECT_TRUE(refused(ErrorCode::invalid_argument, "on_done()", [&] { on_given(on_host, [] {}); }));
    EXPECT_TRUE(refused(ErrorCode::invalid_argument, "wait_for()",
                        [&] { static_cast<void>(wait_given(on_host, std::chrono::seconds(1))); }));
    on_host.wait();
    if (rank() == 1) return;
    Handle lost = allreduce_async("what rank 1 never submits", x.view());
    on_given(lost, [&] { ++given; });
    EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { lost.wait(); }).rfind("rank 1 has shut down", 0), 0U);
    while (given == 3) std::this_thread::yield();
    EXPECT_EQ(given, 4);
  });
}

TEST_F(Promises, DefaultStreams) {
  run_local(2, [] {
    bind();
    for (cudaStream_t stream : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
      DeviceTensor x(DType::float32, 5000, stream, [](std::int64_t i) { return i % 9; });
      EXPECT_EQ(result_of(allreduce_async("x", x.view()), x),
                elements_of(DType::float32, 5000, [](std::int64_t i) { return i % 9 * 2; }));
    }
  });
}

TEST_F(Promises, ACapturedStreamIsRefused) {
  Context context;
  bind(context);
  const RankStream stream;
  DeviceTensor x(DType::float32, 4, stream, always(1));
  Handle before = allreduce_async({context, "before"}, x.view());
  ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const TensorView view = x.view();
  EXPECT_TRUE(refused(ErrorCode::invalid_argument, "captured", [&] { allreduce({context, "x"}, view); }));
  EXPECT_TRUE(refused(ErrorCode::invalid_argument, "captured", [&] { wait_on(before, stream); }));
  cudaGraph_t graph = nullptr;
  static_cast<void>(cudaStreamEndCapture(stream, &graph));
  before.wait();
  allreduce({context, "x"}, view);  // the name is free
  stream.synchronize();
}

/// Else the ranks' next calls would be taken for different ones.
TEST_F(Promises, AnUnnamedCallThatIsRefusedHereIsNoCall) {
  on_devices(2, Options{}, [](const RankStream& stream) {
    DeviceTensor x(DType::float32, 4, stream, [](std::int64_t i) { return i; });
    if (rank() == 0) {
      ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      const TensorView view = x.view();
      EXPECT_TRUE(refused(ErrorCode::invalid_argument, "captured", [&] { allreduce(view); }));
      cudaGraph_t graph = nullptr;
      static_cast<void>(cudaStreamEndCapture(stream, &graph));
    }
    EXPECT_EQ(allreduce(rank() + 1, ReduceOp::sum), 3);
    allreduce(x.view());
    emulated::acquire_all();
    EXPECT_EQ(x.read(), elements_of(DType::float32, 4, [](std::int64_t i) { return 2 * i; }));
    barrier();
  });
}

TEST_F(Promises, ACaptureBesideIsNotDisturbed) {
  const RankStream captured;
  cudaGraph_t graph = nullptr;
  for (const char* backend : {"nccl", "staged"}) {
    auto context = std::make_unique<Context>(options().with_setting("KOLO_GPU_BACKEND", backend));
    bind(*context);
    const RankStream stream;
    const DeviceTensor x(DType::float32, 100000, stream, [](std::int64_t i) { return i % 5; });
    ok(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    Handle handle = allreduce_async({*context, "x"}, x.view());  // all is allocated for it, too
    wait_on(handle, stream);
    handle.wait();
    allreduce({*context, "x"}, x.view());
    ok(cudaStreamEndCapture(captured, &graph));
    emulated::acquire_all();
    EXPECT_EQ(x.read(), elements_of(DType::float32, 100000, [](std::int64_t i) { return i % 5; }));
    ok(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    context.reset();  // and given back
    ok(cudaStreamEndCapture(captured, &graph));
  }
}

TEST_F(Promises, HostMemoryOtherDevicesAndTypesWithoutReductionAreRefused) {
  Context context;
  bind(context);
  const RankStream stream;
  int on_host = 0;
  EXPECT_TRUE(refused(ErrorCode::invalid_argument, "host", [&] { static_cast<void>(view(&on_host, 1, stream)); }));
  DeviceTensor x(DType::int16, 4, stream);
  EXPECT_TRUE(refused(ErrorCode::unsupported, "int16", [&] { allreduce({context, "x"}, x.view()); }));
  const DeviceTensor n(DType::int32, 4, stream);
  EXPECT_TRUE(refused(ErrorCode::unsupported,
                      "NCCL has no bit_xor of int32; use KOLO_GPU_BACKEND=staged, which reduces on the CPU", [&] {
                        allreduce({context, "n"}, n.view(), ReduceOp::bit_xor);
                      }));
  const TensorView other(x.data(), DType::float32, Shape{2}, {DeviceKind::cuda, 2});
  EXPECT_TRUE(refused(ErrorCode::unsupported, "one rank uses one device", [&] { allreduce({context, "x"}, other); }));
  EXPECT_TRUE(refused(ErrorCode::unsupported, "_into", [&] { static_cast<void>(allgather(context, x.view())); }));
  std::vector<float> host(2);
  Handle handle = allreduce_async({context, "host"}, kolo::view(host));
  EXPECT_TRUE(refused(ErrorCode::invalid_argument, "wait()", [&] { wait_on(handle, stream); }));
  handle.wait();
}

TEST_F(Promises, WhatIsReducedIsAlignedToItsElements) {
  Context context;
  bind(context);
  const RankStream stream;
  const DeviceTensor x(DType::float32, 4, stream, 2);
  const DeviceTensor y(DType::float32, 4, stream);
  ok(cudaMemsetAsync(x.data(), 0, x.bytes(), stream));
  const std::string why =
      "its tensor's address is not a multiple of 4 bytes, the size of float32; a GPU reduces aligned elements only";
  const Where named(context, "x");
  const auto said = [](const auto& call) { return sentence_of(ErrorCode::invalid_argument, call); };
  EXPECT_EQ(said([&] { allreduce(named, x.view()); }), "allreduce of \"x\": " + why);
  EXPECT_EQ(said([&] { allreduce_into(named, y.view(), x.view()); }), "allreduce of \"x\": " + why);
  EXPECT_EQ(said([&] { reduce_scatter_into(named, x.view(), y.view()); }), "reduce_scatter of \"x\": " + why);
  broadcast(named, x.view(), 0);  // moves bytes
  stream.synchronize();
}

TEST_F(Promises, RanksOfAMachineGetDevicesOfTheirOwnWhateverNodesItIsCutInto) {
  run_local(
      4,
      [] {
        EXPECT_EQ(local_size(), 2);
        const std::string mine = "CUDA backend: cuda:" + std::to_string(rank()) + " ";
        EXPECT_NE(describe().find(mine), std::string::npos) << describe();  // which it would take
        EXPECT_EQ(bind(), rank());
        EXPECT_NE(describe().find(mine), std::string::npos) << describe();
      },
      options().with_setting("KOLO_RANKS_PER_NODE", "2"));
}

TEST_F(Promises, TwoRanksOnOneDeviceMustBeAllowed) {
  emulated::Config config;
  config.devices = 1;
  emulated::reset(config);
  for (const bool allowed : {false, true}) {
    on_devices(2, options().with_setting("KOLO_SHARE_DEVICE", allowed ? "1" : "0"), [&](const RankStream& stream) {
      DeviceTensor x(DType::float32, 4, stream, always(1));
      Handle handle = allreduce_async("x", x.view());
      if (!allowed) {
        EXPECT_TRUE(refused(ErrorCode::unsupported, "KOLO_SHARE_DEVICE=1", [&] { handle.wait(); }));
        std::vector<float> host{1};
        allreduce(kolo::view(host));  // the job goes on
        stream.synchronize();
        return;
      }
      follow(handle, stream);
      EXPECT_EQ(x.read(), elements_of(DType::float32, 4, always(2)));
      handle.wait();
    });
  }
}

TEST_F(Promises, ASecondContextOnAGpuMustBeAllowed) {
  const auto reduce = [](const RankStream& stream) {
    DeviceTensor x(DType::float32, 4, stream, always(1));
    Handle handle = allreduce_async("x", x.view());
    try {
      follow(handle, stream);
    } catch (...) {
      stream.synchronize();
      throw;
    }
    EXPECT_EQ(x.read(), elements_of(DType::float32, 4, always(size())));
    handle.wait();
  };
  for (const char* backend : {"nccl", "staged"}) {
    for (const bool allowed : {false, true}) {
      const bool works = allowed || std::string(backend) == "staged";
      const Options second =
          options().with_setting("KOLO_GPU_BACKEND", backend).with_setting("KOLO_SHARE_DEVICE", allowed ? "1" : "0");
      on_devices(2, options(), [&](const RankStream& stream) {
        reduce(stream);
        barrier();
        if (rank() == 0) {  // on the same two devices
          on_devices(2, second, [&](const RankStream& another) {
            if (works) return reduce(another);
            EXPECT_EQ(sentence_of(ErrorCode::unsupported, [&] { reduce(another); }),
                      "rank 0 cannot use its GPU: another context of its process uses it by NCCL, and nothing orders "
                      "the two. Shut that context down first, or set KOLO_GPU_BACKEND=staged for one of them, or "
                      "KOLO_SHARE_DEVICE=1 where the program never has collectives of both open at a time");
            std::vector<float> host{1};
            allreduce(kolo::view(host));  // the job goes on
          });
        }
        barrier();
        reduce(stream);
      });
    }
  }
}

TEST_F(Promises, TheCpuGoesOnWhileADeviceIsMadeReady) {
  for (const char* call : {"cudaHostAlloc", "cudaMalloc"}) {  // both block, and are called at the first use
    SCOPED_TRACE(call);
    std::atomic<int> checked{0};
    on_devices(2, options(), [&](const RankStream& stream) {
      DeviceTensor x(DType::float32, 4, stream, always(0));
      together(0, [&] { emulated::hold_calls(call); });
      Handle device = allreduce_async("device", x.view());
      std::vector<float> host{1};
      Handle handle = allreduce_async("host", kolo::view(host));
      EXPECT_TRUE(handle.wait_for(std::chrono::seconds(10)));
      EXPECT_FALSE(device.done());
      if (checked.fetch_add(1) == 1) emulated::release_calls();
      device.wait();
      emulated::acquire_all();
      EXPECT_EQ(host.front(), 2.0F);
    });
  }
}

TEST_F(Promises, ADeviceWithoutMemoryFailsEveryRankAlike) {
  const Failure failure{.api = "cudaMalloc", .nth = 2, .code = cudaErrorMemoryAllocation, .and_later = true};
  on_devices(2, options(), [&](const RankStream& stream) {
    DeviceTensor x(DType::float32, 4, stream, always(1));
    together(0, [&] { emulated::inject(failure); });
    EXPECT_TRUE(
        refused(ErrorCode::out_of_memory, "cannot use its GPU: cudaMalloc failed", [&] { allreduce("x", x.view()); }));
    stream.synchronize();
  });
}

TEST_F(Promises, AFailureOfNcclEndsTheJobEverywhere) {
  for (const std::uint64_t nth : {1, 3, 6}) {
    emulated::reset(machine());
    const auto job = [&](const RankStream& stream) {
      DeviceTensor x(DType::float32, 1000, stream, always(0));
      allreduce("x", x.view());
      if (rank() == 0) emulated::inject({.api = "ncclAllReduce", .nth = nth, .code = ncclSystemError});
      for (int step = 0; step < 20; ++step) allreduce("x", x.view());
    };
    EXPECT_THROW(on_devices(2, options().with_setting("KOLO_LATCH_TIMEOUT_S", "1"), job), Error);
    emulated::drain();
    EXPECT_TRUE(emulated::take_reports().empty());
  }
}

TEST_F(Promises, APeerThatVanishesInsideACollectiveIsNotWaitedForForever) {
  const auto began = std::chrono::steady_clock::now();
  const auto job = [&](const RankStream& stream) {
    DeviceTensor x(DType::float32, 1000, stream, always(0));
    allreduce("x", x.view());
    if (rank() == 1) emulated::inject({.api = "ncclAllReduce", .rank = 1, .effect = Failure::Effect::vanish});
    for (int step = 0; step < 20; ++step) allreduce("x", x.view());
  };
  expect_error(3, options().with_setting("KOLO_TIMEOUT_S", "1").with_setting("KOLO_LATCH_TIMEOUT_S", "1"), job);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
}

TEST_F(Promises, NcclsWordOfALostPeerIsHeardWhileItsCollectiveRuns) {
  // No deadline comes to help: the others' kernels wait for the lost rank, and NCCL tells only who asks.
  std::string said;
  const auto job = [&](const RankStream& stream) {
    DeviceTensor x(DType::float32, 1000, stream, always(0));
    allreduce("x", x.view());
    together(1, [&] {
      emulated::inject({.api = "ncclAllReduce",
                        .code = ncclSuccess,
                        .rank = 1,
                        .effect = Failure::Effect::lose_peer,
                        .after_others = true});
    });
    try {
      allreduce("x", x.view());
    } catch (const Error& error) {
      if (rank() == 0) said = error.status().message();
      throw;
    }
  };
  expect_error(3, options().with_setting("KOLO_TIMEOUT_S", "100000").with_setting("KOLO_LATCH_TIMEOUT_S", "1"), job);
  EXPECT_NE(said.find("NCCL failed"), std::string::npos) << said;
  EXPECT_NE(said.find("rank 1 was lost"), std::string::npos) << said;
}

TEST_F(Promises, ShutdownWaitsForTheDeviceBeforeItSaysThatARankLeaves) {
  Gate gate;
  on_devices(2, options(), [&](const RankStream& stream) {
    DeviceTensor x(DType::float32, 1000, stream, always(0));
    if (rank() == 0) gate.hold(stream);
    Handle handle = allreduce_async("x", x.view());
    std::vector<float> host{1};
    allreduce("behind x in the log", kolo::view(host));
    if (rank() == 0) {
      current_context().shutdown();
      EXPECT_TRUE(handle.done());
      handle.wait();
    } else {
      const Opened opened{gate};  // whatever is thrown here
      Handle lost = allreduce_async("what rank 0 never submits", kolo::view(host));
      EXPECT_FALSE(lost.wait_for(std::chrono::milliseconds(50))) << "rank 0 has left, with a batch on its device";
      gate.open();
      EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { lost.wait(); }), kLeft);
      handle.wait();
    }
    emulated::acquire_all();
  });
}

TEST_F(Promises, AContextThatOutlivesCudaEnds) {
  for (const bool under_way : {false, true}) {
    Gate gate;
    auto context = std::make_unique<Context>(options());
    bind(*context);
    cudaStream_t stream = nullptr;  // these are given back by nobody: CUDA goes first
    void* memory = nullptr;
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ok(cudaMalloc(&memory, 4000));
    ok(cudaMemsetAsync(memory, 0, 4000, stream));
    const TensorView x = view(static_cast<float*>(memory), 1000, stream);
    allreduce({*context, "x"}, x);
    auto arena = std::make_unique<GradientArena>(*context, 1 << 16, Device{DeviceKind::cuda, 0});
    if (under_way) {
      gate.hold(stream);
      Handle handle = allreduce_async({*context, "x"}, x);
      emulated::unload();
      gate.open();
      EXPECT_THROW(handle.wait(), Error);
    } else {
      emulated::unload();
    }
    arena.reset();
    context.reset();
    expect_no_reports();
    emulated::reset(machine());
  }
}

TEST_F(Promises, SeveralDevicesInOneProcessHaveAContextEach) {
  // One thread, four worlds of one rank, each on its own device, with work of all of them under way at once.
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<std::unique_ptr<RankStream>> streams;
  std::vector<DeviceTensor> tensors;
  std::vector<Handle> handles;
  for (int device = 0; device < 4; ++device) {
    ok(cudaSetDevice(device));
    contexts.push_back(std::make_unique<Context>());
    streams.push_back(std::make_unique<RankStream>());
    tensors.emplace_back(DType::float32, 1000, *streams.back(), [&](std::int64_t i) { return i + device; });
    handles.push_back(
        allreduce_async({*contexts.back(), "x"}, tensors.back().view(), AllreduceOptions{}.with_prescale(2.0)));
  }
  for (int device = 0; device < 4; ++device) {
    const auto at = static_cast<std::size_t>(device);
    follow(handles[at], *streams[at]);
    ok(cudaSetDevice(device));
    EXPECT_EQ(tensors[at].read(), elements_of(DType::float32, 1000, [&](std::int64_t i) { return 2 * (i + device); }));
    handles[at].wait();
    EXPECT_NE(describe(*contexts[at]).find("CUDA backend: cuda:" + std::to_string(device)), std::string::npos);
  }
  ok(cudaSetDevice(0));
}

TEST_F(Promises, WhatIsUsedIsDescribed) {
  Context context;
  EXPECT_NE(describe(context).find(
                "CUDA backend: cuda:0 (Emulated device, GPU 0 of the machine) of 4 visible, not in use yet: NCCL"),
            std::string::npos)
      << describe(context);
  bind(context);
  const RankStream stream;
  DeviceTensor x(DType::float32, 4, stream, always(0));
  allreduce({context, "x"}, x.view());
  const std::string text = describe(context);
  EXPECT_NE(text.find("4 visible, in use: NCCL"), std::string::npos) << text;
  EXPECT_EQ(text.find("arenas"), std::string::npos) << text;
  const GradientArena arena(context, 1 << 20, Device{DeviceKind::cuda, 0});
  allreduce({context, "x"}, x.view());
  EXPECT_NE(describe(context).find(", arenas of 1024 KiB"), std::string::npos) << describe(context);
}

TEST_F(Promises, WhatIsUsedIsCounted) {
  run_local(
      2,
      [] {
        EXPECT_EQ(kolo::detail::counters().device_buffer_bytes, 0U);
        bind();
        const RankStream stream;
        DeviceTensor small(DType::float32, 100, stream, always(0));
        DeviceTensor large(DType::float32, 50000, stream, always(0));
        allreduce("small", small.view());
        allreduce("large", large.view());
        const detail::Counters counted = detail::counters();
        EXPECT_EQ(counted.device_batches, 2U);
        EXPECT_EQ(counted.device_portions, 2U);
        EXPECT_EQ(counted.device_calls, 2U);
        EXPECT_EQ(counted.device_communicators, 1U);
        EXPECT_EQ(counted.device_bytes_packed, 0U) << "each is alone";
        EXPECT_EQ(counted.device_bytes_in_place, 200400U);
        EXPECT_EQ(counted.device_arena_bytes, 0U);
        EXPECT_GE(counted.device_buffer_bytes, 2U * (std::uint64_t{1} << 20));
      },
      options().with_setting("KOLO_GPU_BUFFERS", "2").with_setting("KOLO_GPU_DIRECT_BYTES", "64K"));
}

}  // namespace
}  // namespace kolo::cuda::test
