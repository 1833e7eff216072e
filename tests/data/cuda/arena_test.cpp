// SPDX-License-Identifier: Apache-2.0
//
// GradientArena in a device's memory: reduced where it lies, by as few calls as there are ranges, and by nobody's
// copies.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <random>

#include <kolo/detail/counters.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>
#include <kolo/parameters.hpp>

#include <nccl.h>

#include "tests/data/cuda/rank_device.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::cuda::test {
namespace {

using emulated::Failure;

Bytes value(const TensorView& tensor, ReduceOp op, std::int64_t step) {
  return given_values(tensor.dtype(), op, tensor.elements(), step, rank());
}

Bytes reduced(const TensorView& tensor, ReduceOp op, std::int64_t step) {
  return reduced_values(tensor.dtype(), op, tensor.elements(), step);
}

class Arena : public CudaTest {};

struct Calls {
  std::uint64_t reductions = emulated::calls("ncclAllReduce");
  std::uint64_t launches = emulated::calls("launch");
};

TEST_F(Arena, NeighboursAreReducedByOneCallAndNotCopied) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average}) {
    emulated::reset(machine());
    Calls before;
    Calls after;
    on_devices(3, options(), [&](const RankStream& stream) {
      const Device device = own_device();
      GradientArena arena(1 << 20, device);
      EXPECT_EQ(arena.device(), device);
      std::vector<NamedView> views;  // with ends of every kind between them, and none of 0 elements left out
      for (const std::int64_t elements : {1000, 5, 0, 17, 64, 30000}) {
        const TensorView tensor = arena.allocate(DType::float32, Shape{elements}, Stream{stream});
        EXPECT_TRUE(arena.contains(tensor.data()));
        EXPECT_EQ(read(tensor), Bytes(static_cast<std::size_t>(tensor.bytes())));
        views.push_back({std::to_string(elements), tensor});
      }
      std::reverse(views.begin(), views.end());  // as backward produces them
      for (const NamedView& one : views) write(one.view, value(one.view, op, 0));
      together(0, [&] { before = Calls(); });
      const std::uint64_t in_place = metrics().bytes_in_place;
      Handle handle = grouped_allreduce_async("group", views, AllreduceOptions{}.with_op(op));
      follow(handle, stream);
      for (const NamedView& one : views) EXPECT_EQ(read(one.view), reduced(one.view, op, 0)) << one.name;
      handle.wait();
      together(0, [&] { after = Calls(); });
      EXPECT_EQ(metrics().bytes_in_place - in_place, (1000U + 5U + 17U + 64U + 30000U) * 4U);
      EXPECT_EQ(kolo::detail::counters().device_arena_bytes, arena.capacity());
      EXPECT_EQ(kolo::detail::counters().device_bytes_packed, 0U);
      emulated::acquire_all();
    });
    EXPECT_EQ(after.reductions - before.reductions, 3U) << "one for each rank";
    EXPECT_EQ(after.launches - before.launches, op == ReduceOp::sum ? 0U : 3U) << "an average is divided";
  }
}

TEST_F(Arena, WhatIsNotInTheBatchIsNotTouched) {
  on_devices(2, options(), [&](const RankStream& stream) {
    GradientArena arena(1 << 16, own_device());
    const TensorView first = arena.allocate(DType::int32, Shape{20}, Stream{stream});
    const TensorView second = arena.allocate(DType::int32, Shape{20}, Stream{stream});
    write(first, value(first, ReduceOp::sum, 0));
    write(second, value(second, ReduceOp::sum, 0));
    // The first ten elements of one, and the other: what is between them is a neighbour's, not padding.
    const TensorView part(first.data(), DType::int32, Shape{10}, first.device(), first.stream());
    Handle handle = grouped_allreduce_async("group", {{"part", part}, {"second", second}});
    follow(handle, stream);
    auto wanted = reduced(first, ReduceOp::sum, 0);
    const auto kept = value(first, ReduceOp::sum, 0);
    std::copy(kept.begin() + 40, kept.end(), wanted.begin() + 40);
    EXPECT_EQ(read(first), wanted);
    EXPECT_EQ(read(second), reduced(second, ReduceOp::sum, 0));
    handle.wait();
    emulated::acquire_all();
  });
}

TEST_F(Arena, PlacesMustAgree) {
  on_devices(2, options(), [&](const RankStream& stream) {
    GradientArena arena(1 << 16, own_device());
    if (rank() == 1) static_cast<void>(arena.allocate(DType::float32, Shape{64}));
    const TensorView tensor = arena.allocate(DType::float32, Shape{100}, Stream{stream});
    const std::string said = sentence_of(ErrorCode::mismatch, [&] { allreduce("x", tensor); });
    EXPECT_NE(said.find("place in a GradientArena"), std::string::npos) << said;
    EXPECT_NE(said.find("byte 256 of arena 1"), std::string::npos) << said;
    const TensorView other = arena.allocate(DType::float32, Shape{rank() == 0 ? 164 : 100}, Stream{stream});
    static_cast<void>(other);
    const TensorView same = arena.allocate(DType::float32, Shape{10}, Stream{stream});
    write(same, value(same, ReduceOp::sum, 0));
    EXPECT_EQ(result_of(allreduce_async("same", same), same), reduced(same, ReduceOp::sum, 0));  // the job goes on
    emulated::acquire_all();
  });
}

