// SPDX-License-Identifier: Apache-2.0
//
// What NCCL and CUDA do behind their callers' backs, and what it must not lead to.
#include "tests/data/cuda/rank_device.hpp"

#include <nccl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <kolo/gradient_arena.hpp>

#include "data/cuda/tables.hpp"
#include "tests/data/cuda/gate.hpp"

namespace kolo::cuda::test {
namespace {

class Hazards : public CudaTest {};

void ok_nccl(ncclResult_t result) { ASSERT_EQ(result, ncclSuccess) << ncclGetErrorString(result); }

/// NCCL may put the first on its stream at any later time: then it must not wait there behind the second, whose tensor
/// is not written before the program has heard of the first.
TEST_F(Hazards, ACollectiveDoesNotWaitForTheTensorOfTheNext) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    emulated::Config config = machine();
    config.seed = seed;
    config.never_blocking = seed % 2 == 0;
    emulated::reset(config);
    run_local(
        2,
        [] {
          bind();
          const RankStream first_stream;
          const RankStream second_stream;
          DeviceTensor first(DType::float32, 1000, first_stream);
          DeviceTensor second(DType::float32, 1000, second_stream, always(1));
          const auto ones = elements_of(DType::float32, 1000, always(1));
          for (int round = 0; round < 4; ++round) {
            Gate gate;
            first.write(ones);
            gate.hold(second_stream);
            Handle one = allreduce_async("first", first.view());
            Handle two = allreduce_async("second", second.view());
            ASSERT_TRUE(one.wait_for(std::chrono::seconds(30))) << "round " << round << "\n" << emulated::describe();
            gate.open();
            two.wait();
            emulated::acquire_all();
            end_step();
          }
          emulated::acquire_all();
        },
        options().with_setting("KOLO_FUSION_THRESHOLD", "0"));
    expect_no_reports();
  }
}

/// Kolo cannot ask whether a group is open, so a program must not call it inside one of its own (kolo/cuda.hpp): the
/// emulated device says so, where NCCL is silent.
TEST_F(Hazards, ACallInsideAGroupOfTheProgramsIsReported) {
  constexpr int kTries = 50;  // until the calling thread makes Kolo's call of NCCL
  std::atomic<bool> reported{false};
  on_devices(2, options(), [&](const RankStream& stream) {
    const DeviceTensor x(DType::float32, 1000, stream, always(1));
    for (int i = 0; i < kTries; ++i) {
      barrier();
      if (reported) break;
      ok_nccl(ncclGroupStart());
      Handle handle = allreduce_async("x", x.view());
      wait_on(handle, stream);
      ok_nccl(ncclGroupEnd());
      handle.wait();
      emulated::acquire_all();
      stream.synchronize();
      barrier();
      if (rank() != 0) continue;
      for (const emulated::Report& report : emulated::take_reports()) {
        if (report.text.find("in an open group of NCCL's") != std::string::npos) reported = true;
      }
    }
  });
  EXPECT_TRUE(reported);
  emulated::drain();
  emulated::take_reports();
}

/// Kernels of the program's own may still read an arena when it is destroyed, and Kolo's engine goes on meanwhile.
TEST_F(Hazards, AnArenaOutlivesTheKernelsThatReadIt) {
  constexpr std::int64_t kElements = 5000;
  for (const char* backend : {"nccl", "staged"}) {
    for (const bool at_the_end : {false, true}) {  // of the context
      SCOPED_TRACE(std::string(backend) + (at_the_end ? ", shut down" : ""));
      run_local(
          2,
          [&] {
            const Device device{DeviceKind::cuda, bind()};
            const RankStream writer;
            const RankStream reader;
            const DeviceTensor copy(DType::float32, kElements, reader);
            DeviceTensor other(DType::float32, 10, writer, always(0));
            Gate gate;
            {
              GradientArena arena(kElements * sizeof(float), device);
              const TensorView gradient = arena.allocate(DType::float32, Shape{kElements}, Stream{reader});
              ok(cudaMemsetAsync(gradient.data(), 0, copy.bytes(), reader));
              Handle handle = allreduce_async("gradient", gradient);
              wait_on(handle, reader);
              handle.wait();
              if (!at_the_end) gate.hold(reader);
              ok(cudaMemcpyAsync(copy.data(), gradient.data(), copy.bytes(), cudaMemcpyDeviceToDevice, reader));
            }
            if (at_the_end) return current_context().shutdown();
            for (int i = 0; i < 3; ++i) allreduce("other", other.view());  // the arena's memory is given back
            gate.open();
            reader.synchronize();
          },
          options().with_setting("KOLO_GPU_BACKEND", backend));
      expect_no_reports();
    }
  }
}

/// What NCCL does on threads of its own is done in CUDA's strictest mode, whatever that of the thread that called it.
TEST_F(Hazards, ACaptureBesideTrafficOfTwoRanksIsNotDisturbed) {
  for (const char* backend : {"nccl", "staged"}) {
    SCOPED_TRACE(backend);
    const RankStream captured;
    std::atomic<int> began{0};
    on_devices(2, options().with_setting("KOLO_GPU_BACKEND", backend), [&](const RankStream& stream) {
      DeviceTensor x(DType::float32, 10000, stream, always(0));
      stream.synchronize();
      // A program's own calls disturb it, too.
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
      ok(cudaThreadExchangeStreamCaptureMode(&mode));
      together(0, [&] { ok(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal)); });
      for (int round = 0; round < 5; ++round) {
        allreduce("x", x.view());
        allreduce({Group::of({1, 0}), "x"}, x.view());  // a communicator of its own, that comes and goes
      }
      barrier();
      cudaGraph_t graph = nullptr;
      if (rank() == 0) ok(cudaStreamEndCapture(captured, &graph));
    });
    expect_no_reports();
  }
}

/// What every rank of a world hears of an all-reduce that cannot be: the same, and the world goes on.
std::string what_all_hear(
    const Options& with, const std::function<void()>& before = [] {}) {
  std::string said[2];
  run_local(
      2,
      [&] {
        bind();
        before();
        const RankStream stream;
        DeviceTensor x(DType::float32, 4, stream, always(0));
        for (int i = 0; i < 2; ++i) {
          try {
            allreduce("x", x.view());
          } catch (const Error& error) {
            EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::unsupported)) << error.what();
            said[rank()] = error.status().message();
          }
        }
        std::vector<float> host{1};
        allreduce(kolo::view(host));
        EXPECT_EQ(host[0], 2.0F);
        stream.synchronize();
      },
      with);
  EXPECT_EQ(said[0], said[1]);
  return said[0];
}

TEST_F(Hazards, TwoInstancesOfOneGpuAreRefusedBeforeNcclDoes) {
  emulated::Config config = machine();
  config.instances = true;
  emulated::reset(config);
  EXPECT_EQ(
      what_all_hear(options()),
      "ranks 0 and 1 use two instances of one GPU (MIG), between which NCCL does not work: give each rank a GPU of "
      "its own, or set KOLO_GPU_BACKEND=staged");
  EXPECT_EQ(what_all_hear(options().with_setting("KOLO_GPU_BACKEND", "staged")), "");
}

/// Whatever keeps NCCL from connecting the ranks: each of them is a rank whose GPU cannot be used, and no fault.
TEST_F(Hazards, AFailureToConnectFailsTheCollectivesAndNotTheJob) {
  for (const char* call : {"ncclCommInitRankConfig", "ncclCommRegister"}) {
    emulated::reset(machine());
    // The first fails before it has met the other, whom NCCL lets wait for ever.
    const std::string said = what_all_hear(options().with_setting("KOLO_TIMEOUT_S", "6"), [call] {
      if (rank() == 1) emulated::inject({.api = call, .code = ncclSystemError, .device = 1});
      barrier();
    });
    EXPECT_NE(said.find(" cannot use its GPU together with the others: "), std::string::npos) << said;
    expect_no_reports();
  }
}