TEST_F(Arena, RanksMustWantTheSame) {
  run_local(
      2,
      [&] {
        const Device device = own_device();
        EXPECT_TRUE(
            refused(ErrorCode::mismatch, "size", [&] { GradientArena arena(rank() == 0 ? 4096 : 8192, device); }));
        EXPECT_TRUE(refused(ErrorCode::mismatch, "a CUDA device",
                            [&] { GradientArena arena(4096, rank() == 0 ? cpu() : device); }));
        EXPECT_TRUE(refused(ErrorCode::unsupported, "rank 1: this rank uses cuda:1", [&] {
          GradientArena arena(4096, Device{DeviceKind::cuda, rank() == 1 ? 3 : device.index});
        }));
      },
      options());
}

TEST_F(Arena, ADeviceWithoutRoomFailsEveryRankAndTheJobGoesOn) {
  on_devices(2, options(), [&](const RankStream& stream) {
    DeviceTensor x(DType::float32, 4, stream, always(1));
    Handle first = allreduce_async("x", x.view());
    first.wait();
    emulated::acquire_all();
    const Failure failure{.api = "ncclMemAlloc", .code = cudaErrorMemoryAllocation, .device = 1};
    together(0, [&] { emulated::inject(failure); });
    EXPECT_TRUE(refused(ErrorCode::transport, "rank 1: ncclMemAlloc failed",
                        [&] { GradientArena arena(1 << 20, own_device()); }));
    EXPECT_EQ(result_of(allreduce_async("x", x.view()), x), elements_of(DType::float32, 4, always(4)));
  });
}

TEST_F(Arena, IsAllocatedBesideNoCollective) {
  emulated::Config config = machine();
  config.report_allocation_hazards = true;
  for (unsigned seed = 1; seed <= 5; ++seed) {
    config.seed = seed;
    emulated::reset(config);
    on_devices(2, options().with_setting("KOLO_FUSION_THRESHOLD", "64K"), [&](const RankStream& stream) {
      std::vector<DeviceTensor> tensors;
      for (int i = 0; i < 6; ++i) {
        tensors.emplace_back(DType::float32, 20000, stream, always(0));
      }
      std::vector<Handle> handles;
      for (int i = 0; i < 6; ++i) {
        handles.push_back(allreduce_async(std::to_string(i), tensors[static_cast<std::size_t>(i)].view()));
      }
      const GradientArena arena(1 << 16, own_device());
      wait_all(handles);
      emulated::acquire_all();
      barrier();  // their own memory is freed when nobody's collective runs any more
    });
    expect_no_reports();
  }
}

TEST_F(Arena, StagedItIsMemoryLikeAny) {
  on_devices(2, options().with_setting("KOLO_GPU_BACKEND", "staged"), [&](const RankStream& stream) {
    GradientArena arena(1 << 16, own_device());
    const TensorView tensor = arena.allocate(DType::int16, Shape{1000}, Stream{stream});
    write(tensor, value(tensor, ReduceOp::max, 0));
    EXPECT_EQ(result_of(allreduce_async("x", tensor, AllreduceOptions{}.with_op(ReduceOp::max)), tensor),
              reduced(tensor, ReduceOp::max, 0));
    EXPECT_EQ(metrics().bytes_in_place, 0U);
    emulated::acquire_all();
  });
}

TEST_F(Arena, OfParametersWithTheirStreams) {
  on_devices(2, options(), [&](const RankStream& stream) {
    const Device device = own_device();
    std::vector<float> weights(4);
    std::vector<Parameter> parameters;
    const TensorView nowhere(nullptr, DType::float32, Shape{0}, device, Stream{stream});
    parameters.push_back(Parameter{"w", kolo::view(weights), nowhere});
    parameters.push_back(Parameter{"buffer", kolo::view(weights), std::nullopt});
    const GradientArena arena(parameters);
    EXPECT_EQ(arena.device(), device);
    EXPECT_EQ(parameters[0].gradient->stream()->native, static_cast<cudaStream_t>(stream));
    parameters.push_back(Parameter{"other", kolo::view(weights), kolo::view(weights)});
    EXPECT_TRUE(
        refused(ErrorCode::invalid_argument, "of \"other\" on cpu", [&] { GradientArena mixed(parameters, "mixed"); }));
  });
}