/// A rank that dies while NCCL connects: the others' engines go on, and end with its death.
TEST_F(Hazards, ARankThatIsLostWhileNcclConnectsHoldsUpNobody) {
  for (const bool making : {true, false}) {  // the communicator; the connections of the first collective
    SCOPED_TRACE(making ? "makes" : "connects");
    emulated::reset(machine());
    std::atomic<int> on_the_cpu{0};
    const auto job = [&](const RankStream& stream) {
      DeviceTensor x(DType::float32, 4, stream, always(0));
      together(1, [&] {
        emulated::inject({.api = making ? "ncclCommInitRankConfig" : "ncclAllReduce",
                          .code = ncclSuccess,
                          .rank = 1,
                          .effect = emulated::Failure::Effect::vanish});
      });
      Handle handle = allreduce_async("x", x.view());
      for (int i = 0; i < 20; ++i) {  // the CPU's tensors go on meanwhile
        std::vector<float> host{1};
        allreduce("host", kolo::view(host));
        ++on_the_cpu;
      }
      if (rank() == 1) throw Error(ErrorCode::user_exception, "this rank ends");
      handle.wait();
    };
    expect_error(2, options().with_setting("KOLO_TIMEOUT_S", "20").with_setting("KOLO_LATCH_TIMEOUT_S", "1"), job);
    EXPECT_GE(on_the_cpu, 39) << "rank 1 may end before rank 0 has heard of its last";
  }
}

/// A stream that is full blocks who gives it more: that must not be the thread that drives the engine.
TEST_F(Hazards, AFullStreamHoldsUpNobody) {
  constexpr std::size_t kTensors = 60;
  emulated::Config config = machine();
  config.most_queued = 128;  // a batch takes three
  emulated::reset(config);
  const Options with = options().with_setting("KOLO_FUSION_THRESHOLD", "0").with_setting("KOLO_OPEN_BATCHES", "64");
  on_devices(2, with, [](const RankStream& stream) {
    std::vector<DeviceTensor> tensors;
    for (std::size_t i = 0; i < kTensors; ++i) tensors.emplace_back(DType::float32, 4, stream, always(1));
    allreduce("first", tensors.front().view());
    stream.synchronize();
    Gate gate;
    if (rank() == 0) gate.hold(stream);
    std::vector<Handle> handles;
    for (std::size_t i = 0; i < kTensors; ++i) handles.push_back(allreduce_async(std::to_string(i), tensors[i].view()));
    std::vector<float> host{1};
    Handle on_host = allreduce_async("host", kolo::view(host));
    EXPECT_TRUE(on_host.wait_for(std::chrono::seconds(30)));
    barrier();
    gate.open();
    wait_all(handles);
    on_host.wait();
    stream.synchronize();
    emulated::acquire_all();
    barrier();
  });
}

/// NCCL frees what a call uses, so an abort waits until a call has come back which waits for nobody: here one that is
/// slow, on the worker's thread, until the abort has looked for it.
TEST_F(Hazards, AnAbortWaitsForACallThatIsUnderWay) {
  std::thread releases([] {
    while (emulated::calls("ncclCommRevoke") + emulated::calls("ncclCommAbort") == 0) std::this_thread::yield();
    emulated::release_calls();
  });
  const auto job = [](const RankStream& stream) {
    DeviceTensor x(DType::float32, 4, stream, always(0));
    together(0, [] { emulated::hold_calls("ncclAllReduce"); });
    Handle handle = allreduce_async("x", x.view());
    while (emulated::calls("ncclAllReduce") < 2) std::this_thread::yield();
    if (rank() == 1) throw Error(ErrorCode::user_exception, "this rank ends");
    handle.wait();
  };
  EXPECT_THROW(on_devices(2, options().with_setting("KOLO_LATCH_TIMEOUT_S", "1"), job), Error);
  releases.join();
  emulated::drain();
  for (const emulated::Report& report : emulated::take_reports()) {
    EXPECT_EQ(report.text.find("inside a call"), std::string::npos) << report.text;
  }
}