TEST_F(Arena, ItsMemoryIsGivenBackWithTheNextBatch) {
  on_devices(2, options(), [&](const RankStream& stream) {
    DeviceTensor x(DType::float32, 4, stream, always(0));
    for (int turn = 0; turn < 3; ++turn) {
      std::optional<GradientArena> arena(std::in_place, std::size_t{1} << 20, own_device());
      const TensorView tensor = arena->allocate(DType::float32, Shape{1000}, Stream{stream});
      Handle handle = allreduce_async("in the arena", tensor);
      handle.wait();
      emulated::acquire_all();
      barrier();
      arena.reset();
      allreduce("x", x.view());
      emulated::acquire_all();
      barrier();
      EXPECT_EQ(kolo::detail::counters().device_arena_bytes, 0U);
    }
  });
}

TEST_F(Arena, OutlivesItsContextAndKeepsItsValues) {
  const RankStream stream;
  std::optional<GradientArena> arena;
  std::optional<TensorView> tensor;
  {
    Context context;
    arena.emplace(context, std::size_t{4096}, Device{DeviceKind::cuda, bind(context)});
    tensor = arena->allocate(DType::int64, Shape{100}, Stream{stream});
    write(*tensor, elements_of(DType::int64, 100, [](std::int64_t i) { return i; }));
    Handle handle = allreduce_async({context, "x"}, *tensor);
    follow(handle, stream);
    handle.wait();
  }
  emulated::acquire_all();
  EXPECT_EQ(read(*tensor), elements_of(DType::int64, 100, [](std::int64_t i) { return i; }));
}

TEST_F(Arena, AFaultLeavesWhatWasNotInFlight) {
  expect_error(2, options(), [&](const RankStream& stream) {
    GradientArena arena(1 << 16, own_device());
    const TensorView kept = arena.allocate(DType::float32, Shape{100}, Stream{stream});
    const TensorView lost = arena.allocate(DType::float32, Shape{100}, Stream{stream});
    write(kept, value(kept, ReduceOp::sum, 0));
    const Failure failure{.api = "ncclAllReduce", .code = ncclSystemError, .rank = 1};
    together(0, [&] { emulated::inject(failure); });
    Handle handle = allreduce_async("lost", lost);
    try {
      handle.wait();
    } catch (const Error&) {
      emulated::acquire_all();
      EXPECT_EQ(read(kept), value(kept, ReduceOp::sum, 0));
      throw;
    }
  });
}

/// Worlds of steps over an arena: with tensors outside it, orders of each rank's own, and everything late.
TEST_F(Arena, RandomSteps) {
  constexpr unsigned kWorlds = kolo::testing::unless_sanitized(8U, 3U);
  constexpr int kSteps = kolo::testing::share_of(40);
  std::uint64_t in_place = 0;
  for (unsigned seed = 1; seed <= kWorlds; ++seed) {
    emulated::Config config = machine();
    config.seed = seed;
    emulated::reset(config);
    const Options with = options().with_setting("KOLO_FUSION_THRESHOLD", "16K");
    on_devices(1 + static_cast<int>(seed % 4), with, [&](const RankStream& stream) {
      std::mt19937 same(seed);
      std::mt19937 own(seed * 31 + static_cast<unsigned>(rank()));
      GradientArena arena(1 << 19, own_device());
      std::vector<TensorView> tensors;
      std::vector<DeviceTensor> outside;
      constexpr DType kSome[] = {DType::float32, DType::float32, DType::bfloat16, DType::int64};
      for (int i = 0; i < 12; ++i) {
        const DType dtype = kSome[same() % 4];
        const auto elements = static_cast<std::int64_t>(same() % 5 == 0 ? same() % 4000 : same() % 100);
        if (same() % 4 == 0) {
          outside.emplace_back(dtype, elements, stream);
          tensors.push_back(outside.back().view());
        } else {
          tensors.push_back(arena.allocate(dtype, Shape{elements}, Stream{stream}));
        }
      }
      std::vector<std::size_t> order(tensors.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      for (int step = 0; step < kSteps; ++step) {
        if (own() % 3 == 0) std::shuffle(order.begin(), order.end(), own);
        const auto op_of = [&](std::size_t i) {
          const bool averages = is_floating_point(tensors[i].dtype()) && (i + seed) % 3 == 0;
          return averages ? ReduceOp::average : ReduceOp::sum;
        };
        std::vector<Handle> handles(tensors.size());
        for (const std::size_t i : order) {
          write(tensors[i], value(tensors[i], op_of(i), step));
          handles[i] = allreduce_async("t" + std::to_string(i), tensors[i], AllreduceOptions{}.with_op(op_of(i)));
        }
        for (Handle& handle : handles) follow(handle, stream);
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          ASSERT_EQ(read(tensors[i]), reduced(tensors[i], op_of(i), step)) << "seed " << seed;
        }
        wait_all(handles);
        emulated::acquire_all();
        end_step();
      }
      if (rank() == 0) in_place += metrics().bytes_in_place;
    });
    expect_no_reports();
  }
  std::printf("%u random steps over arenas, %llu bytes of rank 0 in place\n", kWorlds * kSteps,
              static_cast<unsigned long long>(in_place));
  EXPECT_GT(in_place, 0U);
}

}  // namespace
}  // namespace kolo::cuda::test