/// NCCL's abort does not come back. Operations on the CPU do not wait for it, and those on devices only for some
/// seconds; the process goes on.
TEST_F(Hazards, AnAbortThatDoesNotEndIsLeftBehind) {
  emulated::Config config = machine();
  config.devices = 2;
  config.numbers = {8, 9};  // of this test alone: they stay in use
  emulated::reset(config);
  std::mutex mutex;
  std::string log;
  const Options with = options().with_setting("KOLO_LATCH_TIMEOUT_S", "1").with_log_sink([&](const LogRecord& record) {
    const std::lock_guard<std::mutex> lock(mutex);
    log += std::string(record.message) + "\n";
  });
  std::atomic<bool> submitted{false};
  const auto job = [&](const RankStream& stream) {
    DeviceTensor x(DType::float32, 4, stream, always(0));
    allreduce("x", x.view());
    together(0, [] { emulated::hold_calls("ncclCommAbort"); });
    while (rank() == 1 && !submitted) std::this_thread::yield();
    if (rank() == 1) throw Error(ErrorCode::user_exception, "this rank ends");
    Handle handle = allreduce_async("x", x.view());
    std::vector<float> host{1};
    Handle on_host = allreduce_async("host", kolo::view(host));
    // The engine has both, then: what it takes after a fatal error fails at once.
    EXPECT_EQ(on_host.late_ranks(std::chrono::minutes(1)), std::vector<int>{1});
    submitted = true;
    EXPECT_THROW(static_cast<void>(on_host.wait_for(std::chrono::minutes(1))), Error);
    EXPECT_FALSE(handle.done());
    EXPECT_THROW(static_cast<void>(handle.wait_for(std::chrono::minutes(1))), Error);
    stream.synchronize();
  };
  EXPECT_THROW(on_devices(2, with, job), Error);
  EXPECT_NE(log.find("is left behind"), std::string::npos) << log;
  // The two threads that were left end now, before the machine does.
  const std::uint64_t before = emulated::calls("cuCtxPopCurrent");
  emulated::release_calls();
  while (emulated::calls("cuCtxPopCurrent") < before + 2) std::this_thread::yield();
  emulated::drain();
  emulated::take_reports();
  emulated::reset(machine());
}

/// NCCL reaches into memory that has been registered on all ranks, and hangs where it was on some.
TEST_F(Hazards, WhatLiesInAnArenaOnOneRankDoesSoOnAll) {
  on_devices(2, options(), [&](const RankStream& stream) {
    GradientArena arena(1 << 16, own_device());
    const TensorView inside = arena.allocate(DType::float32, Shape{100}, Stream{stream});
    const TensorView room = arena.allocate(DType::float32, Shape{200}, Stream{stream});
    const DeviceTensor outside(DType::float32, 100, stream);
    const DeviceTensor elsewhere(DType::float32, 200, stream);
    for (const TensorView& one : {inside, room, outside.view(), elsewhere.view()})
      ok(cudaMemsetAsync(one.data(), 0, static_cast<std::size_t>(one.bytes()), stream));
    const TensorView mixed = rank() == 0 ? inside : outside.view();
    const auto is_refused = [](const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "not refused";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("arena"), std::string::npos) << error.what();
      }
    };
    is_refused([&] { allgather_into(mixed, elsewhere.view()); });
    is_refused([&] { allreduce_into(mixed, elsewhere.view(Shape{100})); });
    is_refused([&] { reduce_scatter_into(rank() == 0 ? room : elsewhere.view(), outside.view()); });
    is_refused([&] { broadcast("b", mixed, 0); });
    allgather_into(inside, room);
    allreduce_into(inside, outside.view());
    reduce_scatter_into(room, outside.view());
    broadcast("b", outside.view(), 0);
    stream.synchronize();
    emulated::acquire_all();
  });
}

/// Members of several groups use the same fusion buffers for a collective of one of them, whatever else each has done.
TEST_F(Hazards, RanksOfSeveralGroupsUseTheSameFusionBuffer) {
  on_devices(3, options(), [](const RankStream& stream) {
    std::vector<DeviceTensor> tensors;
    std::vector<NamedView> views;
    for (int i = 0; i < 3; ++i) {
      tensors.emplace_back(DType::float32, 100, stream);
      ok(cudaMemsetAsync(tensors.back().data(), 0, tensors.back().bytes(), stream));
      views.push_back({std::to_string(i), tensors.back().view()});
    }
    std::optional<Group> pair;
    if (rank() < 2) pair = Group::of({0, 1});
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 2 && pair; ++i) grouped_allreduce({*pair, "pair"}, views);
      grouped_allreduce("world", views);
    }
    stream.synchronize();
    emulated::acquire_all();
    barrier();
  });
}

/// Tensors of two streams, each written just before it is submitted, in one batch: of each stream's points the last one
/// counts, whichever of its tensors lies behind it.
TEST_F(Hazards, ABatchComesBehindTheLastPointOfEachStream) {
  constexpr std::size_t kTensors = 6;
  on_devices(2, options(), [](const RankStream& stream) {
    const RankStream another;
    std::vector<DeviceTensor> tensors;
    for (std::size_t i = 0; i < kTensors; ++i) tensors.emplace_back(DType::float32, 100, i % 2 == 0 ? stream : another);
    for (int round = 0; round < 10; ++round) {
      std::vector<Handle> handles;
      for (std::size_t i = 0; i < kTensors; ++i) {
        ok(cudaMemsetAsync(tensors[i].data(), 0, tensors[i].bytes(), tensors[i].stream()));
        handles.push_back(allreduce_async(std::to_string(i), tensors[i].view()));
      }
      for (std::size_t i = 0; i < kTensors; ++i) wait_on(handles[i], tensors[i].stream());
      wait_all(handles);
      end_step();
    }
    stream.synchronize();
    another.synchronize();
    emulated::acquire_all();
    barrier();
  });
}

/// However many steps repeat, each finds its table.
TEST_F(Hazards, ManyStepsHaveTablesOfTheirOwn) {
  constexpr std::size_t kSteps = 1000;
  ok(cudaSetDevice(0));
  {
    Tables tables(2 * kSteps);
    const OwnStream stream;
    for (int round = 0; round < 3; ++round) {
      for (std::size_t step = 0; step < kSteps; ++step) {
        Segment segment;
        segment.output = reinterpret_cast<std::byte*>(16 * (step + 1));  // of which only the address counts here
        segment.bytes = 16;
        ASSERT_NE(tables.find({segment}, stream.raw()), nullptr);
      }
      EXPECT_EQ(tables.made(), kSteps) << "in round " << round;
    }
    stream.synchronize();
  }
}

/// Tensor-parallel and data-parallel traffic, say: what one set waits for does not hold up the other.
TEST_F(Hazards, ASetDoesNotWaitForWhatAnotherWaitsFor) {
  run_local(
      2,
      [] {
        bind();
        const RankStream slow_stream;
        const RankStream stream;
        const Group pair = Group::of({1, 0});
        const auto ones = elements_of(DType::float32, 1000, always(1));
        const auto twos = elements_of(DType::float32, 1000, always(2));
        DeviceTensor slow(DType::float32, 1000, slow_stream);
        DeviceTensor quick(DType::float32, 1000, stream);
        slow.write(ones);
        allreduce("slow", slow.view());  // both sets have what they need
        quick.write(ones);
        allreduce({pair, "quick"}, quick.view());
        emulated::acquire_all();
        for (int round = 0; round < 4; ++round) {
          Gate gate;
          slow.write(ones);
          quick.write(ones);
          gate.hold(slow_stream);
          Handle behind = allreduce_async("slow", slow.view());
          Handle beside = allreduce_async({pair, "quick"}, quick.view());
          ASSERT_TRUE(beside.wait_for(std::chrono::seconds(30))) << "round " << round << "\n" << emulated::describe();
          EXPECT_FALSE(behind.done());
          emulated::acquire_all();
          EXPECT_TRUE(quick.read() == twos);
          gate.open();
          behind.wait();
          emulated::acquire_all();
          EXPECT_TRUE(slow.read() == twos);
        }
        barrier();
      },
      options());
}

}  // namespace
}  // namespace kolo::cuda::test
